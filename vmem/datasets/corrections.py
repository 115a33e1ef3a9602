"""Corrected gold answers laid over a benchmark, so that scores by both can be shown.

One line of JSON is one correction::

    {"question_id": "conv-26#12", "reference": "two weeks before 9 June", "why": "D9:1 says so"}
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints, TypeAdapter

from vmem.datasets.parsing import parse_json, read_text
from vmem.errors import DataError
from vmem.types import Benchmark

SHOWN = 5
"""Unknown ids that an error names."""

_Filled = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class Correction(BaseModel):
    """A line of an overlay.

    Attributes:
        question_id: The question.
        reference: The answer that is right.
        why: What shows it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    question_id: _Filled
    reference: _Filled
    why: _Filled


_LINE = TypeAdapter(Correction)


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectedGold:
    """A benchmark by its own references and by corrected ones.

    Attributes:
        original: As its files have it.
        corrected: The same questions, some with another reference.
        corrections: The corrections by question id.
    """

    original: Benchmark
    corrected: Benchmark
    corrections: Mapping[str, Correction]


def read_overlay(path: Path, benchmark: Benchmark) -> CorrectedGold:
    """Lay a file of corrections over a benchmark.

    Args:
        path: The file, one correction a line.
        benchmark: The benchmark; it is not changed.

    Raises:
        DataError: The file is missing or holds no correction, a line is none, a question is
            corrected twice, is not in the benchmark, or has that reference already.
    """
    corrections: dict[str, Correction] = {}
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path} line {number}"
        correction = parse_json(_LINE, line, where)
        if correction.question_id in corrections:
            raise DataError(f"{where}: {correction.question_id} is corrected twice; keep one line")
        corrections[correction.question_id] = correction
    if not corrections:
        raise DataError(f"{path} holds no correction")
    known = {question.id: question.reference for question in benchmark.questions}
    if unknown := [id_ for id_ in corrections if id_ not in known]:
        shown = ", ".join(unknown[:SHOWN]) + (", ..." if len(unknown) > SHOWN else "")
        raise DataError(
            f"{path}: {len(unknown):,} of {len(corrections):,} corrections are of questions that"
            f" {benchmark.name} does not have: {shown}"
        )
    if same := [id_ for id_, each in corrections.items() if each.reference == known[id_].strip()]:
        raise DataError(
            f"{path}: {same[0]} has the reference {known[same[0]]!r} already; leave its line out"
        )
    questions = tuple(
        replace(question, reference=corrections[question.id].reference)
        if question.id in corrections
        else question
        for question in benchmark.questions
    )
    return CorrectedGold(
        original=benchmark,
        corrected=replace(benchmark, questions=questions),
        corrections=corrections,
    )
