"""What building, answering and judging took, in calls, tokens and model seconds (Tables 4, 8).

Seconds are those of model calls, which a kept reply keeps: two runs over one cache agree. Seconds
of this machine's own work do not; they are in the run's `timings` and `builds`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from typing import Any

from jobs.records import Build, Judgement, ModelCost, Record

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


def machine_seconds(builds: Iterable[Build]) -> dict[str, float]:
    """Seconds of each step of the builds on this machine: no two runs have the same."""
    seconds: dict[str, float] = {}
    for build in builds:
        for step, value in build.seconds.items():
            seconds[step] = seconds.get(step, 0.0) + value
    return {step: round(value, 3) for step, value in sorted(seconds.items())}


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
