"""Stage 3: what a run's answers and judgements come to, with how sure it is (Appendix I)."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from jobs.evaluation.records import Cell
from jobs.evaluation.run_folder import RunFolder, write_json
from jobs.statistics.cell_scores import CORRECTED, CellScores, JudgedAnswers, counted, read_cell
from jobs.statistics.comparisons import base_system, compare_systems
from jobs.statistics.costs import answer_cost, build_cost, judging_cost, machine_seconds
from jobs.statistics.error_analysis import wrong_answers
from jobs.statistics.honesty import agreements, planted_rates, spreads
from jobs.statistics.means import Resampling, groups_of
from vmem.config import first_fault
from vmem.errors import InputError
from vmem.metrics.significance import RESAMPLES
from vmem.systems.rows import SystemRow, read_rows

FILE = "statistics.json"
SECONDS = "seconds.json"
KEPT = ("plan", "models", "backbones", "judges", "prompts", "data", "benchmarks", "code")
"""Of the manifest, what tables must say; times and machine differ between runs that agree."""

SURE = ("f1", "bleu", "exact", "recall@12", "recall+neighbours")
"""Scores with intervals in each category, as those of judges have; all have them overall."""


class _Named(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str


class PlannedRun(BaseModel):
    """What of a plan the statistics need; a manifest of an older plan may hold more or less."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str = ""
    benchmarks: tuple[_Named, ...]
    systems: tuple[str, ...]
    backbones: tuple[_Named, ...]
    judges: tuple[_Named, ...] = ()

    def cells(self) -> list[Cell]:
        """All cells in the plan's order."""
        return [
            Cell(benchmark=benchmark.name, system=system, backbone=backbone.name)
            for backbone in self.backbones
            for benchmark in self.benchmarks
            for system in self.systems
        ]


def summarise_run(
    run: RunFolder, manifest: Mapping[str, Any], seed: int, draws: int = RESAMPLES
) -> dict[str, Any]:
    """Write `RUN/statistics.json`; the same lines and seed give the same bytes.

    Seconds of this machine's own work, which no two runs share, go to `RUN/seconds.json`.

    Args:
        run: The folder.
        manifest: The run's manifest: its `plan`, and what its figures depend on.
        seed: Seed of all resamples and sign flips.
        draws: How many of them each figure takes.

    Returns:
        What `statistics.json` holds.

    Raises:
        InputError: The manifest holds no plan.
        DataError: A line cannot be read.
        StoreError: The file cannot be written.
    """
    plan = planned_run(run, manifest)
    draw = Resampling(seed=seed, draws=draws)
    judges = [judge.name for judge in plan.judges]
    rows = read_rows()
    corrections = manifest.get("corrections", {})
    found: list[CellScores] = []
    cells = []
    for cell in plan.cells():
        described = manifest.get("benchmarks", {}).get(cell.benchmark, {})
        corrected = corrections.get(cell.benchmark, {}).get("references", {})
        scores = read_cell(run, cell, judges, described.get("questions"), corrected)
        names = {**asdict(cell), **_row(rows, cell.system)}
        if scores is None:
            cells.append({**names, "run": False})
            continue
        found.append(scores)
        cells.append({**names, "run": True, **_summary(run, scores, corrected, draw)})
    base = base_system(plan.systems, rows)
    statistics = {
        "run": {
            "name": plan.name,
            "seed": seed,
            "draws": draws,
            **{key: manifest[key] for key in KEPT if key in manifest},
            "corrections": {
                name: {key: value for key, value in one.items() if key != "references"}
                for name, one in corrections.items()
            },
            "systems": {
                name: _ran_on(settings) for name, settings in manifest.get("settings", {}).items()
            },
        },
        "base": base,
        "cells": cells,
        "comparisons": compare_systems(found, base, draw),
        "honesty": {
            "planted": planted_rates(run, [one.name for one in plan.benchmarks], judges),
            "spread": spreads(found),
            "agreement": agreements(found, draw),
        },
    }
    write_json(run.path / FILE, statistics)
    write_json(run.path / SECONDS, {str(one.cell): _seconds(run, one.cell) for one in found})
    return statistics


def forget_statistics(run: RunFolder) -> None:
    """Take away what is no longer true, so that no table is made of it."""
    for name in (FILE, SECONDS):
        (run.path / name).unlink(missing_ok=True)


def _seconds(run: RunFolder, cell: Cell) -> dict[str, Any]:
    return machine_seconds(run.builds(cell).read(), run.timings(cell).read())


def planned_run(run: RunFolder, manifest: Mapping[str, Any]) -> PlannedRun:
    """The plan that a run was made by.

    Raises:
        InputError: The manifest holds none.
    """
    try:
        return PlannedRun.model_validate(manifest.get("plan"))
    except ValidationError as error:
        raise InputError(
            f"{run.path}: its manifest holds no plan that can be used: {first_fault(error)}"
        ) from error


def _ran_on(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Of a system's settings, what a caption names; the manifest has them all."""
    encoders = {name: one["kind"] for name, one in settings.get("encoders", {}).items()}
    answer = settings.get("answer", {})
    named = ("query_caption", "sees_pixels")
    return {"encoders": encoders, **{name: answer[name] for name in named if name in answer}}


def _row(rows: Mapping[str, SystemRow], system: str) -> dict[str, Any]:
    row = rows.get(system)
    return {"title": row.title, "oracle": row.oracle} if row else {"title": system, "oracle": False}


def _summary(
    run: RunFolder, scores: CellScores, corrections: Mapping[str, str], draw: Resampling
) -> dict[str, Any]:
    cell, records = scores.cell, scores.records
    judged = [_judged(scores, one, draw) for one in scores.judged]
    faults = [scores.faults(answers=scores.answers), *(one["invalid"] for one in judged)]
    invalid: dict[str, int] = {}
    for one in faults:
        invalid |= {name: max(count, invalid.get(name, 0)) for name, count in one.items()}
    return {
        "finished": scores.finished,
        "answered_by_model": scores.answers,
        "questions": len(records),
        "dialogues": len({record.dialogue_id for record in records.values()}),
        "failed": len(scores.failed()),
        "unanswered": len(scores.unanswered()),
        "errors": counted((record.error or "").partition(":")[0] for record in scores.failed()),
        "valid": not invalid,
        "invalid": dict(sorted(invalid.items())),
        "corrected": len(corrections.keys() & records.keys()),
        "warnings": scores.warnings(),
        "judged": judged,
        "lexical": _lexical(scores, corrections, draw),
        "evidence": _evidence(scores, draw),
        "cost": {
            "answer": answer_cost(records.values()),
            "build": build_cost(run.builds(cell).read()),
            "judge": {
                _judging(one): judging_cost(
                    line
                    for line in one.lines
                    if one.gold != CORRECTED or line.question_id in one.corrected
                )
                for one in scores.judged
            },
        },
    }


def _judging(judged: JudgedAnswers) -> str:
    """What a judge was asked, as costs name it: by corrected gold only what differs is judged."""
    name = f"{judged.judge}.{judged.kind}"
    return f"{name}.{CORRECTED}" if judged.gold == CORRECTED else name


def _judged(scores: CellScores, judged: JudgedAnswers, draw: Resampling) -> dict[str, Any]:
    found = judged.scores()
    known = {id_: score for id_, score in found.items() if id_ in scores.records}
    key = f"{scores.cell}|{judged.judge}|{judged.kind}|{judged.gold}"
    return {
        "judge": judged.judge,
        "kind": judged.kind,
        "gold": judged.gold,
        "judged": len(known),
        "unjudged": len(scores.scored().keys() - known.keys()),
        "asked_twice": sum(line.asks > 1 for line in judged.lines),
        "invalid": scores.faults(judged),
        "levels": counted(f"{level:g}" for level in judged.levels().values()),
        "score": groups_of(known, scores.records, key, draw),
        "wrong": wrong_answers(known, scores.records),
    }


def _lexical(
    scores: CellScores, corrections: Mapping[str, str], draw: Resampling
) -> dict[str, Any] | None:
    if not scores.answers:
        return None
    found: dict[str, Any] = {"invalid": scores.faults()}
    versions = {"scores": scores.lexical}
    if corrections:
        versions[CORRECTED] = scores.lexical_against(corrections)
    for version, by_name in versions.items():
        found[version] = {
            name: groups_of(
                values, scores.records, f"{scores.cell}|{version}|{name}", draw, sure=name in SURE
            )
            for name, values in by_name.items()
        }
    return found


def _evidence(scores: CellScores, draw: Resampling) -> dict[str, Any] | None:
    by_name = scores.evidence()
    if not by_name:
        return None
    return {
        "invalid": scores.faults(answers=False),
        "with_evidence": max(map(len, by_name.values())),
        "scores": {
            name: groups_of(
                values, scores.records, f"{scores.cell}|evidence|{name}", draw, sure=name in SURE
            )
            for name, values in by_name.items()
        },
    }
