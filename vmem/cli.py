"""The `vmem` command."""

import sys

import typer

from vmem.cli_cluster import cluster_app
from vmem.cli_data import data_app
from vmem.cli_eval import eval_app
from vmem.cli_keys import keys_app
from vmem.cli_memory import register
from vmem.cli_serve import serve
from vmem.errors import VmemError
from vmem.show import print_error

app = typer.Typer(
    name="vmem",
    help="Long-term memory for assistants whose users mix text and pictures.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
register(app)
app.command()(serve)
app.add_typer(eval_app, name="eval")
app.add_typer(data_app, name="data")
app.add_typer(keys_app, name="keys")
app.add_typer(cluster_app, name="cluster")


def main() -> None:
    """Run the command; an error of ours is one sentence and exit status 1."""
    try:
        app()
    except VmemError as error:
        print_error(error)
        sys.exit(1)


if __name__ == "__main__":
    main()
