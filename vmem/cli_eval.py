"""`vmem eval`: measure retrieval."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.progress import Progress

from jobs.retrieval import Outcome, evaluate
from vmem import cli_compare, cli_cost, cli_runs, cli_show
from vmem.build import without_image_lane
from vmem.cli_data import AsJson, BenchmarkName, DataFolder
from vmem.config import Encoders, Settings, load_settings
from vmem.datasets import EXCLUDED, read_benchmark
from vmem.datasets.check import check
from vmem.errors import InputError
from vmem.metrics.summary import ScoredQuestion, summarise
from vmem.show import errors, print_json, print_line, print_summary
from vmem.types import Benchmark

eval_app = typer.Typer(help="Measure retrieval on benchmarks.", no_args_is_help=True)


@eval_app.callback()
def _commands() -> None:
    """Measure retrieval on benchmarks."""


@eval_app.command("retrieval")
def eval_retrieval(
    benchmark: BenchmarkName,
    data: DataFolder,
    out: Annotated[Path, typer.Option("--out", help="One JSON line a question goes here.")],
    settings: Annotated[str, typer.Option("--settings", help="paper, tuned, or a file.")] = "paper",
    encoders: Annotated[
        Literal["embedded", "settings"],
        typer.Option("--encoders", help="Packaged encoders, or those that the settings name."),
    ] = "embedded",
    image_lane: Annotated[
        bool, typer.Option("--image-lane/--no-image-lane", help="Search pictures by their pixels.")
    ] = True,
    dialogue: Annotated[
        list[str] | None, typer.Option("--dialogue", help="Only this dialogue; may be repeated.")
    ] = None,
    all_categories: Annotated[
        bool, typer.Option("--all-categories", help="Score adversarial questions too.")
    ] = False,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Processes.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Evidence recall, hit, full and MRR of a setting, without a language model."""
    chosen = _settings(settings, encoders, image_lane)
    read = _only(read_benchmark(benchmark, data), dialogue or [])
    _write([], out)  # a run takes minutes: that it cannot be kept is known before
    outcomes = _run(read, chosen, workers)
    _write(outcomes, out)
    summary = summarise(
        [_scored(outcome) for outcome in outcomes], frozenset() if all_categories else EXCLUDED
    )
    names = [chosen.encoders.text.kind, chosen.encoders.image.kind]
    if as_json:
        run = {"benchmark": benchmark, "settings": chosen.name, "encoders": names}
        print_json({"run": run, **summary.as_dict()})
    else:
        print_summary(summary, f"{benchmark}, {chosen.name} ({', '.join(names)}; no LLM)")
        if missing := check(read).images_missing:
            print_line(f"{missing:,} images have no file here: only their captions were searched.")
    if summary.failed:
        errors.print(f"[bold red]{summary.failed:,} questions failed: these scores are invalid[/]")
        raise typer.Exit(1)


def _settings(name: str, encoders: str, image_lane: bool) -> Settings:
    chosen = load_settings(name)
    if encoders == "embedded":
        chosen = chosen.model_copy(update={"encoders": Encoders()})
    return chosen if image_lane else without_image_lane(chosen)


def _only(read: Benchmark, names: Sequence[str]) -> Benchmark:
    """The benchmark less all dialogues but those named; every one where none is named.

    Raises:
        InputError: A name is unknown.
    """
    known = {dialogue.id for dialogue in read.dialogues}
    if unknown := sorted(set(names) - known):
        raise InputError(
            f"no dialogue is named {unknown[0]!r}; there are {', '.join(sorted(known))}"
        )
    kept = set(names) or known
    return replace(
        read,
        dialogues=tuple(d for d in read.dialogues if d.id in kept),
        questions=tuple(q for q in read.questions if q.dialogue_id in kept),
    )


def _run(read: Benchmark, settings: Settings, workers: int) -> list[Outcome]:
    with Progress(console=errors, transient=True) as progress:
        task = progress.add_task(f"{read.name}, {settings.name}", total=len(read.questions))
        return evaluate(
            read, settings, workers=workers, progress=lambda done: progress.advance(task, done)
        )


def _write(outcomes: Sequence[Outcome], out: Path) -> None:
    lines = (json.dumps(outcome.record, ensure_ascii=False) + "\n" for outcome in outcomes)
    try:
        out.write_text("".join(lines), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{out} cannot be written: {error.strerror}") from error


def _scored(outcome: Outcome) -> ScoredQuestion:
    return ScoredQuestion(
        dialogue_id=outcome.question.dialogue_id,
        category=outcome.question.category,
        case=outcome.record["case"],
        scores=outcome.scores,
        error=outcome.record["error"],
    )


eval_app.command("compare")(cli_compare.compare)
eval_app.command("run")(cli_runs.run)
eval_app.command("tables")(cli_runs.tables)
eval_app.command("show")(cli_show.show)
eval_app.command("cost")(cli_cost.cost)
