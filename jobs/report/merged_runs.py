"""The statistics of several runs as one: cells by name, and what made them."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobs.evaluation.run_folder import RunFolder
from vmem.errors import InputError

PAPER_BACKBONES = ("gpt-4o-mini", "Qwen2.5-VL-32B", "Qwen2.5-VL-7B-Instruct (AWQ)")
MAIN_BACKBONE = PAPER_BACKBONES[0]
PRIMARY_KIND = {"locomo": "locomo"}
"""The kind of judge whose score is the paper's, where it is not `gallery`."""
STATISTICS = "statistics.json"

Cell = Mapping[str, Any]
Run = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What answered and what judged.

    Attributes:
        backbone: The backbone's name in its plan.
        judge: The judge's name, or empty where no judge is asked.
        kind: What it was asked for.
        gold: `original` or `corrected`.
    """

    backbone: str
    judge: str = ""
    kind: str = ""
    gold: str = "original"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedRuns:
    """All runs whose figures go into one set of tables.

    Attributes:
        runs: Their descriptions, in the order given.
        cells: By benchmark, system and backbone; of two runs with one cell the first holds.
        run_of: The run of each cell.
        comparisons: By benchmark, backbone, system, base and score.
        honesty: What is known of the judges, by run.
        twice: Cells that a later run has as well, and that are not shown.
    """

    runs: list[Run] = field(default_factory=list)
    cells: dict[tuple[str, str, str], Cell] = field(default_factory=dict)
    run_of: dict[tuple[str, str, str], Run] = field(default_factory=dict)
    comparisons: dict[tuple[str, str, str, str, str], Mapping[str, Any]] = field(
        default_factory=dict
    )
    honesty: list[Mapping[str, Any]] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)

    def add(self, statistics: Mapping[str, Any]) -> None:
        """Add a run's statistics; its cells that are there already are noted and left out."""
        run = statistics["run"]
        self.runs.append(run)
        self.honesty.append({"run": run["name"], **statistics["honesty"]})
        for cell in statistics["cells"]:
            name = cell["benchmark"], cell["system"], cell["backbone"]
            if not cell["run"]:
                continue
            if name in self.cells:
                self.twice.append(f"{'.'.join(name)} of {run['name']}")
                continue
            self.cells[name], self.run_of[name] = cell, run
        for one in statistics["comparisons"]:
            key = (one["benchmark"], one["backbone"], one["system"], one["base"], one["score"])
            self.comparisons.setdefault(key, one)

    def left_out(self, system: str | None) -> str:
        """Why a plan leaves a system out; empty where none says."""
        plans = [run.get("plan", {}) for run in self.runs]
        reasons = [plan.get("left_out", {}).get(system or "", "") for plan in plans]
        return next(filter(None, reasons), "")

    def cell(self, benchmark: str, system: str | None, backbone: str) -> Cell | None:
        """A cell, or None where it was not run."""
        return self.cells.get((benchmark, system or "", backbone))

    def backbones(self, benchmark: str) -> list[str]:
        """Backbones with a cell of a benchmark, in the runs' order."""
        return list(dict.fromkeys(name[2] for name in self.cells if name[0] == benchmark))

    def benchmarks(self) -> list[str]:
        """Benchmarks with a cell, in the runs' order."""
        return list(dict.fromkeys(name[0] for name in self.cells))

    def systems(self) -> list[str]:
        """Systems with a cell, in the runs' order."""
        return list(dict.fromkeys(name[1] for name in self.cells))

    def judged_by(self, benchmark: str) -> list[Source]:
        """All that answered and judged on a benchmark; the paper's kind of judge first."""
        primary = PRIMARY_KIND.get(benchmark, "gallery")
        found = dict.fromkeys(
            Source(backbone=name[2], judge=one["judge"], kind=one["kind"], gold=one["gold"])
            for name, cell in self.cells.items()
            if name[0] == benchmark
            for one in cell["judged"]
        )
        return sorted(found, key=lambda source: (source.kind != primary, source.gold != "original"))

    def model(self, name: str) -> str:
        """What a server calls the model of a plan's name; that name where no run says."""
        for run in self.runs:
            for known in ("models", "backbones", "judges"):
                if found := run.get(known, {}).get(name):
                    return str(found)
        return name

    def belongs(self, backbone: str, published: str | None) -> bool:
        """Whether our backbone's figures stand beside those of one of the paper's.

        One that the paper does not use stands beside its main one.
        """
        ours = _plain(f"{backbone} {self.model(backbone)}")
        same = [name for name in PAPER_BACKBONES if _plain(name.partition("-Instruct")[0]) in ours]
        return (published or MAIN_BACKBONE) in (same or [MAIN_BACKBONE])


def read_statistics(runs: Sequence[RunFolder]) -> MergedRuns:
    """The statistics of all runs.

    Raises:
        InputError: A folder has none.
    """
    merged = MergedRuns()
    for run in runs:
        path = run.path / STATISTICS
        try:
            merged.add(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, json.JSONDecodeError) as error:
            raise InputError(
                f"{path} cannot be read; run the statistics stage of {run.path} first"
            ) from error
    return merged


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
