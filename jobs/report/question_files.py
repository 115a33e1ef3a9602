"""Reads single questions out of a run's files, with how each ended and who disagrees over it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

from jobs.evaluation.manifest import FILE, read_manifest
from jobs.evaluation.records import Cell, Record
from jobs.evaluation.run_folder import RunFolder
from jobs.report.merged_runs import PRIMARY_KIND
from jobs.report.questions import FAILURES, WRONG, SeenQuestion, State, Verdict, Wanted
from jobs.statistics.cell_scores import CORRECTED
from jobs.statistics.error_analysis import evidence_shown
from vmem.errors import DataError, InputError
from vmem.metrics.judge import is_unanswered


def cells_of(run: RunFolder) -> list[Cell]:
    """The cells of which a run has answers, in its plan's order.

    Raises:
        InputError: There are none.
        DataError: A file of answers has another name.
    """
    cells = {_cell(path) for path in (run.path / "answers").glob("*.jsonl")}
    if not cells:
        raise InputError(f"{run.path} has no answers: run its answer stage first")
    plan: Mapping[str, Any] = _manifest(run).get("plan", {})
    planned = {
        "benchmark": [one["name"] for one in plan.get("benchmarks", ())],
        "system": list(plan.get("systems", ())),
        "backbone": [one["name"] for one in plan.get("backbones", ())],
    }

    def place(what: str, name: str) -> tuple[int, str]:
        order = planned.get(what, [])
        return (order.index(name) if name in order else len(order)), name

    return sorted(
        cells,
        key=lambda cell: (
            place("benchmark", cell.benchmark),
            place("backbone", cell.backbone),
            place("system", cell.system),
        ),
    )


def read_questions(run: RunFolder, wanted: Wanted | None = None) -> Iterator[SeenQuestion]:
    """Questions of a run, cell by cell; one cell is held at a time, whatever a run's size.

    Raises:
        InputError: There are no answers, or what is wanted names something the run has not.
        DataError: A line cannot be read.
    """
    wanted = wanted or Wanted()
    cells, manifest = cells_of(run), _manifest(run)
    states: dict[Cell, dict[str, State]] = {}
    categories: dict[str, None] = {}
    for cell in cells:
        read = _read_cell(run, cell, manifest)
        states[cell] = {seen.record.question_id: seen.state for seen in read}
        if wanted.has_cell(cell):
            categories |= {seen.record.category: None for seen in read}
    _require_known(run, wanted, cells, categories)
    asked = {id_: None for cell in filter(wanted.has_cell, cells) for id_ in states[cell]}
    if wanted.question is not None and wanted.question not in asked:
        some = next(iter(asked), "none")
        raise InputError(f"{run.path} has no question {wanted.question!r} there; one is {some!r}")
    for cell in filter(wanted.has_cell, cells):
        rivals = {
            other.system: states[other]
            for other in cells
            if (other.benchmark, other.backbone) == (cell.benchmark, cell.backbone)
        }
        for seen in _read_cell(run, cell, manifest):
            found = replace(seen, disagreements=(*_judges(seen), *_systems(seen, rivals)))
            if wanted.has(found):
                yield found


def _cell(path: Path) -> Cell:
    parts = path.name.removesuffix(".jsonl").removesuffix(".partial").split(".")
    if len(parts) != len(Cell.__slots__):
        raise DataError(f"{path} is no file of answers: BENCHMARK.SYSTEM.BACKBONE.jsonl is one")
    return Cell(benchmark=parts[0], system=parts[1], backbone=parts[2])


def _read_cell(run: RunFolder, cell: Cell, manifest: Mapping[str, Any]) -> list[SeenQuestion]:
    records = run.answers(cell).read()
    answers = any(record.answer or "answer" in record.cost for record in records)
    verdicts: dict[str, list[Verdict]] = {}
    judges = [one["name"] for one in manifest.get("plan", {}).get("judges", ())]
    for verdict in _verdicts(run, cell, judges):
        verdicts.setdefault(verdict.line.question_id, []).append(verdict)
    corrected = manifest.get("corrections", {}).get(cell.benchmark, {}).get("references", {})
    seconds = {timing.question_id: timing.seconds for timing in run.timings(cell).read()}
    return [
        SeenQuestion(
            cell=cell,
            record=record,
            verdicts=(given := tuple(verdicts.get(record.question_id, ()))),
            seconds=seconds.get(record.question_id, {}),
            state=_state(record, given, answers=answers, judged=bool(verdicts)),
            corrected=corrected.get(record.question_id),
        )
        for record in records
    ]


def _verdicts(run: RunFolder, cell: Cell, judges: Sequence[str]) -> list[Verdict]:
    """All judgements of a cell's answers, the main judge's before the others'."""
    names = {
        path.name.removesuffix(".jsonl").removesuffix(".partial")
        for path in (run.path / "judgements").glob(f"{cell}.*.jsonl")
    }
    primary = PRIMARY_KIND.get(cell.benchmark, "gallery")
    found = []
    for name in names:
        judge, kind, *gold = name.removeprefix(f"{cell}.").split(".")
        place = judges.index(judge) if judge in judges else len(judges)
        order = (gold == [CORRECTED], kind != primary, place, judge, kind)
        for line in run.judgements(name).read():
            verdict = Verdict(judge=judge, kind=kind, gold=(*gold, "original")[0], line=line)
            found.append(((*order, line.repetition), verdict))
    return [verdict for _, verdict in sorted(found, key=lambda pair: pair[0])]


def _manifest(run: RunFolder) -> Mapping[str, Any]:
    return read_manifest(run) if (run.path / FILE).is_file() else {}


def _state(record: Record, given: Sequence[Verdict], *, answers: bool, judged: bool) -> State:
    if record.error is not None:
        return State.FAILED
    if answers and is_unanswered(record.answer):
        return State.EMPTY
    if judged and record.reference.strip():
        return _judged(given[0]) if given else State.UNJUDGED
    shown = evidence_shown(record)
    if shown == "no_evidence" or not (record.context_rounds or record.ranked_rounds):
        return State.UNSCORED
    return State.FOUND if shown == "all" else State.MISSED


def _judged(main: Verdict) -> State:
    if main.line.score is None:
        return State.UNJUDGED
    return State.WRONG if main.wrong else State.RIGHT if main.line.score == 1 else State.PARTLY


def _judges(seen: SeenQuestion) -> list[str]:
    """Judges, kinds of judge and repetitions that differ over one answer."""
    by_judge: dict[tuple[str, str], set[bool]] = {}
    for verdict in seen.verdicts:
        if verdict.gold == "original" and verdict.wrong is not None:
            by_judge.setdefault((verdict.judge, verdict.kind), set()).add(verdict.wrong)
    found = [
        f"{judge} ({kind}) says both right and wrong when asked again"
        for (judge, kind), said in by_judge.items()
        if len(said) > 1
    ]
    steady = [(*who, said == {True}) for who, said in by_judge.items() if len(said) == 1]
    for (judge, kind, wrong), (other, another, opposed) in combinations(steady, 2):
        if wrong != opposed:
            words = ("wrong", "right") if wrong else ("right", "wrong")
            found.append(f"{judge} ({kind}) says {words[0]}, {other} ({another}) {words[1]}")
    return found


def _systems(seen: SeenQuestion, rivals: Mapping[str, Mapping[str, State]]) -> list[str]:
    """Systems of the run that are right where this one is wrong, or the other way round."""
    here = _is_wrong(seen.state)
    others = [
        f"{states[seen.record.question_id]} by {system}"
        for system, states in rivals.items()
        if seen.record.question_id in states
        and {here, _is_wrong(states[seen.record.question_id])} == {True, False}
    ]
    return [f"{seen.state} here, {', '.join(others)}"] if others else []


def _is_wrong(state: State) -> bool | None:
    """Whether a question ended wrong; None where it did not come to a score."""
    return None if state in FAILURES | {State.UNSCORED} else state in WRONG


def _require_known(
    run: RunFolder, wanted: Wanted, cells: Sequence[Cell], categories: Iterable[str]
) -> None:
    """Refuse names that the run has not, with those that it has."""
    names = [str(cell) for cell in cells]
    known: list[tuple[str, str | None, Iterable[str]]] = [
        ("cell", wanted.cell, names),
        ("benchmark", wanted.benchmark, (cell.benchmark for cell in cells)),
        ("system", wanted.system, (cell.system for cell in cells)),
        ("backbone", wanted.backbone, (cell.backbone for cell in cells)),
    ]
    if any(map(wanted.has_cell, cells)):
        known.append(("category", wanted.category, categories))
    for what, given, there in known:
        has = list(dict.fromkeys(there))
        if given is not None and given not in has:
            raise InputError(f"{run.path} has no {what} {given!r}; it has {', '.join(has)}")
    if not any(map(wanted.has_cell, cells)):
        raise InputError(f"{run.path} has no cell with all of these; it has {', '.join(names)}")
