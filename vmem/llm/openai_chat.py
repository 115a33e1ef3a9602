"""The backbone behind any OpenAI-compatible server: Ray Serve LLM, vLLM, Ollama, a hosted API."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import Any, TypeVar
from urllib.parse import urlsplit

from openai import (
    APIConnectionError,
    APIError,
    APIStatusError,
    AsyncOpenAI,
    BadRequestError,
    DefaultAsyncHttpxClient,
)
from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt

from vmem.config import ModelSettings
from vmem.errors import ConfigError, ModelError, ModelFormatError, ModelUnavailableError
from vmem.llm.failures import Sentences, is_overflow, may_pass, pause_s
from vmem.llm.messages import (
    called_tool,
    chat_body,
    finish_reason,
    response_format,
    tool_choice,
)
from vmem.llm.pieces import Pieces
from vmem.llm.tokenizer import token_counter
from vmem.ports import ChatReply, ChatRequest
from vmem.types import Usage

T = TypeVar("T")

_log = logging.getLogger(__name__)

CHECK_S = 3.0
"""Seconds in which a server must say that it is there."""

TOOLS, SCHEMA = "tools", "JSON schema"
"""What servers may be asked for, best first, and not all of them take."""

_FAILURES = (APIError, TimeoutError, json.JSONDecodeError, UnicodeDecodeError)


class OpenAIChat:
    """One model on one server; belongs to the event loop that first uses it.

    A call that may succeed later (no connection, no reply in time, 408, 429, 5xx) is tried up to
    `attempts` times with growing, jittered pauses, or after the pause that the server asks for;
    each try has `timeout_s` for the whole reply. Where the server rejects tools, or a
    `response_format`, the call is repeated without it, and later calls leave it out; nor is a
    server asked for tools again that has answered without calling one. Schemas must be strict: all
    properties required, no others allowed.

    Args:
        settings: Address, model and limits.
        http_client: The HTTP client to use instead of one of its own.
        native_tools: Whether to ask for native calls of tools at all.
        sleep: How to pause between tries.

    Raises:
        ConfigError: The address or the model's name is missing, or the address or the tokenizer is
            none.
    """

    def __init__(
        self,
        settings: ModelSettings,
        http_client: DefaultAsyncHttpxClient | None = None,
        native_tools: bool = True,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        if not settings.base_url or not settings.model:
            raise ConfigError("llm.base_url and llm.model must name the server and its model")
        address = urlsplit(settings.base_url)
        if address.scheme not in {"http", "https"} or not address.hostname:
            raise ConfigError("llm.base_url must be an address such as http://localhost:8000/v1")
        self._settings = settings
        self._model = settings.model
        key = settings.api_key.get_secret_value()
        host = address.netloc.rpartition("@")[2]
        self._where = f"model {settings.model} at {host}"
        self._sentences = Sentences(where=self._where, timeout_s=settings.timeout_s, key=key)
        self._sleep = sleep
        self._count = token_counter(settings)
        self._takes = {TOOLS, SCHEMA} if native_tools else {SCHEMA}
        self._client = AsyncOpenAI(
            base_url=settings.base_url,
            api_key=key or "none",
            timeout=settings.timeout_s,
            max_retries=0,
            http_client=http_client,
        )

    @property
    def name(self) -> str:
        """The model's name on the server."""
        return self._model

    @property
    def sees_images(self) -> bool:
        """Whether requests may carry pictures."""
        return self._settings.sees_images

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Answer one request; a server that counts no tokens leaves the usage at 0.

        Raises:
            ModelTimeoutError: No try gave a whole reply in time.
            ModelUnavailableError: The server cannot be reached or keeps refusing.
            ModelFormatError: The reply is empty or no chat completion.
            ModelError: The server rejects the request, or it holds pictures for a blind model.
            ImageError: A picture of the request is none.
        """
        self._check(request)
        try:
            completion = await self._ask(request, self._complete_once)
        except _FAILURES as error:
            raise self._sentences.of(error, request.role) from error
        return self._reply(completion, request)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[str | ChatReply, None]:
        """Answer one request piece by piece; never tried again once a piece was yielded.

        Yields:
            The reply's text in pieces, and last the whole reply with its cost.

        Raises:
            ModelUnavailableError: As `complete`, or the server broke off its reply.
            ModelTimeoutError, ModelFormatError, ModelError, ImageError: As `complete`.
        """
        self._check(request)
        pieces: Pieces | None = None
        try:
            pieces = await self._ask(request, self._start_once)
            while (piece := await pieces.next()) is not None:
                yield piece
        except _FAILURES as error:
            raise self._sentences.of(error, request.role) from error
        finally:
            if pieces is not None:
                await pieces.close()
        if not pieces.text.strip():
            raise self._sentences.empty(request.role, pieces.finish)
        if pieces.finish is None:
            raise ModelUnavailableError(f"{self._where} broke off its reply")
        yield ChatReply(
            text=pieces.text,
            usage=pieces.usage(request.role),
            finish_reason=finish_reason(pieces.finish),
        )

    async def check(self) -> None:
        """Ask the server for its models; one that has no such list is there all the same.

        Raises:
            ModelUnavailableError: It cannot be reached in time, or fails.
            ModelError: It rejects the key.
        """
        client = self._client.with_options(timeout=CHECK_S)
        try:
            await client.models.with_raw_response.list()
        except APIStatusError as error:
            if error.status_code in {401, 403} or error.status_code >= 500:
                raise self._sentences.of(error, "check") from error
        except APIConnectionError as error:
            raise ModelUnavailableError(
                f"{self._where} gave no sign within {CHECK_S:g} s ({type(error).__name__})"
            ) from error

    def count_tokens(self, text: str) -> int:
        """Exactly by `llm.tokenizer`, else an upper estimate."""
        return self._count(text)

    async def close(self) -> None:
        """Close the connections; calls under way fail."""
        await self._client.close()

    def _check(self, request: ChatRequest) -> None:
        if request.images and not self.sees_images:
            raise ModelError(f"{self._where} cannot see images: set llm.sees_images if it can")
        if self._client.is_closed():
            raise ModelUnavailableError(f"{self._where}: this client was closed")

    async def _ask(self, request: ChatRequest, call: Callable[[dict[str, Any]], Awaitable[T]]) -> T:
        body = chat_body(request, self._model)
        refused: list[str] = []
        for what, fields in self._ways(request):
            try:
                reply = await self._try(call, {**body, **fields})
            except BadRequestError as error:
                if is_overflow(error):
                    raise
                refused.append(what)
            else:
                break
        else:
            reply = await self._try(call, body)
        for what in refused:  # only now is it known that this was at fault, and not the request
            self._takes.discard(what)
            _log.warning("%s takes no %s: it is asked without", self._where, what)
        return reply

    def _ways(self, request: ChatRequest) -> Iterator[tuple[str, dict[str, Any]]]:
        """What to ask the server for, best first; after them, nothing."""
        if request.json_schema is not None:
            if request.calls_tool and TOOLS in self._takes:
                yield TOOLS, tool_choice(request.json_schema)
            if SCHEMA in self._takes:
                yield SCHEMA, {"response_format": response_format(request.json_schema)}

    async def _try(self, call: Callable[[dict[str, Any]], Awaitable[T]], body: dict[str, Any]) -> T:
        retrying = AsyncRetrying(
            sleep=self._sleep,
            stop=stop_after_attempt(self._settings.attempts),
            wait=pause_s,
            retry=retry_if_exception(lambda e: may_pass(e) and not self._client.is_closed()),
            reraise=True,
        )
        return await retrying(call, body)

    async def _complete_once(self, body: dict[str, Any]) -> object:
        async with asyncio.timeout(self._settings.timeout_s):
            try:
                # The client's own type of reply takes it a millisecond, and it checks nothing.
                reply = await self._client.post("/chat/completions", body=body, cast_to=object)
            except (ValueError, RecursionError) as error:  # also JSON too deep, numbers too long
                raise ModelFormatError(f"{self._where} answered with broken JSON") from error
        return _from_text(reply) if isinstance(reply, str) else reply

    async def _start_once(self, body: dict[str, Any]) -> Pieces:
        """A reply with its first piece read: until then the call may be tried again."""
        deadline = asyncio.get_running_loop().time() + self._settings.timeout_s
        async with asyncio.timeout_at(deadline):
            stream = await self._client.chat.completions.create(
                **body, stream=True, stream_options={"include_usage": True}
            )
            pieces = Pieces(stream, deadline, self._where)
            await pieces.start()
        return pieces

    def _reply(self, completion: object, request: ChatRequest) -> ChatReply:
        role = request.role
        match completion:  # a field may be missing or of any kind
            case {"choices": [{"message": {**message}, **choice}, *_], **rest}:
                call = called_tool(message)
                finish = choice.get("finish_reason")
            case _:
                raise self._no_completion()
        if request.calls_tool and call is None:
            self._takes.discard(TOOLS)  # it knows no tools, and held itself to no schema either
        text = message.get("content") if call is None else call
        if text is not None and not isinstance(text, str):
            raise self._no_completion()
        finish = finish if isinstance(finish, str) else None
        if not text or not text.strip():
            raise self._sentences.empty(role, finish)
        return ChatReply(
            text=text, usage=_usage(role, rest.get("usage")), finish_reason=finish_reason(finish)
        )

    def _no_completion(self) -> ModelFormatError:
        return ModelFormatError(
            f"{self._where} answered with no chat completion: llm.base_url must end in /v1"
        )


def _from_text(reply: str) -> object:
    """What a reply holds that its header calls no JSON; it is JSON all the same, or none."""
    try:
        return json.loads(reply)
    except (ValueError, RecursionError):
        return reply


def _usage(role: str, sent: object) -> Usage:
    counts = sent if isinstance(sent, dict) else {}
    return Usage(
        role=role,
        prompt_tokens=_count(counts.get("prompt_tokens")),
        completion_tokens=_count(counts.get("completion_tokens")),
    )


def _count(sent: object) -> int:
    """A number of tokens; 0 where the server sends none."""
    return sent if isinstance(sent, int) and 0 < sent < 2**31 else 0
