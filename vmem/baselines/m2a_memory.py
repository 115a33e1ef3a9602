"""M2A's upper level: what an agent remembers, searched by text, BM25 and picture.

After section 3 of arXiv 2602.07624. No language model is called here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from vmem.baselines.m2a_log import Ranges, checked_ranges
from vmem.config import LexicalSettings
from vmem.errors import QueryError
from vmem.images import decode_image
from vmem.pipeline import Parts
from vmem.ports import TextTower, Vectors
from vmem.stores.lexical import LexicalIndex
from vmem.types import Image

_LEXICAL = LexicalSettings(k1=1.2, b=0.75)  # what Milvus's BM25 takes by default


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What an agent remembers of some messages.

    Attributes:
        id: From 1, in the order made; never used again.
        text: What is remembered.
        image: The picture that belongs to it, or None.
        caption: What the picture shows.
        evidence: The ranges of messages that it rests on.
    """

    id: int
    text: str
    image: Image | None = None
    caption: str = ""
    evidence: tuple[tuple[int, int], ...] = ()

    @property
    def encoded_text(self) -> str:
        """What is searched of it as text."""
        return f"{self.text}\nWith image: {self.caption}".strip() if self.caption else self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSizes:
    """How many memories each arm of a search gives, and how ranks are fused.

    Attributes:
        dense: By text vectors.
        sparse: By BM25.
        text: Of both together.
        images: By a picture.
        text_to_image: By a text among pictures; 0 is off.
        rrf_k: κ of both fusions.
    """

    dense: int = 5
    sparse: int = 5
    text: int = 5
    images: int = 3
    text_to_image: int = 0
    rrf_k: int = 60


@dataclass(slots=True, kw_only=True)
class MemoryStore:
    """Memories with their vectors, searched exactly.

    Attributes:
        parts: The encoders.
        sizes: Of a search.
        memories: Those that were not deleted, by id.
        made: How many were ever made.
        without_pixels: Those with a picture that no vector could be made of.
    """

    parts: Parts
    sizes: SearchSizes
    memories: dict[int, Memory] = field(default_factory=dict)
    made: int = 0
    without_pixels: int = 0
    _text: dict[int, Vectors] = field(default_factory=dict)
    _image: dict[int, Vectors] = field(default_factory=dict)
    _index: LexicalIndex | None = None

    def add(self, text: str, image: Image | None, caption: str, evidence: Ranges) -> Memory:
        """Remember something.

        Raises:
            QueryError: There is nothing to remember, or a range is none.
            ImageError: The picture cannot be used.
        """
        if not text.strip() and not caption.strip():
            raise QueryError("a memory needs a text")
        memory = Memory(
            id=self.made + 1,
            text=text.strip(),
            image=image,
            caption=caption.strip(),
            evidence=tuple(checked_ranges(evidence)),
        )
        self._text[memory.id] = self.parts.text_encoder.encode([memory.encoded_text])[0]
        if image is not None:
            if self.parts.image_encoder is None or image.uri is None:
                self.without_pixels += 1
            else:
                self._image[memory.id] = self._look(image)
        self.memories[memory.id] = memory
        self.made += 1
        self._index = None
        return memory

    def delete(self, id_: int) -> None:
        """Forget something.

        Raises:
            QueryError: There is no such memory.
        """
        if self.memories.pop(id_, None) is None:
            raise QueryError(f"there is no memory {id_}")
        self._text.pop(id_)
        self._image.pop(id_, None)
        self._index = None

    def search(self, text: str, image: Image | None) -> list[tuple[Memory, float]]:
        """Memories by a text, a picture or both, best first with their fused scores.

        Dense and BM25 ranks of the text are fused first, ties by id, then the text's ranks with
        the picture's; where those tie, what the text found comes first.

        Raises:
            ImageError: The picture cannot be used.
        """
        paths: list[list[int]] = []
        if text.strip() and self.memories:
            vector_D = self.parts.text_encoder.encode([text])[0]
            dense = _best(self._text, vector_D, self.sizes.dense)
            fused = self._fuse([dense, self._by_words(text)])
            fused.sort(key=lambda item: (-item[1], item[0]))  # as Milvus orders what ties
            paths.append([id_ for id_, _ in fused[: self.sizes.text]])
        if image is not None and image.uri and self.parts.image_encoder and self._image:
            paths.append(_best(self._image, self._look(image), self.sizes.images))
        tower = self.parts.image_encoder
        if (
            self.sizes.text_to_image
            and text.strip()
            and self._image
            and isinstance(tower, TextTower)
        ):
            vector_E = tower.encode_text([text])[0]
            paths.append(_best(self._image, vector_E, self.sizes.text_to_image))
        return [(self.memories[id_], score) for id_, score in self._fuse(paths)]

    def _by_words(self, text: str) -> list[int]:
        if self._index is None:
            texts = [memory.encoded_text for memory in self.memories.values()]
            self._index = LexicalIndex(texts, _LEXICAL)
        score_M = self._index.scores(text)
        ids = np.array(list(self.memories))[score_M > 0]
        return _ranked(ids, score_M[score_M > 0], self.sizes.sparse)

    def _fuse(self, paths: Sequence[Sequence[int]]) -> list[tuple[int, float]]:
        points: dict[int, float] = {}
        for path in paths:
            for rank, id_ in enumerate(path, 1):
                points[id_] = points.get(id_, 0.0) + 1.0 / (self.sizes.rrf_k + rank)
        return sorted(points.items(), key=lambda item: -item[1])

    def _look(self, image: Image) -> Vectors:
        assert self.parts.image_encoder is not None and image.uri is not None
        picture = decode_image(self.parts.read_image(image.uri), image.id)
        vector_E: Vectors = self.parts.image_encoder.encode([picture])[0]
        return vector_E


def _best(vectors: dict[int, Vectors], vector_D: Vectors, most: int) -> list[int]:
    score_M = np.stack(list(vectors.values())) @ vector_D
    return _ranked(np.array(list(vectors)), score_M, most)


def _ranked(ids_M: npt.NDArray[np.int64], score_M: npt.NDArray[np.float32], most: int) -> list[int]:
    """Ids by score, best first; ties by id."""
    order = np.lexsort((ids_M, -score_M))[:most]
    return [int(id_) for id_ in ids_M[order]]
