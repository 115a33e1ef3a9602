"""What a benchmark holds and what is odd about it, in numbers (Table 6)."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from vmem.types import Benchmark


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """Counts over all dialogues and questions.

    Attributes:
        name: The benchmark.
        dialogues: Conversations.
        sessions: Sessions that hold a round.
        rounds: Rounds.
        turns: Turns within them.
        images: Images shared in rounds.
        images_missing: Those of them without a file.
        questions: Questions.
        query_images: Questions that show an image.
        query_images_missing: Those of them without a file.
        without_evidence: Questions that name no evidence in their dialogue.
        by_category: Questions of each category.
        issues: Oddities of each kind.
    """

    name: str
    dialogues: int
    sessions: int
    rounds: int
    turns: int
    images: int
    images_missing: int
    questions: int
    query_images: int
    query_images_missing: int
    without_evidence: int
    by_category: Mapping[str, int]
    issues: Mapping[str, int]

    def as_dict(self) -> dict[str, Any]:
        """The counts as plain JSON values."""
        return asdict(self)


def check(benchmark: Benchmark) -> CheckReport:
    """Count what a benchmark holds."""
    rounds = [round_ for dialogue in benchmark.dialogues for round_ in dialogue.rounds]
    images = [image for round_ in rounds for image in round_.images]
    asked = [question.query.image for question in benchmark.questions if question.query.image]
    categories = Counter(question.category for question in benchmark.questions)
    kinds = Counter(issue.kind for issue in benchmark.issues)
    return CheckReport(
        name=benchmark.name,
        dialogues=len(benchmark.dialogues),
        sessions=sum(
            len({round_.session for round_ in dialogue.rounds}) for dialogue in benchmark.dialogues
        ),
        rounds=len(rounds),
        turns=sum(len(round_.turns) for round_ in rounds),
        images=len(images),
        images_missing=sum(image.uri is None for image in images),
        questions=len(benchmark.questions),
        query_images=len(asked),
        query_images_missing=sum(image.uri is None for image in asked),
        without_evidence=sum(not question.evidence for question in benchmark.questions),
        by_category=dict(sorted(categories.items())),
        issues=dict(sorted(kinds.items())),
    )
