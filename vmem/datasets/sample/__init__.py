"""The sample conversation that comes with vmem: a café's first weeks, in text, pictures and voice.

`rounds.jsonl` is read by `vmem.datasets.jsonl`; a line of `questions.jsonl` is a `SampleQuestion`.
`LICENSES.md` says where each picture comes from, `draw.py` makes them.
"""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter

from vmem.datasets.jsonl import read_rounds
from vmem.datasets.parsing import parse_json, read_text
from vmem.errors import DataError
from vmem.images import locate
from vmem.types import Benchmark, Case, Image, Query, Question

SAMPLE = Path(__file__).parent


class SampleQuestion(BaseModel):
    """A line of `questions.jsonl`.

    Attributes:
        id: `sample#<index of its line, from 0>`.
        question: What is asked.
        image: The picture attached, as a path from the sample's folder.
        answer: The gold answer.
        category: One of Mem-Gallery's nine.
        evidence: Ids of the rounds that answer it; empty where none does.
        case: The case that its writer meant; for scoring routes, never for answering.
        demo: One of the four, one for each case, that a demonstration asks.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    question: str
    image: str | None = None
    answer: str
    category: str
    evidence: tuple[str, ...]
    case: Case
    demo: bool = False

    @property
    def query(self) -> Query:
        """The question as a system is asked it.

        Raises:
            ImageError: The picture is missing.
        """
        if self.image is None:
            return Query(text=self.question)
        uri = locate(self.image, SAMPLE)
        return Query(text=self.question, image=Image(id=Path(self.image).stem, uri=uri))


_LINE = TypeAdapter(SampleQuestion)


def read_questions() -> tuple[SampleQuestion, ...]:
    """All questions, with what a benchmark's question has no place for.

    Raises:
        DataError: The file is missing or a line is not of its form.
    """
    path = SAMPLE / "questions.jsonl"
    lines = enumerate(read_text(path).split("\n"), start=1)
    return tuple(
        parse_json(_LINE, line, f"{path} line {number}") for number, line in lines if line.strip()
    )


def read_sample() -> Benchmark:
    """The conversation and its questions, as any other benchmark.

    Raises:
        DataError: A file is missing or a line is not of its form.
        ImageError: A question's picture is missing.
    """
    dialogues = read_rounds(SAMPLE / "rounds.jsonl", SAMPLE)
    if len(dialogues) != 1:
        raise DataError(f"{SAMPLE / 'rounds.jsonl'} must hold one conversation; reinstall vmem")
    questions = tuple(
        Question(
            id=raw.id,
            dialogue_id=dialogues[0].id,
            query=raw.query,
            reference=raw.answer,
            category=raw.category,
            evidence=frozenset(raw.evidence),
        )
        for raw in read_questions()
    )
    return Benchmark(name="sample", dialogues=dialogues, questions=questions, issues=())
