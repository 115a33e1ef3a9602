"""Single questions of a run: how each ended, who judged it, and which of them are wanted."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from jobs.evaluation.records import Cell, Judgement, Record
from jobs.statistics.error_analysis import WRONG_BELOW


class State(StrEnum):
    """How a question ended.

    By its main judge, which is the plan's first, asked as the paper's is; where nothing was judged,
    by whether the context held all of its evidence. Less than half the credit is wrong, less than
    all of it partly right.
    """

    FAILED = "failed"
    EMPTY = "empty answer"
    UNJUDGED = "not judged"
    WRONG = "wrong"
    MISSED = "evidence missed"
    PARTLY = "partly right"
    RIGHT = "right"
    FOUND = "evidence found"
    UNSCORED = "not scored"


FAILURES = frozenset({State.FAILED, State.EMPTY, State.UNJUDGED})
"""What makes a score invalid."""
WRONG = frozenset({State.WRONG, State.MISSED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One judgement and who gave it.

    Attributes:
        judge: The judge's name.
        kind: What it was asked for.
        gold: `original` or `corrected`.
        line: What it said.
    """

    judge: str
    kind: str
    gold: str
    line: Judgement

    @property
    def wrong(self) -> bool | None:
        """Whether it gave less than half the credit; None where it gave no score."""
        return None if self.line.score is None else self.line.score < WRONG_BELOW


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenQuestion:
    """One question as one system answered it.

    Attributes:
        cell: Benchmark, system and backbone.
        record: The question and its answer.
        verdicts: All judgements, the main judge's first.
        seconds: By step, on the machine that answered; empty where nothing was timed.
        state: How it ended.
        disagreements: Who takes for wrong what others take for right, a sentence each.
        corrected: The corrected gold answer, where the run has one.
    """

    cell: Cell
    record: Record
    verdicts: tuple[Verdict, ...]
    seconds: Mapping[str, float]
    state: State
    disagreements: tuple[str, ...] = ()
    corrected: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which questions; None is all, and of the three flags those that are set are added up.

    Attributes:
        cell: `BENCHMARK.SYSTEM.BACKBONE`.
        benchmark: A benchmark's name.
        system: A system's name.
        backbone: A backbone's name.
        category: A category of the benchmark's.
        question: A question's id.
        failed: Questions that failed, were answered with nothing, or could not be judged.
        wrong: Questions answered wrongly or, without a judge, whose evidence was missed.
        disagree: Questions over which judges, kinds of judge or systems disagree.
    """

    cell: str | None = None
    benchmark: str | None = None
    system: str | None = None
    backbone: str | None = None
    category: str | None = None
    question: str | None = None
    failed: bool = False
    wrong: bool = False
    disagree: bool = False

    def has_cell(self, cell: Cell) -> bool:
        """Whether questions of a cell are wanted."""
        return (
            self.cell in (None, str(cell))
            and self.benchmark in (None, cell.benchmark)
            and self.system in (None, cell.system)
            and self.backbone in (None, cell.backbone)
        )

    def has(self, seen: SeenQuestion) -> bool:
        """Whether a question of a wanted cell is wanted."""
        record = seen.record
        if self.category not in (None, record.category):
            return False
        if self.question not in (None, record.question_id):
            return False
        ways = (
            (self.failed, seen.state in FAILURES),
            (self.wrong, seen.state in WRONG),
            (self.disagree, bool(seen.disagreements)),
        )
        return any(asked and true for asked, true in ways) or not any(asked for asked, _ in ways)
