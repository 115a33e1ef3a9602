"""The backbone behind any OpenAI-compatible server: Ray Serve LLM, vLLM, Ollama, a hosted API."""

import asyncio
import base64
import io
import json
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

from openai import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    AsyncOpenAI,
    BadRequestError,
    DefaultAsyncHttpxClient,
)
from openai.types.chat import ChatCompletion
from PIL import Image, UnidentifiedImageError
from tenacity import (
    AsyncRetrying,
    retry_if_exception,
    stop_after_attempt,
)

from vmem.config import ModelSettings
from vmem.errors import (
    ConfigError,
    ImageError,
    ModelError,
    ModelFormatError,
    ModelUnavailableError,
)
from vmem.llm.failures import is_overflow, is_passing, may_pass, pause_s
from vmem.ports import ChatReply, ChatRequest
from vmem.types import Usage

_FINISH: Mapping[str, Literal["stop", "length"]] = {"stop": "stop", "length": "length"}

_log = logging.getLogger(__name__)


class OpenAIChat:
    """One model on one server; belongs to the event loop that first uses it.

    A call that may succeed later (no connection, no reply in time, 408, 429, 5xx) is tried up to
    `attempts` times with growing, jittered pauses, or after the pause that the server asks for.
    Where the server rejects `response_format`, the call is repeated without it once, and later
    calls leave it out. Schemas must be strict: all properties required, no others allowed.

    Args:
        settings: Address, model and limits.
        http_client: The HTTP client to use instead of one of its own.
        sleep: How to pause between tries.

    Raises:
        ConfigError: The address or the model's name is missing, or the address is none.
    """

    def __init__(
        self,
        settings: ModelSettings,
        http_client: DefaultAsyncHttpxClient | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        if not settings.base_url or not settings.model:
            raise ConfigError("llm.base_url and llm.model must name the server and its model")
        address = urlsplit(settings.base_url)
        if address.scheme not in {"http", "https"} or not address.hostname:
            raise ConfigError("llm.base_url must be an address such as http://localhost:8000/v1")
        self._settings = settings
        self._model = settings.model
        host = address.netloc.rpartition("@")[2]
        self._where = f"model {settings.model} at {host}"
        self._sleep = sleep
        self._takes_schema = True
        self._client = AsyncOpenAI(
            base_url=settings.base_url,
            api_key=settings.api_key.get_secret_value() or "none",
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
            ModelUnavailableError: The server cannot be reached or keeps refusing.
            ModelFormatError: The reply is empty or no chat completion.
            ModelError: The server rejects the request, or it holds pictures for a blind model.
            ImageError: A picture of the request is none.
        """
        if request.images and not self.sees_images:
            raise ModelError(f"{self._where} cannot see images: set llm.sees_images if it can")
        if self._client.is_closed():
            raise ModelUnavailableError(f"{self._where}: this client was closed")
        try:
            completion = await self._ask(request)
        except APIStatusError as error:
            raise self._status_error(error, request.role) from error
        except APIConnectionError as error:
            raise ModelUnavailableError(f"{self._where} {self._silence(error)}") from error
        except json.JSONDecodeError as error:
            raise ModelFormatError(f"{self._where} answered with broken JSON") from error
        return self._reply(completion, request.role)

    def count_tokens(self, text: str) -> int:
        """An upper estimate: a third of the UTF-8 bytes, rounded up.

        On 3,000 turns of LoCoMo it came to 1.45 times SmolLM2's own count. A text of a word or
        two, one nearly all digits, or one in a language that the vocabulary was not made for can
        have more tokens than this says.
        """
        return math.ceil(len(text.encode()) / 3)

    async def close(self) -> None:
        """Close the connections; calls under way fail."""
        await self._client.close()

    def _body(self, request: ChatRequest) -> dict[str, Any]:
        content: str | list[dict[str, Any]] = request.prompt
        if request.images:
            content = [_image_part(data) for data in request.images]
            content.append({"type": "text", "text": request.prompt})
        return {
            "model": self._model,
            "messages": [{"role": "user", "content": content}],
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
        }

    async def _ask(self, request: ChatRequest) -> object:
        body = self._body(request)
        if request.json_schema is None or not self._takes_schema:
            return await self._send(body)
        schema = {"name": "reply", "strict": True, "schema": request.json_schema}
        response_format = {"type": "json_schema", "json_schema": schema}
        try:
            return await self._send({**body, "response_format": response_format})
        except BadRequestError as error:
            if is_overflow(error):
                raise
        completion = await self._send(body)
        # Only now is it known that the format was at fault, and not the request.
        self._takes_schema = False
        _log.warning("%s takes no JSON schema: replies are parsed as they come", self._where)
        return completion

    async def _send(self, body: dict[str, Any]) -> object:
        retrying = AsyncRetrying(
            sleep=self._sleep,
            stop=stop_after_attempt(self._settings.attempts),
            wait=pause_s,
            retry=retry_if_exception(lambda e: may_pass(e) and not self._client.is_closed()),
            reraise=True,
        )

        async def create() -> object:
            return await self._client.chat.completions.create(**body)

        # A function of our own: the client's method is wrapped, and tenacity would not await it.
        return await retrying(create)

    def _reply(self, completion: object, role: str) -> ChatReply:
        if not isinstance(completion, ChatCompletion) or not completion.choices:
            raise ModelFormatError(
                f"{self._where} answered with no chat completion: llm.base_url must end in /v1"
            )
        choice, usage = completion.choices[0], completion.usage
        text = choice.message.content if choice.message else None
        if not text or not text.strip():
            raise ModelFormatError(
                f"{self._where} gave an empty reply to the {role} call"
                f" (finish reason {choice.finish_reason})"
            )
        return ChatReply(
            text=text,
            usage=Usage(
                role=role,
                prompt_tokens=(usage.prompt_tokens or 0) if usage else 0,
                completion_tokens=(usage.completion_tokens or 0) if usage else 0,
            ),
            finish_reason=_FINISH.get(choice.finish_reason, "other"),
        )

    def _silence(self, error: APIConnectionError) -> str:
        if isinstance(error, APITimeoutError):
            return f"gave no reply within {self._settings.timeout_s:g} s: raise llm.timeout_s"
        return "cannot be reached: check that it runs and that llm.base_url is right"

    def _status_error(self, error: APIStatusError, role: str) -> ModelError:
        status = error.status_code
        if is_overflow(error):
            return ModelError(
                f"the prompt of the {role} call is too long for {self._where}:"
                " lower answer.context_tokens"
            )
        if is_passing(status):
            return ModelUnavailableError(
                f"{self._where} keeps refusing (HTTP {status}): try later, or ask less at once"
            )
        if status in {401, 403}:
            return ModelError(
                f"{self._where} rejects the key (HTTP {status}): set VMEM_LLM__API_KEY"
            )
        if status == 404:
            return ModelError(f"{self._where} is not known there: check llm.model, llm.base_url")
        return ModelError(f"{self._where} rejects the request (HTTP {status}): {self._why(error)}")

    def _why(self, error: APIStatusError) -> str:
        """The first line of the server's own words; some servers repeat the key in them."""
        words = error.body.get("message") if isinstance(error.body, dict) else None
        line = (str(words or error.message).splitlines() or [""])[0]
        key = self._settings.api_key.get_secret_value()
        return (line.replace(key, "***") if key else line)[:200]


def _image_part(data: bytes) -> dict[str, Any]:
    try:
        with Image.open(io.BytesIO(data)) as picture:
            mime = picture.get_format_mimetype()
    except UnidentifiedImageError as error:
        raise ImageError("a picture sent to the model is of no known image format") from error
    url = f"data:{mime};base64,{base64.b64encode(data).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}
