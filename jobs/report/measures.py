"""The score of each benchmark and backbone that plots show: a judge's, else F1, else recall."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.report.merged_runs import PRIMARY_KIND, Cell, MergedRuns
from jobs.report.score_entries import invalid_mark
from jobs.statistics.comparisons import base_system

MOST_SERIES = 6
"""Systems told apart by colour and shape in one plot."""
F1, EVIDENCE = "f1", "recall@12"
NAMES = {F1: "token F1", EVIDENCE: "evidence R@12"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One score of all systems on one benchmark with one backbone.

    Attributes:
        benchmark: The benchmark.
        backbone: The backbone's name in its plan.
        key: The score's name among the comparisons of `statistics.json`.
        name: What readers are told it is.
        cells: What was run, the base's cell first.
        base: The system that others are compared with, or None.
    """

    benchmark: str
    backbone: str
    key: str
    name: str
    cells: tuple[Cell, ...]
    base: str | None

    @property
    def title(self) -> str:
        """Where the score is from."""
        return f"{self.benchmark}, answered by {self.backbone}"

    @property
    def short(self) -> str:
        """The score's name without its judge's."""
        return NAMES.get(self.key, "score")

    @property
    def slug(self) -> str:
        """A name for ids."""
        parts = (self.benchmark, self.backbone, self.key)
        return "-".join("".join(c if c.isalnum() else "-" for c in part) for part in parts)

    def scores(self, cell: Cell) -> tuple[Mapping[str, Any], str] | None:
        """A cell's means by group, and why they are invalid; None where it has none."""
        part: Mapping[str, Any] | None
        if self.key.startswith("judge:"):
            _, judge, kind = self.key.split(":")
            for one in cell["judged"]:
                if (one["judge"], one["kind"], one["gold"]) == (judge, kind, "original"):
                    return one["score"], _why(one["invalid"])
            return None
        part = cell["lexical"] if self.key == F1 else cell["evidence"]
        if part is None:
            return None
        return part["scores"][self.key], _why(part["invalid"])

    def overall(self, cell: Cell) -> Mapping[str, Any] | None:
        """A cell's valid mean over all questions, or None."""
        found = self.scores(cell)
        if found is None or found[1] or found[0]["overall"]["mean"] is None:
            return None
        overall: Mapping[str, Any] = found[0]["overall"]
        return overall


def measures(merged: MergedRuns) -> list[Measured]:
    """For each benchmark and backbone the score by each judge, asked as the paper's is.

    Where nothing was judged it is token F1, and where no model answered, evidence recall.
    """
    base = base_system(merged.systems())
    found = []
    for benchmark in merged.benchmarks():
        for backbone in merged.backbones(benchmark):
            cells = [
                cell
                for name, cell in merged.cells.items()
                if (name[0], name[2]) == (benchmark, backbone)
            ]
            cells.sort(key=lambda cell: cell["system"] != base)
            for key, name in _keys(benchmark, cells):
                found.append(
                    Measured(
                        benchmark=benchmark,
                        backbone=backbone,
                        key=key,
                        name=name,
                        cells=tuple(cells),
                        base=base if cells and cells[0]["system"] == base else None,
                    )
                )
    return found


def _keys(benchmark: str, cells: Sequence[Cell]) -> list[tuple[str, str]]:
    primary = PRIMARY_KIND.get(benchmark, "gallery")
    judges = dict.fromkeys(
        one["judge"]
        for cell in cells
        for one in cell["judged"]
        if one["kind"] == primary and one["gold"] == "original"
    )
    if judges:
        return [(f"judge:{judge}:{primary}", f"score by {judge} ({primary})") for judge in judges]
    for key, part in ((F1, "lexical"), (EVIDENCE, "evidence")):
        if any(cell[part] for cell in cells):
            return [(key, NAMES[key])]
    return []


def _why(invalid: Mapping[str, int]) -> str:
    return invalid_mark(invalid) if invalid else ""
