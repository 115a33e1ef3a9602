"""A benchmark that is large enough to measure with, made of the sample that comes with vmem."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from vmem.datasets.locomo import FILE
from vmem.datasets.sample import read_sample
from vmem.types import Dialogue, Question, Round

COPIES = 12


def write_locomo(folder: Path) -> Path:
    """Copies of the sample in the form of LoCoMo; every text has its copy's number in it.

    Returns:
        The file.
    """
    sample = read_sample()
    dialogue = sample.dialogues[0]
    copies = [_copy(dialogue, sample.questions, number) for number in range(COPIES)]
    path = folder / FILE
    path.write_text(json.dumps(copies), encoding="utf-8")
    return path


def _copy(dialogue: Dialogue, questions: tuple[Question, ...], number: int) -> dict[str, Any]:
    sessions: dict[str, list[Round]] = {}
    for round_ in dialogue.rounds:
        sessions.setdefault(round_.session, []).append(round_)
    conversation: dict[str, Any] = {}
    for order, rounds in enumerate(sessions.values(), start=1):
        day = datetime.fromisoformat(rounds[0].time)
        conversation[f"session_{order}_date_time"] = (
            f"{day:%I:%M} {day:%p} on {day.day} {day:%B}, {day.year}".lower()
        )
        turns = [turn for round_ in rounds for turn in round_.turns if turn.text]
        conversation[f"session_{order}"] = [
            {
                "speaker": turn.speaker,
                "dia_id": f"D{order}:{place}",
                "text": f"{turn.text} {number}",
            }
            for place, turn in enumerate(turns, start=1)
        ]
    return {
        "sample_id": f"copy-{number}",
        "conversation": conversation,
        "qa": [
            {
                "question": f"{question.query.text} ({number})",
                "answer": question.reference or "nothing",
                "category": 1 + place % 4,
                "evidence": ["D1:1"],
            }
            for place, question in enumerate(questions)
        ],
    }
