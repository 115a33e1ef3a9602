"""V-Mem under any settings (sections 3.2 to 3.4): all rows that differ by settings alone."""

import asyncio
import time
from dataclasses import dataclass, replace

import numpy as np

from vmem.build import unit_tables
from vmem.config import RetrievalSettings, Settings
from vmem.memory import EncodedUnits, encode_rounds
from vmem.oracle import refuse_oracle
from vmem.pipeline import Parts, ask, retrieve
from vmem.ports import BuildCost, MemorySystem, Oracle, SearchableMemory
from vmem.rounds import to_units
from vmem.stores.hot import HotMemory
from vmem.types import (
    SPARSE_SIGNALS,
    TEXT_SIGNALS,
    VISUAL_SIGNALS,
    Answer,
    Dialogue,
    Modality,
    Query,
    Retrieval,
    Signal,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VMem:
    """The pipeline as a system; BM25 alone and dense alone are settings of it.

    Attributes:
        name: The row's name.
        settings: The settings under test.
        parts: Encoders, backbone and prompts, shared by all dialogues.
    """

    name: str
    settings: Settings
    parts: Parts

    async def build(self, dialogue: Dialogue) -> MemorySystem:
        """Encode a dialogue and index it; no model is called.

        Raises:
            ImageError: A picture cannot be used.
            VectorError: An encoder made a vector that is not finite or is zero.
        """
        return await asyncio.to_thread(self._build, dialogue)

    def _build(self, dialogue: Dialogue) -> "VMemMemory":
        searched = searched_signals(self.settings.retrieval)
        started = time.perf_counter()
        encoded = _encode(dialogue, self.settings, self.parts, searched)
        encoded_at = time.perf_counter()
        memory = HotMemory(dialogue.rounds, *unit_tables(encoded), self.settings.retrieval.lexical)
        # BM25 is indexed at the first search; that time belongs to the build, not to a question.
        for signal in searched.intersection(SPARSE_SIGNALS):
            memory.score(signal, "", None, pool=1, with_captions=True)
        cost = BuildCost(
            seconds={"encode": encoded_at - started, "index": time.perf_counter() - encoded_at},
            counts={
                "rounds": len(dialogue.rounds),
                "text_units": len(encoded.text),
                "image_units": len(encoded.image),
                "truncated_texts": encoded.truncated,
                "images_without_pixels": encoded.without_pixels,
            },
        )
        return VMemMemory(
            name=self.name, settings=self.settings, parts=self.parts, memory=memory, cost=cost
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class VMemMemory:
    """A dialogue in V-Mem.

    Attributes:
        name: The row's name.
        settings: The settings under test.
        parts: What a query runs on.
        memory: What is searched.
        cost: What building it took.
    """

    name: str
    settings: Settings
    parts: Parts
    memory: SearchableMemory
    cost: BuildCost

    async def answer(self, query: Query, oracle: Oracle | None = None) -> Answer:
        """Search and answer.

        Raises:
            ConfigError: An oracle is given, or no language model is configured.
            QueryError, ImageError, ModelError: As `vmem.pipeline.ask`.
        """
        refuse_oracle(self.name, oracle)
        return await ask(query, self.memory, self.parts, self.settings)

    async def search(self, query: Query) -> Retrieval:
        """Find evidence without answering.

        Raises:
            QueryError, ImageError, ModelError: As `vmem.pipeline.retrieve`.
        """
        return await retrieve(query, self.memory, self.parts, self.settings)


def searched_signals(retrieval: RetrievalSettings) -> frozenset[Signal]:
    """The signals that any query may search under these settings."""
    if retrieval.routing == "uniform":
        return frozenset(Signal)
    searched: set[Signal] = set()
    for active in retrieval.signals.values():
        searched.update(active)
        if not set(active) - {Signal.VISUAL}:
            searched.update(TEXT_SIGNALS)  # what is searched where the query has no picture file
    return frozenset(searched)


def _encode(
    dialogue: Dialogue, settings: Settings, parts: Parts, searched: frozenset[Signal]
) -> EncodedUnits:
    """A dialogue's units with the vectors that its signals compare; no others are made."""
    if searched.issubset(SPARSE_SIGNALS):
        return _without_vectors(dialogue, settings)
    seen = parts if searched.intersection(VISUAL_SIGNALS) else replace(parts, image_encoder=None)
    return encode_rounds(
        dialogue.rounds, settings.units, seen.text_encoder, seen.image_encoder, seen.read_image
    )


def _without_vectors(dialogue: Dialogue, settings: Settings) -> EncodedUnits:
    units = [unit for round_ in dialogue.rounds for unit in to_units(round_, settings.units)]
    text = tuple(unit for unit in units if unit.modality is Modality.TEXT)
    images = [unit.image for unit in units if unit.modality is Modality.IMAGE]
    return EncodedUnits(
        text=text,
        text_vectors_UD=np.zeros((len(text), 0), dtype=np.float32),
        image=(),
        image_vectors_IE=np.zeros((0, 0), dtype=np.float32),
        truncated=0,
        without_pixels=sum(image is None or not image.uri for image in images),
    )
