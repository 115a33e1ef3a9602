"""MuRAG: one multimodal vector a round; the nearest rounds are returned with their pictures.

After MuRAG (Chen et al. 2022, EMNLP) as Mem-Gallery's paper (arXiv 2601.03515) runs it, where it
comes out best: each exchange is appended as it is and encoded whole, text and pictures together,
into one vector; the question and its picture are encoded alike; the nearest rounds by cosine go to
the answering model as text and raw pictures. Nothing is extracted, routed or rewritten.

Hyperparameters and their origin: `top_k` 10 and at most 20 pictures are those of Mem-Gallery's
MemEngine.

Deliberate differences:

- The vector. MemEngine has GME-Qwen2-VL, an encoder of text with pictures, of 2 to 7 billion
  parameters. Here the run's two encoders stand in for it: a round's vector is the normalised text
  vector beside the normalised mean of its pictures' vectors, each half of it being zero where there
  is nothing. Of two such vectors the dot product is taken, the sum of both halves' cosines: scaled
  to length 1, every round with a picture would lose to those without, whatever is asked. Text
  never meets pictures in it, which a multimodal encoder can do. Every search says so in a note.
- A picture without a file has no vector, and its caption joins the text instead (a question's only
  where `answer.query_caption` is `dataset`); MemEngine encodes a white square. Those of the
  conversation are counted.
- Captions of pictures that the model is shown are left out; a model that is shown none reads them.
- The answer prompt is vmem's own.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from pydantic import Field

from vmem.answer import answer_query
from vmem.baselines.building import needs_chat
from vmem.baselines.found import Found, Item, Search, put_before_model, shown_query_caption
from vmem.baselines.options import Options
from vmem.config import Settings
from vmem.encoders.vectors import unit_length
from vmem.errors import VectorError
from vmem.images import decode_image
from vmem.memory import count_truncated
from vmem.oracle import refuse_oracle
from vmem.pipeline import Parts, Stopwatch, check_query
from vmem.ports import BuildCost, MemorySystem, Oracle, Vectors
from vmem.rounds import show_round, turn_text
from vmem.types import Answer, Dialogue, Image, Query, Retrieval, Round

STANDS_IN = "text and image vectors side by side stand in for a multimodal encoder"


class MuRAGOptions(Options):
    """How much is returned.

    Attributes:
        top_k: Rounds.
        max_images: Pictures shown at most, the best rounds' first; the question's comes on top.
    """

    top_k: int = Field(default=10, ge=1)
    max_images: int = Field(default=20, ge=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MuRAG:
    """Rounds by one vector each.

    Attributes:
        name: The row's name.
        settings: Those of units and of the answer call are used.
        parts: Encoders, backbone and prompts.
        options: How much is returned.
    """

    name: str
    settings: Settings
    parts: Parts
    options: MuRAGOptions = field(default_factory=MuRAGOptions)

    async def build(self, dialogue: Dialogue) -> MemorySystem:
        """Encode every round; no model is called.

        Raises:
            ImageError: A picture cannot be used.
            VectorError: An encoder made a vector that is not finite or is zero.
        """
        return await asyncio.to_thread(self._build, dialogue)

    def _build(self, dialogue: Dialogue) -> "MuRAGMemory":
        watch = Stopwatch()
        texts = [_text(round_) for round_ in dialogue.rounds]
        images = [image for round_ in dialogue.rounds for image in round_.images]
        with watch.time("encode"):
            vectors_RD = _vectors(
                texts, [_with_file(round_.images) for round_ in dialogue.rounds], self.parts
            )
        cost = BuildCost(
            seconds=watch.seconds,
            counts={
                "rounds": len(dialogue.rounds),
                "truncated_texts": count_truncated(self.parts.text_encoder, texts),
                "images": len(images),
                "images_without_pixels": len(images) - len(_with_file(images)),
            },
        )
        return MuRAGMemory(
            name=self.name, system=self, rounds=dialogue.rounds, vectors_RD=vectors_RD, cost=cost
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MuRAGMemory:
    """A dialogue's rounds with their vectors.

    Attributes:
        name: The row's name.
        system: Settings, parts and options.
        rounds: All rounds (R), by position.
        vectors_RD: Their vectors, text and image halves side by side.
        cost: What building it took.
    """

    name: str
    system: MuRAG
    rounds: Sequence[Round]
    vectors_RD: Vectors
    cost: BuildCost

    async def search(self, query: Query) -> Retrieval:
        """The nearest rounds.

        Raises:
            QueryError: The query is empty or too long.
            ImageError: The query's picture cannot be used.
        """
        check_query(query)
        watch = Stopwatch()
        with watch.time("encode"):
            pictures = _with_file([query.image] if query.image else [])
            encoded = await asyncio.to_thread(
                _vectors,
                [_asked(query, self.system.settings)],
                [pictures],
                self.system.parts,
            )
        with watch.time("search"):
            score_R = self.vectors_RD @ encoded[0]
            best = np.lexsort((np.arange(len(score_R)), -score_R))[: self.system.options.top_k]
        search = Search(
            found=tuple(
                Found(item=self._item(self.rounds[p]), score=float(score_R[p])) for p in best
            ),
            notes=(STANDS_IN,),
            seconds=watch.seconds,
        )
        with watch.time("assemble"):
            return put_before_model(query, search, self.system.parts, self.system.settings)

    async def answer(self, query: Query, oracle: Oracle | None = None) -> Answer:
        """Answer from the nearest rounds, as text and pictures.

        Raises:
            ConfigError: An oracle is given, or no language model is configured.
            QueryError, ImageError: As `search`.
            ModelError: The call failed.
        """
        refuse_oracle(self.name, oracle)
        parts, settings = self.system.parts, self.system.settings
        chat = needs_chat(self.name, parts)
        retrieval = await self.search(query)
        images = [await asyncio.to_thread(parts.read_image, uri) for uri in self._seen(retrieval)]
        return await answer_query(retrieval, chat, parts.prompts, settings.answer, images)

    def _item(self, round_: Round) -> Item:
        shown = show_round(_without_captions(round_) if self._shows_pictures else round_)
        header = f"[{round_.time[:10]}, {round_.session}]"
        return Item(
            id=round_.id,
            text=f"{header}\n{shown}",
            positions=(round_.position,),
            session=round_.session,
            time=round_.time,
        )

    @property
    def _shows_pictures(self) -> bool:
        chat = self.system.parts.chat
        return bool(chat and chat.sees_images and self.system.settings.answer.sees_pixels)

    def _seen(self, retrieval: Retrieval) -> list[str]:
        """Where the pictures are that the model is shown: the question's, then those found."""
        if not self._shows_pictures:
            return []
        images = [image for p in retrieval.context.found for image in self.rounds[p].images]
        found = [image.uri for image in images if image.uri][: self.system.options.max_images]
        asked = retrieval.query.image
        return [asked.uri, *found] if asked and asked.uri else found


def _text(round_: Round) -> str:
    """A round's words; of pictures without a file also the captions."""
    turns = [turn_text(turn) for turn in _without_captions(round_).turns]
    return " ".join(turn for turn in turns if turn)


def _asked(query: Query, settings: Settings) -> str:
    """A question's words; of a picture without a file its caption too, where that may be used."""
    caption, _ = shown_query_caption(query, settings)
    no_file = query.image is not None and not query.image.uri
    return f"{query.text} {caption}" if caption and no_file else query.text


def _without_captions(round_: Round) -> Round:
    """A round whose pictures with a file have no caption."""
    turns = [
        replace(
            turn,
            images=tuple(replace(i, caption="") if i.uri else i for i in turn.images),
        )
        for turn in round_.turns
    ]
    return replace(round_, turns=tuple(turns))


def _with_file(images: Sequence[Image]) -> tuple[Image, ...]:
    return tuple(image for image in images if image.uri)


def _vectors(texts: Sequence[str], images: Sequence[Sequence[Image]], parts: Parts) -> Vectors:
    """One vector (N, D + E) for each text with its pictures; each half of length 1 or 0."""
    text_ND = unit_length(parts.text_encoder.encode(list(texts)))
    width = parts.image_encoder.width if parts.image_encoder else 0
    image_NE = np.zeros((len(texts), width), dtype=np.float32)
    if parts.image_encoder is not None:
        flat = [image for several in images for image in several]
        owner_P = np.repeat(np.arange(len(images)), [len(several) for several in images])
        pictures = [decode_image(parts.read_image(str(i.uri)), i.id) for i in flat]
        if pictures:
            np.add.at(image_NE, owner_P, parts.image_encoder.encode(pictures))
    vectors: Vectors = np.concatenate([text_ND, unit_length(image_NE)], axis=1)
    if not np.isfinite(vectors).all():
        raise VectorError("an encoder made a vector that is not finite: check its weights")
    return vectors
