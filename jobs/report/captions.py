"""What a table's caption says of the figures: what made ours, and what the paper notes."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from jobs.report.merged_runs import MergedRuns
from jobs.report.published import Places, PublishedTable
from vmem.metrics.lexical import DEFINITIONS, SCORED_AS

COSTS = (4, 8)
LEXICAL = (7, 9, 10)
"""Tables with F1, BLEU and exact match."""
WORDING = {
    "ours": "our wording",
    "prompts.dir": "the user's wording",
    "benchmark": "its own wording",
}


def score_caption(table: PublishedTable, merged: MergedRuns, places: Places) -> tuple[str, ...]:
    """The sentences below one of the paper's tables."""
    found = [f"Unit: {table.unit}."]
    if table.notes:
        found.append(f"On the published figures: {' '.join(table.notes.split())}")
    if merged.runs and table.number not in COSTS:
        found.append("Intervals of ours: 95% bootstrap over questions, as in Appendix I.")
    if table.number in LEXICAL:
        found += scored_as(str(row.get("benchmark") or table.benchmark) for row in table.rows)
    placed = {
        system
        for row in table.rows
        for column in table.columns
        if (system := places.system(table.number, row, column))
    }
    return (*found, *made_by(merged, placed, places))


def scored_as(benchmarks: Iterable[str]) -> tuple[str, ...]:
    """Whose F1, BLEU and exact match the figures of some benchmarks are."""
    names: dict[str, list[str]] = {}
    for name in dict.fromkeys(benchmarks):
        if name in SCORED_AS:
            names.setdefault(SCORED_AS[name], []).append(name)
    return tuple(f"On {', '.join(of)}: {DEFINITIONS[scorer]}." for scorer, of in names.items())


def made_by(merged: MergedRuns, systems: Iterable[str], places: Places) -> tuple[str, ...]:
    """What made our figures: settings, models, prompts, data, seed.

    Args:
        merged: The runs.
        systems: The systems of the table that the paper knows; ours alone are added.
        places: All systems.
    """
    if not merged.runs:
        return ("None of it was run here.",)
    wanted = {*systems, *filter(places.own, merged.systems())}
    shown = [name for name in merged.systems() if name in wanted]
    settings = [f"{name} ({_ran_on(name, merged, places)})" for name in shown]
    ours = (
        f"Our systems (settings): {', '.join(settings)}." if shown else "No system of it was run."
    )
    return (ours, *map(_run, merged.runs))


def _ran_on(system: str, merged: MergedRuns, places: Places) -> str:
    """The settings that a system started from, and what else a reader must know of it."""
    said = [places.rows[system].settings if system in places.rows else "unknown"]
    for run in merged.runs:
        if ran_on := run.get("systems", {}).get(system):
            said += [f"{kind} for {what}" for what, kind in ran_on["encoders"].items()]
            if ran_on.get("query_caption") == "dataset":
                said.append("attached pictures described by the dataset")
            if ran_on.get("sees_pixels"):
                said.append("the answering model sees pictures")
            break
    return ", ".join(said)


def _run(run: Mapping[str, Any]) -> str:
    plan = run.get("plan", {})
    models = {
        name: found
        for known in ("backbones", "judges", "models")
        for name, found in run.get(known, {}).items()
    }

    def listed(what: str) -> str:
        names = [one["name"] for one in plan.get(what, ())]
        said = [f"{n} ({models[n]})" if models.get(n, n) != n else n for n in names]
        return ", ".join(said) or "none"

    changes = {one["name"]: one.get("changes") for one in plan.get("benchmarks", ())}
    data = _data(run.get("data", {}), run.get("benchmarks", {}), changes)
    return (
        f"Run {run['name']}: base settings {plan.get('settings', 'unknown')}; backbones"
        f" {listed('backbones')}; judges {listed('judges')}; {_prompts(run.get('prompts', {}))};"
        f" {data}; seed {run['seed']}, {run['draws']:,} draws."
    )


def _prompts(prompts: Mapping[str, Any]) -> str:
    """Whose wording judges were asked in, by benchmark and kind."""
    judges: Mapping[str, Any] = prompts.get("judges", {})
    said = [
        f"{name} in {WORDING.get(one.get('source'), 'unknown wording')} ({one['sha256'][:8]})"
        for name, one in sorted(judges.items())
    ]
    return f"judge prompts: {', '.join(said) or 'none'}"


def _data(
    data: Mapping[str, Any], benchmarks: Mapping[str, Any], changes: Mapping[str, Any]
) -> str:
    """By benchmark its digest, its size, and what a plan changes on it."""
    said = []
    for name, digest in sorted(data.items()):
        counts = benchmarks.get(name, {})
        asked = "".join(f", {counts[w]:,} {w}" for w in ("dialogues", "questions") if w in counts)
        changed = f", with {json.dumps(changes[name])}" if changes.get(name) else ""
        said.append(f"{name} ({str(digest)[:8]}{asked}{changed})")
    return f"data: {', '.join(said) or 'unknown'}"
