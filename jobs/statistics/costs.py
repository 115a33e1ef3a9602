"""What building, answering and judging took, in calls, tokens and model seconds (Tables 4, 8).

Seconds are those of model calls, which a kept reply keeps: two runs over one cache agree. Seconds
of this machine's own work do not; they are in the run's `timings` and `builds`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from statistics import median
from typing import Any

from jobs.evaluation.records import Build, Judgement, ModelCost, Record, Timing

FIELDS = tuple(field.name for field in fields(ModelCost))


def answer_cost(records: Iterable[Record]) -> dict[str, Any]:
    """By role and in all, and in all per question."""
    kept = list(records)
    found = _by_role([record.cost for record in kept])
    total = found["total"]
    per = {name: total[name] / len(kept) if kept else None for name in (*FIELDS, "tokens")}
    return {"questions": len(kept), **found, "per_question": per}


def build_cost(builds: Iterable[Build]) -> dict[str, Any]:
    """By role and in all, with what the builds counted."""
    kept = list(builds)
    counts: dict[str, int] = {}
    for build in kept:
        for name, count in build.counts.items():
            counts[name] = counts.get(name, 0) + count
    return {
        "dialogues": len(kept),
        "counts": dict(sorted(counts.items())),
        **_by_role([build.cost for build in kept]),
    }


def judging_cost(judgements: Iterable[Judgement]) -> dict[str, Any]:
    """Of all repetitions together."""
    return _summed([judgement.cost for judgement in judgements])


def machine_seconds(builds: Iterable[Build], timings: Iterable[Timing]) -> dict[str, Any]:
    """Seconds on this machine, which no two runs share: of all builds, and of a question.

    Returns:
        `build`: by step the sum over dialogues; `question`: by step the median over questions,
        model calls among them, a call whose reply was kept taking next to none.
    """
    build: dict[str, float] = {}
    for one in builds:
        for step, seconds in one.seconds.items():
            build[step] = build.get(step, 0.0) + seconds
    question: dict[str, list[float]] = {}
    for timing in timings:
        for step, seconds in timing.seconds.items():
            question.setdefault(step, []).append(seconds)
    return {
        "build": {step: round(seconds, 3) for step, seconds in build.items()},
        "question": {step: round(median(seconds), 4) for step, seconds in question.items()},
    }


def _by_role(costs: list[Mapping[str, ModelCost]]) -> dict[str, Any]:
    roles = sorted({role for cost in costs for role in cost})
    by_role = {role: _summed([c[role] for c in costs if role in c]) for role in roles}
    return {
        "roles": by_role,
        "total": _summed([one for cost in costs for one in cost.values()]),
    }


def _summed(costs: list[ModelCost]) -> dict[str, Any]:
    plain = [asdict(cost) for cost in costs]
    found: dict[str, Any] = {name: sum(cost[name] for cost in plain) for name in FIELDS}
    found["seconds"] = round(found["seconds"], 4)  # sums of rounded seconds differ in the last bits
    found["tokens"] = found["prompt_tokens"] + found["completion_tokens"]
    return found
