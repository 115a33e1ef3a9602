"""`vmem eval cost`: what building memories of whole benchmarks would take."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from vmem.cli_data import AsJson
from vmem.cli_runs import Data, existing_run, named_folders
from vmem.show import console, print_json, print_line

if TYPE_CHECKING:
    from jobs.projected_costs import ProjectedBuild

COLUMNS = ("build", "messages", "calls", "tokens", "hours", "USD", "paper", "ratio")


def cost(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run, of a few dialogues perhaps.")],
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Project a run's builds by a language model to whole benchmarks, beside the paper's figures.

    Hours are those of the calls, one after another, with the backbone that was asked.
    """
    # Ray takes seconds to import: only who looks at runs waits for it.
    from jobs.evaluation.run_folder import RunFolder
    from jobs.projected_costs import project_builds

    found = project_builds(RunFolder(existing_run(run)), named_folders(data or []))
    if as_json:
        print_json([_as_dict(each) for each in found])
        return
    table = Table(*COLUMNS, box=SIMPLE_HEAD)
    for each in found:
        table.add_row(*_cells(each))
    console.print(table)
    priced = ", ".join(dict.fromkeys(model for each in found for model in each.usd()))
    print_line(f"USD by configs/prices.yaml ({priced}); ratios are of tokens.")
    if failed := sum(each.failed_steps for each in found):
        print_line(f"{failed:,} steps of these builds failed: what they would cost is unknown.")


def _cells(each: "ProjectedBuild") -> list[str]:
    said = [f"T{p.table} {_short(p.tokens)}, {p.hours:.1f} h" for p in each.published]
    ratios = [f"{each.tokens / p.tokens:.2f}" for p in each.published]
    return [
        f"{each.benchmark}\n{each.system}\n{each.backbone}",
        f"{each.messages:,}\nof {each.whole:,}",
        f"{each.calls:,}",
        _short(each.tokens),
        f"{each.hours:.1f}",
        "\n".join(dict.fromkeys(f"{usd:,.2f}" for usd in each.usd().values())),
        "\n".join(said) or "–",
        "\n".join(ratios) or "–",
    ]


def _short(tokens: int) -> str:
    return f"{tokens / 1e6:,.2f}M"


def _as_dict(each: "ProjectedBuild") -> dict[str, Any]:
    projected = {
        "calls": each.calls,
        "prompt_tokens": each.prompt_tokens,
        "completion_tokens": each.completion_tokens,
        "tokens": each.tokens,
        "hours": each.hours,
        "usd": each.usd(),
    }
    return {**asdict(each), "projected": projected}
