"""`vmem data`: fetch and check benchmarks."""

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from vmem.datasets import read_benchmark
from vmem.datasets.check import check
from vmem.datasets.fetch import fetch
from vmem.show import errors, print_counts, print_json, print_line

data_app = typer.Typer(help="Fetch benchmarks and check what is in them.", no_args_is_help=True)

BenchmarkName = Annotated[
    str, typer.Option("--benchmark", help="locomo, mem-gallery or photobench.")
]
DataFolder = Annotated[Path, typer.Option("--data", help="The benchmark's folder.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@data_app.command("check")
def check_data(benchmark: BenchmarkName, data: DataFolder, as_json: AsJson = False) -> None:
    """Count what a benchmark holds, and every oddity met while reading it."""
    read = read_benchmark(benchmark, data)
    report = check(read)
    if as_json:
        print_json(report.as_dict())
    else:
        print_counts(f"{benchmark} in {data}", report.as_dict())


@data_app.command("fetch")
def fetch_data(
    benchmark: Annotated[str, typer.Option("--benchmark", help="locomo or mem-gallery.")],
    data: Annotated[Path, typer.Option("--data", help="Where to; made where it is missing.")],
) -> None:
    """Download a public benchmark; files that are there in full are not fetched again."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=errors) as progress:
        task = progress.add_task(benchmark, total=None)
        fetch(
            benchmark, data, lambda done, total: progress.update(task, completed=done, total=total)
        )
    print_line(
        f"{benchmark} is in {data}; look at it with"
        f" `vmem data check --benchmark {benchmark} --data {data}`."
    )
