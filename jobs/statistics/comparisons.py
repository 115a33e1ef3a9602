"""Paired comparisons of a run's systems (Appendix I): against V-Mem, and each step of Table 3."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

from jobs.evaluation.records import Record
from jobs.statistics.cell_scores import CellScores
from jobs.statistics.means import Resampling, case_of
from vmem.metrics.paired import compare_categories, compare_paired
from vmem.systems.rows import SystemRow, read_rows

STEPS = ("vanilla", "routing", "rounds", "v-mem")
"""The rows of Table 3, each compared with the one before it as in Table 15."""
FURTHER = (("rounds", "routing-threefold"),)
"""What Appendix H compares besides."""
EVIDENCE = ("recall@12", "recall+neighbours")
GROUPS: Mapping[str, Callable[[Record], str]] = {
    "category": lambda record: record.category,
    "case": case_of,
    "case_and_category": lambda record: f"{case_of(record)}|{record.category}",
}
"""Groups of questions that systems are compared in, each a family of tests of its own."""


def base_system(systems: Sequence[str], rows: Mapping[str, SystemRow] | None = None) -> str | None:
    """The system that all others are compared with: `v-mem`, else the first that is V-Mem.

    Args:
        systems: A plan's systems.
        rows: Known rows; None is those of `configs/systems/`.
    """
    if "v-mem" in systems:
        return "v-mem"
    known = read_rows() if rows is None else rows
    return next((name for name in systems if name in known and known[name].kind == "v-mem"), None)


def compare_systems(
    cells: Sequence[CellScores], base: str | None, draw: Resampling
) -> list[dict[str, Any]]:
    """All comparisons of cells with one benchmark and one backbone.

    Returns:
        For each pair and score: `system` less `base`, overall, by category, and as Table 11 asks by
        case and by case and category, each with the number of questions that `improved` and
        `worsened`. `invalid` names what makes either side's score invalid, `left_out` counts
        questions that one side lacks.
    """
    found = []
    by_place: dict[tuple[str, str], dict[str, CellScores]] = {}
    for cell in cells:
        place = by_place.setdefault((cell.cell.benchmark, cell.cell.backbone), {})
        place[cell.cell.system] = cell
    for (benchmark, backbone), systems in by_place.items():
        scores = {name: comparable_scores(cell) for name, cell in systems.items()}
        for system, other in _pairs(list(systems), base):
            for name in scores[system]:
                if name not in scores[other]:
                    continue
                key = f"{benchmark}|{backbone}|{system}|{other}|{name}"
                sides = scores[system][name], scores[other][name]
                faults = [faults_of(systems[side], name) for side in (system, other)]
                found.append(
                    {
                        "benchmark": benchmark,
                        "backbone": backbone,
                        "system": system,
                        "base": other,
                        "score": name,
                        "invalid": {k: sum(f.get(k, 0) for f in faults) for f in faults for k in f},
                        **compared_scores(*sides, systems[system], key, draw),
                    }
                )
    return found


def comparable_scores(cell: CellScores) -> dict[str, Mapping[str, float]]:
    """The scores that systems are compared by, by name and question.

    Names are `judge:JUDGE:KIND` for each judge, `f1` and those of `EVIDENCE`.
    """
    found: dict[str, Mapping[str, float]] = {
        f"judge:{judged.judge}:{judged.kind}": judged.scores()
        for judged in cell.judged
        if judged.gold == "original"
    }
    if cell.answers:
        found["f1"] = cell.lexical["f1"]
    evidence = cell.evidence()
    found |= {name: evidence.get(name, {}) for name in EVIDENCE}
    return {name: scores for name, scores in found.items() if scores}


def _pairs(systems: Sequence[str], base: str | None) -> list[tuple[str, str]]:
    against = [(name, base) for name in systems if base in systems and name != base]
    ladder = [name for name in STEPS if name in systems]
    steps = [
        (step, before) for before, step in pairwise(STEPS) if before in ladder and step in ladder
    ]
    further = [pair for pair in FURTHER if set(pair) <= set(systems)]
    return [(system, str(other)) for system, other in dict.fromkeys([*against, *steps, *further])]


def faults_of(cell: CellScores, name: str) -> dict[str, int]:
    """What makes one of a cell's comparable scores invalid, by name."""
    if name in EVIDENCE:
        return cell.faults(answers=False)
    judged = next((j for j in cell.judged if name == f"judge:{j.judge}:{j.kind}"), None)
    return cell.faults(judged)


def compared_scores(
    first: Mapping[str, float],
    second: Mapping[str, float],
    cell: CellScores,
    key: str,
    draw: Resampling,
) -> dict[str, Any]:
    """One score of two systems, the first's less the second's, on the questions that both have.

    Args:
        first: The score by question.
        second: The other system's.
        cell: Whose records say what the questions are about; either system's.
        key: The figure's name, for its source of randomness.
        draw: Seed and number of resamples.
    """
    both = first.keys() & second.keys()
    left_out = len(first.keys() | second.keys()) - len(both)
    if not both:
        return {"left_out": left_out, "overall": None, **{what: {} for what in GROUPS}}
    ours, theirs = {id_: first[id_] for id_ in both}, {id_: second[id_] for id_ in both}
    dialogue_of = {id_: cell.records[id_].dialogue_id for id_ in both}
    overall = compare_paired(ours, theirs, dialogue_of, draw.rng(key), draw.draws)
    parts: dict[str, Any] = {}
    for what, group in GROUPS.items():
        group_of = {id_: group(cell.records[id_]) for id_ in both}
        rng = draw.rng(f"{key}|{what}")
        compared = compare_categories(ours, theirs, dialogue_of, group_of, rng, draw.draws)
        parts[what] = {
            name: asdict(part) | _moved(ours, theirs, [i for i in both if group_of[i] == name])
            for name, part in compared.items()
        }
    return {
        "left_out": left_out,
        "overall": asdict(overall) | _moved(ours, theirs, both),
        **parts,
    }


def _moved(
    ours: Mapping[str, float], theirs: Mapping[str, float], ids: Collection[str]
) -> dict[str, int]:
    """Questions whose score went up, and down, from the base to the system."""
    return {
        "improved": sum(ours[id_] > theirs[id_] for id_ in ids),
        "worsened": sum(ours[id_] < theirs[id_] for id_ in ids),
    }
