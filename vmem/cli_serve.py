"""The command that serves memories over HTTP."""

from typing import Annotated

import typer

from vmem.show import print_serving


def serve(
    config: Annotated[
        str,
        typer.Option("--config", "-c", help="embedded, vllm-cpu, gpu, remote, or a YAML file."),
    ] = "embedded",
    port: Annotated[int | None, typer.Option("--port", help="Else the config's own.")] = None,
) -> None:
    """Serve memories over HTTP until Ctrl-C or SIGTERM."""
    from serve.launch import run  # brings Ray, which other commands do without
    from serve.settings import load_serve_settings

    settings = load_serve_settings(config)
    if port is not None:
        http = settings.http.model_copy(update={"port": port})
        settings = settings.model_copy(update={"http": http})
    run(settings, print_serving)
