"""One cell's lines as scores by question, with everything that was not answered or judged."""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from jobs.evaluation.records import Cell, Judgement, Record
from jobs.evaluation.run_folder import RunFolder
from vmem.datasets import EXCLUDED
from vmem.metrics.judge import is_unanswered
from vmem.metrics.lexical import lexical_scores
from vmem.prompts.judge import JudgeKind

CORRECTED = "corrected"

OF_BUILDS = (
    "images_without_pixels", "truncated_texts", "steps_failed", "steps_truncated", "steps_skipped",
)  # fmt: skip
"""Of what builds count, that which a score must tell of; steps are those of a language model."""

_IMAGE = re.compile(r"image \S+ has no file")


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedAnswers:
    """One judge's judgements of a cell's answers.

    Attributes:
        judge: The judge's name.
        kind: What it was asked for.
        gold: `original`, or `corrected` where its references were.
        lines: Its judgements of all repetitions.
        finished: Whether their file is whole.
        corrected: Questions whose lines are by a corrected reference.
    """

    judge: str
    kind: JudgeKind
    gold: str
    lines: tuple[Judgement, ...]
    finished: bool
    corrected: frozenset[str] = frozenset()

    def scores(self) -> dict[str, float]:
        """The score of each question at its first judging."""
        return {
            line.question_id: line.score
            for line in self.lines
            if line.repetition == 0 and line.score is not None
        }

    def levels(self) -> dict[str, float]:
        """The level of each question as the judge gave it, at its first judging."""
        return {
            line.question_id: line.level
            for line in self.lines
            if line.repetition == 0 and line.level is not None
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CellScores:
    """One system on one benchmark with one backbone.

    Attributes:
        cell: Which.
        records: By question, without the categories that are not scored.
        finished: Whether all questions have a line.
        expected: Questions that the plan asks; None where the manifest does not say.
        judged: What judges made of the answers.
        lexical: F1, BLEU and exact match by question, as `f1`, `bleu` and `exact`.
        build_counts: What the builds counted, summed.
    """

    cell: Cell
    records: Mapping[str, Record]
    finished: bool
    expected: int | None
    judged: tuple[JudgedAnswers, ...]
    lexical: Mapping[str, Mapping[str, float]]
    build_counts: Mapping[str, int]

    @property
    def answers(self) -> bool:
        """Whether a language model was to answer; without one, only the evidence is scored."""
        done = [record for record in self.records.values() if record.error is None]
        return not done or any(record.answer or "answer" in record.cost for record in done)

    @property
    def ranks(self) -> bool:
        """Whether the system ranks rounds; a whole conversation as context has no ranking."""
        return any(record.ranked_rounds for record in self.records.values())

    def failed(self) -> list[Record]:
        """Questions that ended as an error."""
        return [record for record in self.records.values() if record.error is not None]

    def unanswered(self) -> list[Record]:
        """Questions whose answer is empty."""
        if not self.answers:
            return []
        return [r for r in self.records.values() if r.error is None and is_unanswered(r.answer)]

    def scored(self) -> dict[str, Record]:
        """Questions with an answer and a reference to hold it against."""
        return _scored(self.records)

    def lexical_against(self, corrections: Mapping[str, str]) -> dict[str, dict[str, float]]:
        """F1, BLEU and exact match by question, some of them by corrected references."""
        return _lexical(self.cell.benchmark, self.scored(), corrections)

    def evidence(self) -> dict[str, dict[str, float]]:
        """Evidence scores by name and question; empty for a system that ranks nothing."""
        found: dict[str, dict[str, float]] = {}
        for id_, record in self.records.items() if self.ranks else ():
            for name, value in (record.scores or {}).items():
                found.setdefault(name, {})[id_] = value
        return found

    def faults(
        self, judged: JudgedAnswers | None = None, *, answers: bool = True
    ) -> dict[str, int]:
        """What makes a score invalid, by name; empty where nothing does.

        Args:
            judged: The judge whose score it is.
            answers: Whether the score is one of answers, and not of the evidence alone.
        """
        skipped = max(0, (self.expected or 0) - len(self.records))
        counts = {"failed": len(self.failed()), "skipped": skipped}
        if answers:
            counts["unanswered"] = len(self.unanswered())
        if judged:
            counts["unjudged"] = len(self.scored().keys() - judged.scores().keys())
        counts["unfinished"] = int(
            not self.finished or (judged is not None and not judged.finished)
        )
        return {name: count for name, count in counts.items() if count}

    def warnings(self) -> dict[str, Any]:
        """What does not make a score invalid, but must be known to read it."""
        records = self.records.values()
        return {
            "anchors_fell_back": sum(bool(record.anchor_failures) for record in records),
            "contexts_truncated": sum(bool(record.dropped_rounds) for record in records),
            "rounds_dropped": sum(len(record.dropped_rounds) for record in records),
            "query_images_missing": sum(
                record.image is not None and record.image_uri is None for record in records
            ),
            "without_reference": sum(not record.reference.strip() for record in records),
            **{name: self.build_counts.get(name, 0) for name in OF_BUILDS},
            "notes": counted(
                _IMAGE.sub("the image has no file", n) for r in records for n in r.notes
            ),
        }


def counted(names: Any) -> dict[str, int]:  # noqa: ANN401
    """How often each name occurs, by name."""
    return dict(sorted(Counter(names).items()))


def read_cell(
    run: RunFolder,
    cell: Cell,
    judges: Sequence[str],
    expected: int | None,
    corrections: Collection[str] = (),
) -> CellScores | None:
    """A cell's lines; None where none was written.

    Args:
        run: The folder.
        cell: Which.
        judges: Names of those that may have judged it.
        expected: Questions that were to be asked; None is unknown.
        corrections: Questions that were to be judged by a corrected reference as well.

    Raises:
        DataError: A line cannot be read.
    """
    file = run.answers(cell)
    if not file.finished and not file.partial.is_file():
        return None
    records = {r.question_id: r for r in file.read() if r.category not in EXCLUDED}
    found = [
        judged
        for judge in judges
        for kind in get_args(JudgeKind)
        for judged in _judged(run, f"{cell}.{judge}.{kind}", judge, kind, corrections)
    ]
    return CellScores(
        cell=cell,
        records=records,
        finished=file.finished,
        expected=expected,
        judged=tuple(found),
        lexical=_lexical(cell.benchmark, _scored(records), {}),
        build_counts=sum((Counter(build.counts) for build in run.builds(cell).read()), Counter()),
    )


def _judged(
    run: RunFolder, name: str, judge: str, kind: JudgeKind, corrections: Collection[str]
) -> list[JudgedAnswers]:
    """A judge's judgements; those by corrected gold take the place of its others."""
    file = run.judgements(name)
    lines = file.read()
    if not lines:
        return []
    original = JudgedAnswers(
        judge=judge, kind=kind, gold="original", lines=tuple(lines), finished=file.finished
    )
    if not corrections:
        return [original]
    again = run.corrected(name)
    corrected = again.read()
    kept = [line for line in lines if line.question_id not in corrections]
    return [
        original,
        replace(
            original,
            gold=CORRECTED,
            lines=(*kept, *corrected),
            finished=file.finished and again.finished,
            corrected=frozenset(corrections),
        ),
    ]


def _scored(records: Mapping[str, Record]) -> dict[str, Record]:
    return {
        id_: record
        for id_, record in records.items()
        if record.error is None and not is_unanswered(record.answer) and record.reference.strip()
    }


def _lexical(
    benchmark: str, records: Mapping[str, Record], corrections: Mapping[str, str]
) -> dict[str, dict[str, float]]:
    """F1, BLEU and exact match by question; corrections take the place of references."""
    found: dict[str, dict[str, float]] = {"f1": {}, "bleu": {}, "exact": {}}
    for id_, record in records.items():
        reference = corrections.get(id_, record.reference)
        scores = lexical_scores(record.answer, reference, benchmark, record.category)
        found["f1"][id_], found["bleu"][id_] = scores.f1, scores.bleu
        found["exact"][id_] = scores.exact
    return found
