"""Measures building and searching on this machine: medians, and ratios of one run.

python -m jobs.benchmark [--data mem-gallery=DIR]
"""

import asyncio
import resource
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from jobs.build_memory import build_bank
from vmem.bank import Bank
from vmem.build import hot_memory, make_parts
from vmem.config import Settings, load_settings
from vmem.config import replace as replace_settings
from vmem.datasets import read_benchmark
from vmem.datasets.sample import read_sample
from vmem.pipeline import Parts, retrieve
from vmem.ports import SearchableMemory
from vmem.rounds import to_units
from vmem.show import console, errors
from vmem.stores.hot import HotMemory, UnitTable
from vmem.types import Dialogue, Modality, Query, Round, Turn

COPIES = 24
"""Copies of the sample that are built where no benchmark is given."""
SIZES = (500, 5_000, 20_000, 100_000)
"""Units of the synthetic memories."""
REPEATS = 5
VOCABULARY = 20_000


def main(
    data: Annotated[
        str, typer.Option("--data", help="NAME=FOLDER; else copies of the sample.")
    ] = "",
    settings: Annotated[str, typer.Option("--settings")] = "embedded",
) -> None:
    """Print build throughput, search times by stage, growth with size, and peak memory."""
    chosen = replace_settings(load_settings(settings), llm={"provider": "none"})
    with errors.status("building"):
        _print_build(chosen, data)
    parts = make_parts(chosen)
    with errors.status("searching"):
        _print_search(chosen, parts)
        _print_growth(chosen, parts)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    console.print(f"peak memory of this process: {peak:,.0f} MiB")


@dataclass(slots=True)
class Pace:
    """When rows of a stage came back."""

    marks: list[tuple[float, int]]

    def rows_per_second(self) -> float:
        """From the first batch's return to the last's: starting up is not in it."""
        (start, first), (end, last) = self.marks[0], self.marks[-1]
        return (last - first) / (end - start)


def _print_build(settings: Settings, data: str) -> None:
    dialogues = _dialogues(data)
    texts = [
        unit.text
        for dialogue in dialogues
        for round_ in dialogue.rounds
        for unit in to_units(round_, settings.units)
        if unit.modality is Modality.TEXT
    ]
    bare = _bare_loop(settings, texts)
    pace = Pace(marks=[])

    def progress(stage: str, done: int, total: int) -> None:  # noqa: ARG001
        if stage == "text units" and done:
            pace.marks.append((time.perf_counter(), done))

    with tempfile.TemporaryDirectory(prefix="vmem-bench-") as home:
        homed = replace_settings(settings, store={"home": Path(home), "bank": "bench"})
        with Bank(homed) as bank:
            report = build_bank(bank, dialogues, progress)
    built = pace.rows_per_second()
    table = Table(title=f"build: {len(dialogues)} dialogues, {report.rounds:,} rounds")
    for column in ("what", "figure"):
        table.add_column(column)
    table.add_row("bare encoder loop, texts/s", f"{bare:.0f}")
    table.add_row("build, text units/s (encoded, written, acknowledged)", f"{built:.0f}")
    table.add_row("build over bare loop", f"{built / bare:.2f}")
    table.add_row("whole build, s (Ray, actors, pictures, verification)", f"{report.seconds:.1f}")
    table.add_row("rounds/s of the whole build", f"{report.rounds_per_second:.1f}")
    table.add_row("LLM tokens", str(report.llm_tokens))
    console.print(table)


def _dialogues(data: str) -> tuple[Dialogue, ...]:
    if data:
        name, _, folder = data.partition("=")
        return read_benchmark(name, Path(folder)).dialogues
    sample = read_sample().dialogues[0]
    return tuple(_renamed(sample, number) for number in range(COPIES))


def _renamed(dialogue: Dialogue, number: int) -> Dialogue:
    """A copy whose texts differ by a number."""
    rounds = tuple(
        replace(
            round_,
            turns=tuple(
                replace(turn, text=f"{turn.text} ({number})" if turn.text else "")
                for turn in round_.turns
            ),
        )
        for round_ in dialogue.rounds
    )
    return Dialogue(id=f"{dialogue.id}-{number}", rounds=rounds)


def _bare_loop(settings: Settings, texts: Sequence[str]) -> float:
    """Texts/s of the encoder alone, in the build's batches."""
    encoder = make_parts(settings).text_encoder
    rows = settings.build.batch_rows
    marks = []
    for start in range(0, len(texts), rows):
        encoder.encode(texts[start : start + rows])
        marks.append((time.perf_counter(), min(start + rows, len(texts))))
    return Pace(marks=marks).rows_per_second()


def _print_search(settings: Settings, parts: Parts) -> None:
    sample = read_sample()
    rounds = tuple(
        replace(
            round_, id=f"{round_.id}-{copy}", position=copy * len(sample.dialogues[0].rounds) + p
        )
        for copy in range(4)
        for p, round_ in enumerate(_renamed(sample.dialogues[0], copy).rounds)
    )
    memory = hot_memory(Dialogue(id="sample", rounds=rounds), settings, parts)
    queries = [question.query for question in sample.questions]
    times = _search_times(memory, queries, settings, parts)
    units = sum(len(to_units(round_, settings.units)) for round_ in rounds)
    table = Table(title=f"search: {units} units, {len(queries)} questions × {REPEATS}, ms")
    for column in ("stage", "median", "IQR"):
        table.add_column(column)
    for stage, values in times.items():
        table.add_row(stage, f"{statistics.median(values):.2f}", iqr(values))
    ratio = [
        rest / own for rest, own in zip(times["all but encoding"], times["encode"], strict=True)
    ]
    table.add_row("all but encoding / encode", f"{statistics.median(ratio):.3f}", iqr(ratio))
    console.print(table)


def _print_growth(settings: Settings, parts: Parts) -> None:
    table = Table(title="synthetic memories (random vectors, Zipf texts), ms at the median")
    for column in (
        "units",
        "rounds",
        "BM25 build",
        "search",
        "fuse",
        "assemble",
        "all but encoding",
    ):
        table.add_column(column, justify="right")
    rng = np.random.default_rng(0)
    for size in SIZES:
        memory = _synthetic(size, settings, parts.text_encoder.width, rng)
        queries = [Query(text=_words(rng, 8)) for _ in range(20)]
        start = time.perf_counter()
        asyncio.run(retrieve(queries[0], memory, parts, settings))
        first = time.perf_counter() - start
        times = _search_times(memory, queries, settings, parts)
        cells = [
            statistics.median(times[s]) for s in ("search", "fuse", "assemble", "all but encoding")
        ]
        table.add_row(
            f"{size:,}",
            f"{len(memory.rounds):,}",
            f"{first * 1000:,.0f}",
            *(f"{cell:.2f}" for cell in cells),
        )
    console.print(table)


def _search_times(
    memory: SearchableMemory, queries: Sequence[Query], settings: Settings, parts: Parts
) -> dict[str, list[float]]:
    """Milliseconds by stage, one value a search; the first round warms up."""
    return asyncio.run(_time_searches(memory, queries, settings, parts))


async def _time_searches(
    memory: SearchableMemory, queries: Sequence[Query], settings: Settings, parts: Parts
) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {}
    for repeat in range(REPEATS + 1):
        for query in queries:
            start = time.perf_counter()
            found = await retrieve(query, memory, parts, settings)
            whole = time.perf_counter() - start
            if not repeat:
                continue
            stages = dict(found.seconds) | {"all but encoding": whole - found.seconds["encode"]}
            for stage, seconds in stages.items():
                times.setdefault(stage, []).append(seconds * 1000)
    return times


def _synthetic(size: int, settings: Settings, width: int, rng: np.random.Generator) -> HotMemory:
    rounds = tuple(
        Round(
            id=f"r{n}",
            position=n,
            session=f"D{n // 50}",
            time="2026-01-01",
            turns=tuple(
                Turn(source_id=f"r{n}", speaker=speaker, text=_words(rng, 25))
                for speaker in ("user", "assistant")
            ),
        )
        for n in range(size // 2)
    )
    units = tuple(unit for round_ in rounds for unit in to_units(round_, settings.units))
    vectors_UD = rng.standard_normal((len(units), width), dtype=np.float32)
    vectors_UD /= np.linalg.norm(vectors_UD, axis=1, keepdims=True)
    return HotMemory(
        rounds,
        UnitTable(units=units, vectors_UD=vectors_UD),
        UnitTable(units=(), vectors_UD=np.zeros((0, 1), dtype=np.float32)),
        settings.retrieval.lexical,
    )


def _words(rng: np.random.Generator, count: int) -> str:
    return " ".join(f"w{min(rank, VOCABULARY)}" for rank in rng.zipf(1.3, count))


def iqr(values: Sequence[float]) -> str:
    """The middle half of some values, in words."""
    low, _, high = statistics.quantiles(values, n=4)
    return f"{low:.2f} to {high:.2f}"


if __name__ == "__main__":
    typer.run(main)
