"""A-Mem: notes that link to each other and rewrite their neighbours (arXiv 2502.12110).

Every turn becomes a note (in a chat with an assistant, every round): a model writes its keywords, a
sentence of context and tags. The five notes nearest to it are shown to the model, which links the
new one to some of them ("strengthen") and rewrites context and tags of its neighbours ("update").
A question is turned into keywords by the model; the nearest notes and those they link to are what
the answer is written from. Text only: pictures come in as their captions. After WujiangXu/A-mem
(commit 0c8039f), the authors' code for LoCoMo. That code never imports `re`, so that every note of
it stays without keywords, context and tags; with the import, and a model that replies the same, it
and this make the same notes and links and retrieve the same notes.

Hyperparameters are in `AMemOptions`, all of the released code. Temperature is the run's (0, as for
all systems here) and not 0.7, so that a run can be repeated.

Deliberate differences:

- One prompt answers all questions. The released code picks it by the gold category, and offers the
  gold answer of adversarial questions as one of two options; neither can happen here.
- Links lead to notes that the model was shown; the released code takes any number, which links to
  a note by chance or breaks the search. Such numbers are counted (`unknown_notes_named`).
- A reply that cannot be read is asked for again and counted; the released code goes on in silence
  with empty keywords. The note is stored with what there is.
- The first note has no neighbours, and no call is made about them.
- Empty tags or contexts never overwrite others, and rewrites name their note instead of relying on
  their order.
- Notes are encoded anew as they were at first; the released code then writes their text otherwise.
- A blank stands between a speaker and "says".
- A note is shown once, however many notes link to it.
- The answer prompt says what to reply where the notes hold no answer, and shows the ids of a note's
  pictures, since Mem-Gallery asks for both; released is only code for LoCoMo.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from vmem.baselines.amem_notes import Note, Notes, note_content, show_note
from vmem.baselines.amem_writing import AMemOptions, NoteWriter
from vmem.baselines.building import Building, needs_chat
from vmem.baselines.found import Found, Item, Search, put_before_model, shown_query_caption
from vmem.baselines.wording import Wording
from vmem.config import Settings
from vmem.memory import count_truncated
from vmem.oracle import refuse_oracle
from vmem.pipeline import Parts, Stopwatch, check_query
from vmem.ports import BuildCost, ChatModel, ChatReply, ChatRequest, MemorySystem, Oracle
from vmem.prompts import NOT_FOUND
from vmem.rounds import ROLES
from vmem.types import Answer, Dialogue, Query, Retrieval, Round, Signal, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class AMem:
    """A-Mem as a system.

    Attributes:
        name: The row's name.
        settings: Those of the answer call and of prompts are used.
        parts: Text encoder and backbone.
        options: Hyperparameters.
    """

    name: str
    settings: Settings
    parts: Parts
    options: AMemOptions = field(default_factory=AMemOptions)

    async def build(self, dialogue: Dialogue) -> MemorySystem:
        """Make a note of every turn; killed and built again, it goes on where it was.

        Raises:
            ConfigError: No language model is configured, or a prompt cannot be used.
            ModelError: The server does not answer, or rejects the first call.
            BudgetError, StoreError: Nothing more may be spent, or a reply cannot be kept.
        """
        building = Building(needs_chat(self.name, self.parts), dialogue.id)
        writer = NoteWriter(self.settings, self.options)
        notes = Notes(encoder=self.parts.text_encoder, reencode_every=self.options.reencode_every)
        for round_ in dialogue.rounds:
            for number, turns in enumerate(self._parts_of(round_)):
                with building.step(f"{round_.id}/{number}") as step:
                    content = " ".join(text for turn in turns if (text := note_content(turn)))
                    if not content:
                        step.skipped()
                        continue
                    note = Note(
                        position=round_.position,
                        time=round_.time,
                        content=content,
                        pictures=tuple(image.id for turn in turns for image in turn.images),
                    )
                    await writer.take_in(note, notes, step)
        return AMemMemory(
            name=self.name,
            settings=self.settings,
            parts=self.parts,
            chat=building.chat,
            options=self.options,
            rounds=dialogue.rounds,
            notes=notes,
            cost=building.cost(self._counts(notes)),
        )

    def _parts_of(self, round_: Round) -> list[tuple[Turn, ...]]:
        """The turns that make one note each time."""
        is_chat = all(turn.speaker in ROLES for turn in round_.turns)
        if self.options.note_of == "round" or (self.options.note_of == "auto" and is_chat):
            return [round_.turns]
        return [(turn,) for turn in round_.turns]

    def _counts(self, notes: Notes) -> dict[str, int]:
        texts = [note.encoded_text for note in notes.notes]
        return {
            "notes": len(notes.notes),
            "links": sum(len(note.links) for note in notes.notes),
            "evolutions": notes.evolutions,
            "unknown_notes_named": notes.unknown,
            "truncated_texts": count_truncated(self.parts.text_encoder, texts),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class AMemMemory:
    """A dialogue in A-Mem.

    Attributes:
        name: The row's name.
        settings: Those of the answer call.
        parts: The backbone.
        chat: The same, known to be there.
        options: Notes a question.
        rounds: The dialogue's rounds.
        notes: The notes.
        cost: What building it took.
    """

    name: str
    settings: Settings
    parts: Parts
    chat: ChatModel
    options: AMemOptions
    rounds: Sequence[Round]
    notes: Notes
    cost: BuildCost

    async def answer(self, query: Query, oracle: Oracle | None = None) -> Answer:
        """Search with keywords, follow links, answer.

        Raises:
            ConfigError: An oracle is given, or a prompt cannot be used.
            QueryError: The query is empty or too long.
            ModelError: A call failed.
        """
        refuse_oracle(self.name, oracle)
        retrieval = await self.search(query)
        started = time.perf_counter()
        wording = Wording(self.settings.prompts, "amem_answer", "notes", "question", "not_found")
        prompt = wording.fill(
            notes=retrieval.context.text, question=query.text, not_found=NOT_FOUND
        )
        reply = await self._ask("answer", prompt, self.settings.answer.max_tokens)
        return Answer(
            text=reply.text.strip(),
            retrieval=retrieval,
            prompt=prompt,
            usage=(*retrieval.anchors.usage, reply.usage),
            seconds={**retrieval.seconds, "answer": time.perf_counter() - started},
        )

    async def search(self, query: Query) -> Retrieval:
        """The notes nearest to the question's keywords, each followed by those it links to.

        Raises:
            QueryError: The query is empty or too long.
            ModelError: The call for keywords failed.
        """
        check_query(query)
        watch = Stopwatch()
        caption, _ = shown_query_caption(query, self.settings)
        question = f"{query.text} [Image: {caption}]" if caption else query.text
        with watch.time("anchors"):
            wording = Wording(self.settings.prompts, "amem_query", "question")
            reply = await self._ask(
                "query_keywords", wording.fill(question=question), self.options.reply_tokens
            )
        with watch.time("search"):
            hits = await asyncio.to_thread(
                self.notes.nearest, reply.text.strip(), self.options.notes
            )
        found = tuple(
            Found(item=self._item(number), score=score)
            for number, score in self.notes.with_links(hits)
        )
        search = Search(found=found, usage=(reply.usage,), seconds=watch.seconds)
        retrieval = put_before_model(query, search, self.parts, self.settings)
        by_signal = {Signal.TEXT_DENSE: reply.text.strip()}
        return replace(retrieval, anchors=replace(retrieval.anchors, by_signal=by_signal))

    async def _ask(self, role: str, prompt: str, max_tokens: int) -> ChatReply:
        return await self.chat.complete(
            ChatRequest(
                role=role,
                prompt=prompt,
                max_tokens=max_tokens,
                temperature=self.settings.answer.temperature,
            )
        )

    def _item(self, number: int) -> Item:
        note = self.notes.notes[number]
        named = f" | pictures: {', '.join(note.pictures)}" if note.pictures else ""
        return Item(
            id=str(number),
            text=show_note(str(number), note) + named,
            positions=(note.position,),
            session=self.rounds[note.position].session,
            time=note.time,
        )
