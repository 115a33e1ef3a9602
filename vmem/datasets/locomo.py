"""LoCoMo (Maharana et al. 2024): ten text conversations of two speakers (Appendix D, Table 6).

A round is a pair of consecutive turns within a session. The pictures were never released; their
captions were, so images carry a caption and no place. Whatever is odd in the file is reported.
"""

import re
from collections import Counter
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, TypeAdapter

from vmem.datasets.parsing import parse_json, read_text
from vmem.errors import DataError
from vmem.rounds import pair_turns
from vmem.types import Benchmark, Dialogue, Image, Issue, Query, Question, Round, Turn

FILE = "locomo10.json"
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
ADVERSARIAL = "adversarial"
"""The category that the paper leaves out (Table 6)."""

_SESSION = re.compile(r"session_(\d+)(_date_time)?")
_TURN_ID = re.compile(r"D:?(\d+):(\d+)")


class _Turn(BaseModel):
    speaker: str
    dia_id: str
    text: str
    img_url: list[str] | str | None = None
    blip_caption: str | None = None


class _Question(BaseModel):
    question: str
    category: int
    answer: str | int | float | None = None
    evidence: list[str] = []


class _Sample(BaseModel):
    sample_id: str
    conversation: dict[str, str | list[_Turn]]
    qa: list[_Question]


_SAMPLES = TypeAdapter(list[_Sample])


def read_locomo(folder_or_file: Path) -> Benchmark:
    """All conversations and questions of `locomo10.json`.

    Args:
        folder_or_file: The file, or the folder that holds it.

    Raises:
        DataError: The file is missing, no JSON or of another shape, or a date cannot be read.
    """
    path = folder_or_file / FILE if folder_or_file.is_dir() else folder_or_file
    samples = parse_json(_SAMPLES, read_text(path), str(path))
    issues: list[Issue] = []
    dialogues = tuple(_dialogue(sample, issues) for sample in samples)
    questions = tuple(
        question
        for sample, dialogue in zip(samples, dialogues, strict=True)
        for question in _questions(sample, dialogue, issues)
    )
    return Benchmark(name="locomo", dialogues=dialogues, questions=questions, issues=tuple(issues))


def _dialogue(sample: _Sample, issues: list[Issue]) -> Dialogue:
    turns_of: dict[int, list[_Turn]] = {}
    time_of: dict[int, str] = {}
    for key, value in sample.conversation.items():
        if not (found := _SESSION.fullmatch(key)):
            continue
        if isinstance(value, str):
            time_of[int(found[1])] = _time(value, f"{sample.sample_id} {key}")
        else:
            turns_of[int(found[1])] = value
    ids = Counter(turn.dia_id for turns in turns_of.values() for turn in turns)
    if repeated := [id_ for id_, count in ids.items() if count > 1]:
        raise DataError(f"{sample.sample_id}: turn id {repeated[0]} is used twice")
    return Dialogue(
        id=sample.sample_id, rounds=_rounds(sample.sample_id, turns_of, time_of, issues)
    )


def _rounds(
    sample_id: str, turns_of: dict[int, list[_Turn]], time_of: dict[int, str], issues: list[Issue]
) -> tuple[Round, ...]:
    rounds: list[Round] = []
    for number in sorted(turns_of.keys() | time_of.keys()):
        where = f"{sample_id} session_{number}"
        if not turns_of.get(number):
            issues.append(Issue(kind="session without turns", where=where, detail="left out"))
            continue
        if number not in time_of:
            raise DataError(f"{where} has no date; give it session_{number}_date_time")
        turns = [_turn(turn, sample_id, issues) for turn in turns_of[number]]
        rounds.extend(
            Round(
                id=pair[0].source_id,
                position=position,
                session=f"session_{number}",
                time=time_of[number],
                turns=pair,
            )
            for position, pair in enumerate(pair_turns(turns), start=len(rounds))
        )
    return tuple(rounds)


def _turn(turn: _Turn, sample_id: str, issues: list[Issue]) -> Turn:
    images: tuple[Image, ...] = ()
    if turn.img_url or turn.blip_caption:
        images = (Image(id=f"{turn.dia_id}:IMG", caption=turn.blip_caption or ""),)
    if turn.blip_caption and not turn.img_url:
        where = f"{sample_id} {turn.dia_id}"
        issues.append(Issue(kind="caption without address", where=where, detail="caption kept"))
    return Turn(source_id=turn.dia_id, speaker=turn.speaker, text=turn.text, images=images)


def _time(text: str, where: str) -> str:
    # "1:56 pm on 8 May, 2023" or "8 May, 2023"; the dialogues know no time zone.
    clock, _, date = text.rpartition(" on ")
    try:
        day = datetime.strptime(date.strip(), "%d %B, %Y").date()  # noqa: DTZ007
        if not clock:
            return day.isoformat()
        at = datetime.strptime(clock.strip(), "%I:%M %p").time()  # noqa: DTZ007
    except ValueError as error:
        raise DataError(
            f"{where}: the date {text!r} is not like '1:56 pm on 8 May, 2023' or '8 May, 2023'"
        ) from error
    return f"{day.isoformat()}T{at.isoformat('minutes')}"


def _questions(sample: _Sample, dialogue: Dialogue, issues: list[Issue]) -> list[Question]:
    known = {turn.source_id for round_ in dialogue.rounds for turn in round_.turns}
    questions = []
    for index, raw in enumerate(sample.qa):
        where = f"{sample.sample_id}#{index}"
        if raw.category not in CATEGORIES:
            raise DataError(f"{where}: category {raw.category} is not one of 1 to 5")
        questions.append(
            Question(
                id=where,
                dialogue_id=sample.sample_id,
                query=Query(text=raw.question),
                reference=_reference(raw, where, issues),
                category=CATEGORIES[raw.category],
                evidence=_evidence(raw.evidence, known, where, issues),
            )
        )
    return questions


def _reference(raw: _Question, where: str, issues: list[Issue]) -> str:
    if raw.answer is None:
        detail = f"{CATEGORIES[raw.category]}: reference left empty"
        issues.append(Issue(kind="answer missing", where=where, detail=detail))
        return ""
    if not isinstance(raw.answer, str):
        issues.append(Issue(kind="answer is a number", where=where, detail=str(raw.answer)))
    return str(raw.answer)


def _evidence(raw: list[str], known: set[str], where: str, issues: list[Issue]) -> frozenset[str]:
    kept: set[str] = set()
    if not raw:
        issues.append(Issue(kind="evidence empty", where=where, detail="no turn is named"))
    for entry in raw:
        ids = [f"D{int(session)}:{int(turn)}" for session, turn in _TURN_ID.findall(entry)]
        if not ids:
            issues.append(Issue(kind="evidence unreadable", where=where, detail=repr(entry)))
        elif ids != [entry]:
            detail = f"{entry!r} read as {', '.join(ids)}"
            issues.append(Issue(kind="evidence misspelt", where=where, detail=detail))
        for id_ in ids:
            if id_ not in known:
                issues.append(Issue(kind="evidence not in dialogue", where=where, detail=id_))
            elif id_ in kept:
                issues.append(Issue(kind="evidence repeated", where=where, detail=id_))
            else:
                kept.add(id_)
    return frozenset(kept)
