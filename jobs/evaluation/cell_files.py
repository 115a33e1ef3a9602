"""The files that the answer stage fills for one cell, and what is still to be asked for them."""

from collections.abc import Iterator

from jobs.evaluation.records import Build, Cell, Record, Timing
from jobs.evaluation.run_folder import RunFolder
from jobs.evaluation.stage_work import Missing
from vmem.types import Benchmark, Dialogue, Question


class CellFiles:
    """Answers, timings and builds of a cell; they are finished once no line is missing.

    Args:
        run: The folder.
        cell: Whose files.
        benchmark: What it is asked.

    Raises:
        DataError: A line cannot be read.
    """

    def __init__(self, run: RunFolder, cell: Cell, benchmark: Benchmark) -> None:
        self._answers, self._timings = run.answers(cell), run.timings(cell)
        self._builds = run.builds(cell)
        self._benchmark = benchmark
        answered = {record.question_id for record in self._answers.read() if record.error is None}
        timed = {timing.question_id for timing in self._timings.read()}
        built = {build.dialogue_id for build in self._builds.read()}
        self._ids = [question.id for question in benchmark.questions]
        self._dialogues = [dialogue.id for dialogue in benchmark.dialogues]
        lacking = {*self._ids, *self._dialogues} - (answered & timed) - built
        self._missing = Missing(lacking, self._finish)

    def to_ask(self) -> Iterator[tuple[Dialogue, list[Question]]]:
        """Every dialogue with the questions that have no answer yet; those with none are done."""
        for dialogue in self._benchmark.dialogues:
            asked = [q for q in self._benchmark.questions if q.dialogue_id == dialogue.id]
            todo = [question for question in asked if question.id in self._missing]
            if todo or dialogue.id in self._missing:
                yield dialogue, todo

    async def add_build(self, build: Build) -> None:
        """Write down what a memory took, unless that was done when it was built before.

        Raises:
            StoreError: A file cannot be written.
        """
        if build.dialogue_id in self._missing:
            self._builds.append(build)
            await self._missing.came(build.dialogue_id)

    async def add(self, record: Record, timing: Timing) -> None:
        """Write down an answer; who is killed between both lines has the question asked again.

        Raises:
            StoreError: A file cannot be written.
        """
        self._timings.append(timing)
        self._answers.append(record)
        await self._missing.came(record.question_id)

    async def finish_if_whole(self) -> None:
        """Finish files that lack nothing but that: an earlier stage was killed just before.

        Raises:
            DataError, StoreError: They cannot be finished.
        """
        await self._missing.came()

    def _finish(self) -> None:
        self._timings.finish(self._ids)
        self._builds.finish(self._dialogues)
        self._answers.finish(self._ids)
