"""Query and route to anchors a_{c,l}(q): what each active signal searches with (section 3.3).

Two cases get generated text: text -> image a hypothetical caption, image+text -> text keywords read
off the attached image. Where a case calls for one and none is made, a note says why.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from vmem.config import AnswerSettings, RetrievalSettings
from vmem.errors import (
    ConfigError,
    ModelError,
    ModelFormatError,
    ModelTimeoutError,
    ModelUnavailableError,
)
from vmem.ports import ChatModel, ChatReply, ChatRequest
from vmem.prompts import Prompts
from vmem.prompts.replies import choose_keywords, keywords_schema, one_line, parse_keywords
from vmem.types import (
    CAPTION_SIGNALS,
    TEXT_SIGNALS,
    Anchors,
    Case,
    Failure,
    Image,
    Query,
    Route,
    Signal,
    Usage,
)

HYPO_CAPTION_TOKENS = 128
"""About 45 words are asked for."""
KEYWORDS_TOKENS = 256

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Generated:
    """What one model call gave, or why it was not made."""

    hypo_caption: str | None = None
    keywords: tuple[str, ...] = ()
    caption: str | None = None
    notes: tuple[str, ...] = ()
    usage: tuple[Usage, ...] = ()
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True, slots=True)
class _NoReply:
    """Why there is no reply, in words and to be counted."""

    reason: str
    failure: Failure


@dataclass(frozen=True, slots=True)
class _Writer:
    """The model that writes anchors, and what its failures lead to."""

    chat: ChatModel
    temperature: float
    timeout_s: float | None
    on_failure: Literal["fail", "query"]

    async def write(self, request: ChatRequest) -> ChatReply | _NoReply:
        """The reply, or why there is none."""
        try:
            return await self._complete(request)
        except ModelError as error:
            if self.on_failure == "query":
                # Notes reach whoever asks; the error names servers, and stays in the log.
                _log.warning("the %s call failed: %s", request.role, error)
                return _NoReply(_reason(error), _failure(request, type(error)))
            if isinstance(error, ModelFormatError):
                return _NoReply(str(error), _failure(request, type(error)))
            raise

    async def _complete(self, request: ChatRequest) -> ChatReply:
        try:
            async with asyncio.timeout(self.timeout_s):
                return await self.chat.complete(request)
        except TimeoutError as error:
            raise ModelTimeoutError(
                f"{self.chat.name} gave no reply to the {request.role} call within"
                f" {self.timeout_s:g} s: raise llm.anchor_timeout_s"
            ) from error


def _failure(request: ChatRequest, error: type[ModelError]) -> Failure:
    return Failure(role=request.role, error=error.__name__)


def _reason(error: ModelError) -> str:
    if isinstance(error, ModelTimeoutError):
        return "the language model gave no reply in time"
    if isinstance(error, ModelUnavailableError):
        return "the language model cannot be reached"
    if isinstance(error, ModelFormatError):
        return "the language model gave a reply that makes no sense"
    return "the language model rejects the call"


async def make_anchors(
    query: Query,
    route: Route,
    chat: ChatModel | None,
    prompts: Prompts,
    retrieval: RetrievalSettings,
    answer: AnswerSettings,
    read_image: Callable[[str], bytes],
    *,
    timeout_s: float | None = None,
) -> Anchors:
    """Decide which signals are active, and make what each searches with.

    Args:
        query: The question.
        route: Its case and gates.
        chat: The backbone that generates anchors, or None.
        prompts: The texts of the calls.
        retrieval: The signals of each case, and the switches of both generated anchors.
        answer: `temperature`, and where the query image's description comes from.
        read_image: Bytes of an image by its URI.
        timeout_s: Seconds for the model's call; None sets no bound.

    Raises:
        ConfigError: The settings name no signals for the case.
        ImageError: The query's image cannot be read.
        ModelError: The model cannot be reached or rejects the call, where
            `retrieval.on_model_failure` is "fail". Otherwise, and always where a reply is of the
            wrong form, the query stays as it is, with a note.
    """
    signals, notes = _active_signals(query, route, retrieval)
    writer = None
    if chat is not None:
        writer = _Writer(chat, answer.temperature, timeout_s, retrieval.on_model_failure)
    made = _Generated()
    if retrieval.routing == "uniform":
        made = _Generated(notes=("uniform routing searches with the query as it is",))
    elif route.case is Case.TEXT_TO_IMAGE and set(signals) & set(CAPTION_SIGNALS):
        made = await _write_caption(query, route, writer, prompts, retrieval)
    elif route.case is Case.IMAGE_TEXT_TO_TEXT and set(signals) & set(TEXT_SIGNALS):
        made = await _read_keywords(query, writer, prompts, retrieval, read_image)
    query_caption, caption_notes = _describe(query, made, answer)
    text_anchor = " ".join((query.text, *made.keywords))
    return Anchors(
        by_signal={
            signal: _anchor(signal, query, text_anchor, made.hypo_caption) for signal in signals
        },
        hypo_caption=made.hypo_caption,
        keywords=made.keywords,
        query_caption=query_caption,
        notes=(*notes, *made.notes, *caption_notes),
        usage=made.usage,
        failures=made.failures,
    )


def _active_signals(
    query: Query, route: Route, retrieval: RetrievalSettings
) -> tuple[tuple[Signal, ...], list[str]]:
    """J_c, less what the query cannot support."""
    has_file = query.image is not None and query.image.uri is not None
    if retrieval.routing == "uniform":
        last = Signal.VISUAL if has_file else Signal.VISUAL_BY_TEXT
        return (*TEXT_SIGNALS, *CAPTION_SIGNALS, last), []
    if route.case not in retrieval.signals:
        raise ConfigError(f"retrieval.signals names no signals for the case {route.case}")
    wanted = retrieval.signals[route.case]
    signals = tuple(each for each in wanted if has_file or each is not Signal.VISUAL)
    notes = []
    if signals != wanted:
        missing = f"image {query.image.id} has no file" if query.image else "no image is attached"
        notes.append(f"visual signal left out: {missing}")
    if not signals:
        signals = TEXT_SIGNALS
        notes.append("no signal remains for this case: the question's text is searched instead")
    return signals, notes


def _anchor(
    signal: Signal, query: Query, text_anchor: str, hypo_caption: str | None
) -> str | Image:
    if signal is Signal.VISUAL and query.image is not None:
        return query.image
    if signal in TEXT_SIGNALS:
        return text_anchor
    if signal in CAPTION_SIGNALS and hypo_caption is not None:
        return hypo_caption
    return query.text


async def _write_caption(
    query: Query,
    route: Route,
    writer: _Writer | None,
    prompts: Prompts,
    retrieval: RetrievalSettings,
) -> _Generated:
    """The caption that the image sought would have."""
    if route.counts_images:
        return _Generated(notes=("hypothetical caption off: a counting question keeps its words",))
    if not retrieval.hypo_caption:
        return _Generated(notes=("hypothetical caption off: switched off by setting",))
    if writer is None:
        return _Generated(notes=("hypothetical caption off: no language model is configured",))
    request = ChatRequest(
        role="hypo_caption",
        prompt=prompts.hypo_caption_prompt(query.text),
        max_tokens=HYPO_CAPTION_TOKENS,
        temperature=writer.temperature,
    )
    reply = await writer.write(request)
    if isinstance(reply, _NoReply):
        note = f"hypothetical caption not usable: {reply.reason}"
        return _Generated(notes=(note,), failures=(reply.failure,))
    caption = one_line(reply.text)
    if not caption:
        note = f"hypothetical caption not usable: {writer.chat.name} wrote an empty one"
        failure = _failure(request, ModelFormatError)
        return _Generated(notes=(note,), usage=(reply.usage,), failures=(failure,))
    return _Generated(hypo_caption=caption, usage=(reply.usage,))


async def _read_keywords(
    query: Query,
    writer: _Writer | None,
    prompts: Prompts,
    retrieval: RetrievalSettings,
    read_image: Callable[[str], bytes],
) -> _Generated:
    """Keywords and a description, read off the query's image by a model that sees."""
    uri = query.image.uri if query.image else None
    if not retrieval.keywords:
        return _Generated(notes=("image keywords off: switched off by setting",))
    if writer is None:
        return _Generated(notes=("image keywords off: no language model is configured",))
    if not writer.chat.sees_images:
        return _Generated(notes=(f"image keywords off: {writer.chat.name} cannot see images",))
    if uri is None:
        return _Generated(notes=("image keywords off: the image has no file",))
    request = ChatRequest(
        role="keywords",
        prompt=prompts.keywords_prompt(query.text, retrieval.max_keywords),
        images=(await asyncio.to_thread(read_image, uri),),
        max_tokens=KEYWORDS_TOKENS,
        temperature=writer.temperature,
        json_schema=keywords_schema(retrieval.max_keywords),
    )
    reply = await writer.write(request)
    if isinstance(reply, _NoReply):
        note = f"image keywords not usable: {reply.reason}"
        return _Generated(notes=(note,), failures=(reply.failure,))
    found, caption = parse_keywords(reply.text)
    keywords = choose_keywords(found, retrieval.max_keywords)
    made = _Generated(keywords=keywords, caption=caption, usage=(reply.usage,))
    if not keywords:
        note = f"image keywords not usable: {writer.chat.name} gave none that can be read"
        return replace(made, notes=(note,), failures=(_failure(request, ModelFormatError),))
    if len(keywords) < len(found):
        return replace(made, notes=(f"image keywords: {len(keywords)} of {len(found)} kept",))
    return made


def _describe(
    query: Query, made: _Generated, answer: AnswerSettings
) -> tuple[str | None, tuple[str, ...]]:
    """What the query's image shows, in words, and why it is not said where it is not."""
    if query.image is None:
        return None, ()
    if answer.query_caption == "none":
        return None, ("description of the attached image off: switched off by setting",)
    if answer.query_caption == "dataset":
        caption = one_line(query.image.caption)
        note = "description of the attached image off: the data gives it no caption"
    else:
        caption = made.caption or ""
        note = "description of the attached image off: it is only made together with keywords"
    return (caption, ()) if caption else (None, (note,))
