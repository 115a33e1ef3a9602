"""M2A: two agents over two levels, the messages and what is remembered of them (arXiv 2602.07624).

Every turn goes into a log that never changes. A chat agent reads it and decides what is worth
remembering; a memory agent searches what is remembered, reads messages, and adds or deletes
memories, each with a text, perhaps a picture, and the numbers of the messages that it rests on.
Memories are found by text vectors, BM25 and pictures, fused by rank. A question starts a fresh chat
agent, which has to ask the memory agent and then answers in one sentence. After Little-Fridge/M2A,
the authors' code.

Hyperparameters are in `M2AOptions`, all of the released code, temperature 0 among them. The row
`m2a` has the released code's two search paths, `m2a-three-path` the paper's third, text among
pictures, which needs an image encoder with a text tower.

Deliberate differences:

- A call is native where the server has tools, else JSON by a schema or in words; so every model can
  make it. Schemas offer each tool with what it takes, and only pictures that the agent was shown. A
  reply that is no call is asked for again once, then counted; a question whose reply stays
  unreadable has failed. An answer that ends at its limit of tokens is one, as every system's; half
  a call is none.
- An agent that is refused its last call says what it has found; the released memory agent then
  returns nothing at all, and the chat agent is told so. While messages are taken in, the chat
  agent's last reply, which nobody reads, is not asked for.
- Times are the dataset's own; the released code has a model rewrite the time of each message.
- Empty replies are not logged as messages, so that messages are numbered without gaps.
- Memories may be of any length and pictures anywhere; the released code's store refuses a text over
  1,000 characters and a path over 100.
- Days end at midnight in a fetch by day; the released code's last day ends as it begins.
- Where nobody looks at pictures (`answer.sees_pixels`, and a backbone that sees), their captions
  stand beside their tokens; their ids always do, since Mem-Gallery asks for them.
- All pictures of a message are shown; the released code takes the first.
- A search's results cannot be limited further by the agent.
- Search is exact, in process, and BM25 is the library's; the released code has Milvus Lite.
- No time limit of 20 s cuts calls short: the run's own does.
- What was found of a question is told to its record: the rounds that the agents looked at.
"""

from collections import Counter
from dataclasses import dataclass, field

from vmem.baselines.building import Building, Step, needs_chat
from vmem.baselines.m2a_answering import M2AMemory
from vmem.baselines.m2a_chat_agent import ChatAgent
from vmem.baselines.m2a_log import Message, MessageLog, Pictures
from vmem.baselines.m2a_loop import Work
from vmem.baselines.m2a_memory import MemoryStore
from vmem.baselines.m2a_memory_agent import Levels
from vmem.baselines.m2a_options import M2AOptions
from vmem.config import Settings
from vmem.errors import ConfigError
from vmem.pipeline import Parts
from vmem.ports import MemorySystem, TextTower
from vmem.types import Dialogue, Round, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class M2A:
    """M2A as a system.

    Attributes:
        name: The row's name.
        settings: Those of the answer call, of prompts and of the model's window are used.
        parts: Encoders and backbone.
        options: Hyperparameters.
    """

    name: str
    settings: Settings
    parts: Parts
    options: M2AOptions = field(default_factory=M2AOptions)

    async def build(self, dialogue: Dialogue) -> MemorySystem:
        """Have every turn read; killed and built again, it goes on where it was.

        Raises:
            ConfigError: No language model is configured, a prompt cannot be used, or texts are to
                be searched among pictures and the encoder cannot.
            ImageError: A picture cannot be used.
            ModelError: The server does not answer, or rejects the first call.
            BudgetError, StoreError: Nothing more may be spent, or a reply cannot be kept.
        """
        building = Building(needs_chat(self.name, self.parts), dialogue.id)
        levels = self._levels()
        counts: Counter[str] = Counter()
        memory = M2AMemory(
            name=self.name,
            settings=self.settings,
            parts=self.parts,
            chat=building.chat,
            options=self.options,
            rounds=dialogue.rounds,
            levels=levels,
            speakers=_speakers(dialogue),
        )
        agent = memory.chat_agent(levels)
        for round_ in dialogue.rounds:
            for number, turn in enumerate(round_.turns):
                with building.step(f"{round_.id}/{number}") as step:
                    work = Work(ask=step.fill)
                    await _take_in(turn, round_, levels, agent, work, step)
                counts.update(work.counts)
        memory.cost = building.cost(
            {
                "messages": len(levels.log.messages),
                "memories": len(levels.memories.memories),
                "memories_made": levels.memories.made,
                "pictures_without_vector": levels.memories.without_pixels,
                "calls_refused": counts["calls_refused"],
                "tool_faults": counts["tool_faults"],
            }
        )
        return memory

    def _levels(self) -> Levels:
        if self.options.text_to_image and not isinstance(self.parts.image_encoder, TextTower):
            raise ConfigError(
                f"system {self.name!r} searches texts among pictures: it needs an image encoder"
                " with a text tower, such as siglip"
            )
        memories = MemoryStore(parts=self.parts, sizes=self.options.sizes)
        return Levels(log=MessageLog(), memories=memories, pictures=Pictures())


async def _take_in(
    turn: Turn, round_: Round, levels: Levels, agent: ChatAgent, work: Work, step: Step
) -> None:
    heard = f"[Audio: {turn.transcript.strip()}]" if turn.transcript.strip() else ""
    text = " ".join(part for part in (turn.text.strip(), heard) if part)
    if not text and not turn.images:
        step.skipped()
        return
    message = Message(
        number=len(levels.log.messages) + 1,
        position=round_.position,
        time=round_.time,
        speaker=turn.speaker,
        text=text,
        images=turn.images,
    )
    levels.log.messages.append(message)
    await agent.take_in(message, work)
    if work.counts["transcripts_cut"]:
        step.truncated()


def _speakers(dialogue: Dialogue) -> str:
    names = dict.fromkeys(turn.speaker for round_ in dialogue.rounds for turn in round_.turns)
    return " and ".join(names)
