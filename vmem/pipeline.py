"""The read path: a query becomes a route, anchors, rankings, a context and an answer."""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from PIL.Image import Image as Picture

from vmem.anchors import make_anchors
from vmem.answer import answer_query, attached_note, stream_answer
from vmem.assembly import assemble
from vmem.config import Settings
from vmem.errors import ConfigError, QueryError
from vmem.fusion import fuse
from vmem.images import decode_image
from vmem.lanes import search_lanes
from vmem.ports import (
    ChatModel,
    ImageEncoder,
    Rankings,
    SearchableMemory,
    TextEncoder,
    TextTower,
    Vectors,
)
from vmem.prompts import Prompts
from vmem.rounds import show_round
from vmem.routing import route_query
from vmem.tokens import estimate_tokens
from vmem.types import (
    SPARSE_SIGNALS,
    Anchors,
    Answer,
    Case,
    Context,
    Image,
    Query,
    Retrieval,
    Route,
    Signal,
)

PROMPT_TOKENS = 420
"""What the answer prompt and a chat template take around context and question, at most."""
MAX_QUERY_CHARACTERS = 20_000
_SURROGATE = re.compile(r"[\ud800-\udfff]")  # of bytes that were not UTF-8; no encoder takes it


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a query runs on.

    Attributes:
        text_encoder: φ.
        image_encoder: ψ, or None where no picture is searched.
        chat: The backbone, or None for retrieval without a model.
        prompts: The prompts.
        read_image: An image's bytes by its URI, checked.
    """

    text_encoder: TextEncoder
    image_encoder: ImageEncoder | None
    chat: ChatModel | None
    prompts: Prompts
    read_image: Callable[[str], bytes]


@dataclass(slots=True)
class Stopwatch:
    """Seconds spent in each named stage."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def time(self, stage: str) -> Iterator[None]:
        """Add the time of a with-block to a stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - start


async def retrieve(
    query: Query, memory: SearchableMemory, parts: Parts, settings: Settings
) -> Retrieval:
    """Search a memory (Algorithm 1).

    Raises:
        QueryError: The query is empty or too long.
        ImageError: The query's picture cannot be used.
        ModelError: The model that writes anchors failed, where `on_model_failure` says "fail".
    """
    check_query(query)
    watch = Stopwatch()
    with watch.time("route"):
        route = route_query(query, settings.retrieval)
    anchors, probes = await _make_probes(query, route, parts, settings, watch)
    with watch.time("search"):
        rankings = search_lanes(memory, route, probes, settings.retrieval)
    with watch.time("fuse"):
        ranked = fuse(rankings, route.case, settings.retrieval.fusion)
    with watch.time("assemble"):
        note = attached_note(query, anchors, _best_match(rankings, memory), parts.prompts)
        count_tokens = parts.chat.count_tokens if parts.chat else estimate_tokens
        budget_tokens = _budget(settings, count_tokens(query.text)) - count_tokens(note)
        context = assemble(
            ranked,
            memory.rounds,
            route,
            settings.retrieval,
            show=partial(show_round, settings=settings.units),
            count_tokens=count_tokens,
            budget_tokens=budget_tokens,
        )
        context = _with_note(context, note, count_tokens)
    return Retrieval(
        query=query,
        route=route,
        anchors=anchors,
        ranked=ranked,
        context=context,
        seconds=watch.seconds,
    )


async def ask(query: Query, memory: SearchableMemory, parts: Parts, settings: Settings) -> Answer:
    """Search a memory and answer from what was found.

    Raises:
        ConfigError: No language model is configured.
        QueryError, ImageError, ModelError: As `retrieve`, and the answer call failed.
    """
    chat = _backbone(parts)
    retrieval = await retrieve(query, memory, parts, settings)
    images = await _images(retrieval, memory, chat, parts, settings)
    return await answer_query(retrieval, chat, parts.prompts, settings.answer, images)


async def stream_ask(
    query: Query, memory: SearchableMemory, parts: Parts, settings: Settings
) -> AsyncGenerator[Retrieval | str | Answer, None]:
    """Search a memory and answer as `ask` does, passing on what there is as it comes.

    Yields:
        What was found, then the answer's text in pieces, and last the answer.

    Raises:
        ConfigError, QueryError, ImageError, ModelError: As `ask`; the model may fail after some
            pieces.
    """
    chat = _backbone(parts)
    retrieval = await retrieve(query, memory, parts, settings)
    yield retrieval
    images = await _images(retrieval, memory, chat, parts, settings)
    pieces = stream_answer(retrieval, chat, parts.prompts, settings.answer, images)
    async with aclosing(pieces):
        async for piece in pieces:
            yield piece


def _backbone(parts: Parts) -> ChatModel:
    if parts.chat is None:
        raise ConfigError("answering needs a language model: set llm.provider, or use search")
    return parts.chat


async def _images(
    retrieval: Retrieval,
    memory: SearchableMemory,
    chat: ChatModel,
    parts: Parts,
    settings: Settings,
) -> tuple[bytes, ...]:
    """The pictures that go with the answer call."""
    if not (settings.answer.sees_pixels and chat.sees_images):
        return ()
    uris = _image_uris(retrieval, memory)
    return tuple([await asyncio.to_thread(parts.read_image, uri) for uri in uris])


def _budget(settings: Settings, question_tokens: int) -> int:
    """Tokens for the context: what is set, or less where the model's window leaves less."""
    window = settings.llm.window if settings.llm.provider != "none" else None
    if window is None:
        return settings.answer.context_tokens
    room = window - settings.answer.max_tokens - PROMPT_TOKENS - question_tokens
    return max(1, min(settings.answer.context_tokens, room))


def check_query(query: Query) -> None:
    """Refuse what cannot be searched with.

    Raises:
        QueryError: The text is empty, longer than `MAX_QUERY_CHARACTERS` or not Unicode.
    """
    if not query.text.strip():
        raise QueryError("the query is empty: write a question")
    if _SURROGATE.search(query.text):
        raise QueryError("the query is not valid Unicode: write it in UTF-8")
    if len(query.text) > MAX_QUERY_CHARACTERS:
        raise QueryError(
            f"the query has {len(query.text):,} characters, over the limit of"
            f" {MAX_QUERY_CHARACTERS:,}: shorten it"
        )


async def _make_probes(
    query: Query, route: Route, parts: Parts, settings: Settings, watch: Stopwatch
) -> tuple[Anchors, dict[Signal, str | Vectors]]:
    """Anchors as the lanes take them; the query is encoded while the model writes its anchors."""
    picture = await _decode(query.image, parts, watch)
    encoding = {
        anchor: asyncio.create_task(_encode(anchor, picture, parts, watch))
        for anchor in _known_anchors(query, route, parts, settings)
    }
    try:
        with watch.time("anchors"):
            anchors = await make_anchors(
                query,
                route,
                parts.chat,
                parts.prompts,
                settings.retrieval,
                settings.answer,
                parts.read_image,
                timeout_s=settings.llm.anchor_timeout_s,
            )
        probes: dict[Signal, str | Vectors] = {}
        for signal, anchor in anchors.by_signal.items():
            if signal in SPARSE_SIGNALS:
                probes[signal] = str(anchor)
            elif signal is Signal.VISUAL_BY_TEXT:
                if isinstance(parts.image_encoder, TextTower):
                    tower = parts.image_encoder
                    probes[signal] = await _encode_by_text_tower(str(anchor), tower, watch)
            else:
                if anchor not in encoding:
                    encoding[anchor] = asyncio.create_task(_encode(anchor, picture, parts, watch))
                probes[signal] = await encoding[anchor]
    finally:
        for task in encoding.values():
            task.cancel()
    return _searched(anchors, probes), probes


def _searched(anchors: Anchors, probes: Mapping[Signal, str | Vectors]) -> Anchors:
    """The anchors less those that no lane can take, and why."""
    if anchors.by_signal.keys() == probes.keys():
        return anchors
    note = "pictures are not searched by text: the image encoder has no text tower"
    kept = {signal: anchors.by_signal[signal] for signal in probes}
    return replace(anchors, by_signal=kept, notes=(*anchors.notes, note))


def _known_anchors(
    query: Query, route: Route, parts: Parts, settings: Settings
) -> list[str | Image]:
    """What will be encoded whatever the model says."""
    signals = settings.retrieval.signals.get(route.case, ())
    known: list[str | Image] = []
    if query.image and query.image.uri and Signal.VISUAL in signals:
        known.append(query.image)
    enriched = route.case is Case.IMAGE_TEXT_TO_TEXT and settings.retrieval.keywords and parts.chat
    if Signal.TEXT_DENSE in signals and not enriched:
        known.append(query.text)
    return known


async def _decode(image: Image | None, parts: Parts, watch: Stopwatch) -> Picture | None:
    """The query's picture; one that cannot be used is refused before a model is asked."""
    if image is None or image.uri is None:
        return None
    with watch.time("encode"):
        data = await asyncio.to_thread(parts.read_image, image.uri)
        return await asyncio.to_thread(decode_image, data, image.id)


async def _encode(
    anchor: str | Image, picture: Picture | None, parts: Parts, watch: Stopwatch
) -> Vectors:
    with watch.time("encode"):
        if isinstance(anchor, str):
            return _only(await asyncio.to_thread(parts.text_encoder.encode, [anchor]))
        if parts.image_encoder is None or picture is None:
            raise ConfigError("searching with a picture needs an image encoder: set encoders.image")
        return _only(await asyncio.to_thread(parts.image_encoder.encode, [picture]))


async def _encode_by_text_tower(text: str, tower: TextTower, watch: Stopwatch) -> Vectors:
    with watch.time("encode"):
        return _only(await asyncio.to_thread(tower.encode_text, [text]))


def _only(vectors_ND: Vectors) -> Vectors:
    """The vector (D,) of a single item."""
    vector_D: Vectors = vectors_ND[0]
    return vector_D


def _best_match(rankings: Rankings, memory: SearchableMemory) -> Image | None:
    """The stored image that the image lane puts first."""
    if rankings.best_image is None:
        return None
    position, unit_id = rankings.best_image
    number = int(unit_id.rsplit("/", 1)[1])
    return memory.rounds[position].images[number - 1]


def _with_note(context: Context, note: str, count_tokens: Callable[[str], int]) -> Context:
    if not note:
        return context
    text = f"{context.text}\n\n{note}".strip()
    return replace(context, note=note, text=text, tokens=count_tokens(text))


def _image_uris(retrieval: Retrieval, memory: SearchableMemory) -> Sequence[str]:
    """The query's picture, then those of the rounds found."""
    images = [image for p in retrieval.context.found for image in memory.rounds[p].images]
    if retrieval.query.image:
        images.insert(0, retrieval.query.image)
    return [image.uri for image in images if image.uri]
