"""Memories that a language model builds, step by step, so that a killed build goes on.

A step is what one turn, or one window of turns, adds to a memory. Builds are resumable because
they are deterministic: the memory is held in process and made from nothing by the same steps in
the same order, and every reply is kept by the run's metered model under a key of its request. Run
again, the steps that were done are replayed from those replies and pay nothing, the next step is
the first to ask the server, and no turn can be entered twice. There is no second store that could
disagree with the replies. For this to hold, whatever a build asks or stores may depend only on the
dialogue, the settings and earlier replies: no clock, no chance, no order of a set, and no two
steps at once where the later one reads what the earlier stored.

How a system uses it::

    async def build(self, dialogue):
        building = Building(needs_chat(self.name, self.parts), dialogue.id)
        for round_ in dialogue.rounds:
            for number, turn in enumerate(round_.turns):
                with building.step(f"{round_.id}/{number}") as step:
                    note = await step.fill(request, NoteForm)   # JSON; tried twice
                    text = await step.write(request)            # words; None as below
                    if note is None:                            # counted as failed already
                        note = ...                              # the system's own fallback
                    store(note)
                    if cut: step.truncated()                    # something of the turn was cut
                    if left_out: step.skipped()                 # the turn is not in the memory
        return Memory(..., cost=building.cost({"notes": len(notes)}))

What a step may come to: an unreadable or empty reply, or a call that the server rejects, makes it
failed and the build goes on with the system's fallback; a server that does not answer, a spent
budget or a broken store ends the build with the error, and nothing is lost. `cost` counts `steps`,
`steps_failed`, `steps_truncated` and `steps_skipped`, and each of the last three marks a score.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from vmem.baselines.forms import F, fill_form
from vmem.errors import ConfigError, ModelError, ModelFormatError, ModelUnavailableError, StoreError
from vmem.pipeline import Parts, Stopwatch
from vmem.ports import BuildCost, ChatModel, ChatRequest
from vmem.types import Usage


def needs_chat(name: str, parts: Parts) -> ChatModel:
    """The backbone of a system that cannot do without.

    Raises:
        ConfigError: None is configured.
    """
    if parts.chat is None:
        raise ConfigError(f"system {name!r} needs a language model: set llm.provider")
    return parts.chat


@dataclass(slots=True)
class Step:
    """One step under way; made by `Building.step`.

    Attributes:
        building: The build it belongs to.
        id: What it takes in, such as a turn's source id.
        faults: Of `failed`, `truncated` and `skipped`, what it came to.
    """

    building: "Building"
    id: str
    faults: set[str] = field(default_factory=set)

    async def fill(self, request: ChatRequest, form: type[F]) -> F | None:
        """A form filled in, or None where the model could not: the step has failed then.

        One that holds what a cut reply said in full counts as truncated.

        Raises:
            ModelUnavailableError: The server does not answer.
            ModelError: It rejects the call, and no call of this build was answered before.
            BudgetError, StoreError: Nothing more may be spent, or a reply cannot be kept.
        """
        try:
            filled = await fill_form(self.building.chat, request, form)
        except ModelError as error:
            self._rejected(error)
            return None
        self.building.usage.extend(filled.usage)
        if filled.value is None:
            self.faults.add("failed")
        if filled.cut:
            self.faults.add("truncated")
        return filled.value

    async def write(self, request: ChatRequest) -> str | None:
        """A reply in words, or None where it is empty: the step has failed then.

        A reply that ended at its limit of tokens counts as truncated.

        Raises:
            ModelUnavailableError, ModelError, BudgetError, StoreError: As `fill`.
        """
        try:
            reply = await self.building.chat.complete(request)
        except ModelError as error:
            self._rejected(error)
            return None
        self.building.usage.append(reply.usage)
        if reply.finish_reason == "length":
            self.faults.add("truncated")
        if not reply.text.strip():
            self.failed()
        return reply.text.strip() or None

    def truncated(self) -> None:
        """Something of what the step takes in was cut off."""
        self.faults.add("truncated")

    def skipped(self) -> None:
        """What the step takes in is not in the memory."""
        self.faults.add("skipped")

    def failed(self) -> None:
        """The model's reply was of no use, for a reason that its form does not show."""
        self.faults.add("failed")

    def _rejected(self, error: ModelError) -> None:
        # A wrong key or model would fail every step; a single prompt may be refused by a filter.
        is_settled = bool(self.building.usage) or isinstance(error, ModelFormatError)
        if isinstance(error, ModelUnavailableError) or not is_settled:
            raise error
        self.failed()


class Building:
    """One dialogue's memory while a model builds it.

    Args:
        chat: The backbone; in a run it keeps its replies, and that makes the build resumable.
        dialogue_id: Named in errors.

    Attributes:
        usage: The calls made so far that gave a reply.
        watch: Seconds by stage; time what is not a call with `with building.watch.time("encode")`.
    """

    def __init__(self, chat: ChatModel, dialogue_id: str) -> None:
        self.chat = chat
        self.usage: list[Usage] = []
        self.watch = Stopwatch()
        self._dialogue_id = dialogue_id
        self._steps: dict[str, frozenset[str]] = {}

    @contextmanager
    def step(self, id_: str) -> Iterator[Step]:
        """Take in one turn or window; it counts once the with-block ends well.

        Args:
            id_: Its name, unique in the build.

        Raises:
            StoreError: It was taken in before.
        """
        if id_ in self._steps:
            raise StoreError(f"dialogue {self._dialogue_id}: step {id_} was taken in before")
        step = Step(self, id_)
        with self.watch.time("steps"):
            yield step
        self._steps[id_] = frozenset(step.faults)

    def cost(self, counts: Mapping[str, int]) -> BuildCost:
        """What the build took.

        Args:
            counts: What the memory holds, by the system's own names.
        """
        faults = Counter(fault for each in self._steps.values() for fault in each)
        marks = {f"steps_{name}": faults[name] for name in ("failed", "truncated", "skipped")}
        return BuildCost(
            usage=tuple(self.usage),
            seconds=self.watch.seconds,
            counts={**counts, "steps": len(self._steps), **marks},
        )
