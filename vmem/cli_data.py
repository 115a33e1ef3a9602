"""`vmem data`: fetch and check benchmarks."""

from pathlib import Path
from typing import Annotated

import typer

from vmem.datasets import read_benchmark
from vmem.datasets.check import check
from vmem.show import print_counts, print_json

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
