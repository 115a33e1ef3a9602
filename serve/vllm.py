"""The backbone as a vLLM model of Ray Serve LLM: its deployment, and its client over a handle."""

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from ray.serve import Application
from ray.serve.context import _get_serve_request_context
from ray.serve.handle import DeploymentHandle

from serve.handles import check_replica, model_failures, read
from serve.models import VllmSettings, llm_config
from vmem.config import ModelSettings
from vmem.errors import ConfigError, ModelError, ModelUnavailableError
from vmem.llm.failures import Sentences, first_line, says_overflow
from vmem.llm.messages import chat_body, finish_reason, response_format
from vmem.llm.tokenizer import token_counter
from vmem.ports import ChatReply, ChatRequest
from vmem.types import Usage

if TYPE_CHECKING:
    from ray.serve.llm.openai_api_models import ChatCompletionRequest


class VllmChat:
    """A `ChatModel` that is a deployment of Ray Serve LLM, as `llm_deployment` makes one.

    Nothing is tried again: the deployment's router finds a replica that lives.

    Args:
        handle: The deployment's handle.
        settings: `model` is the model's id there; `sees_images`, `timeout_s`, `tokenizer`.

    Raises:
        ConfigError: The model has no name, or the tokenizer is none.
    """

    def __init__(self, handle: DeploymentHandle[Any], settings: ModelSettings) -> None:
        if not settings.model:
            raise ConfigError("llm.model must be the model_id of the vLLM backbone")
        self._handle = handle
        self._model = settings.model
        self._sees_images = settings.sees_images
        self._timeout_s = settings.timeout_s
        self._where = f"model {settings.model}"
        self._sentences = Sentences(where=self._where, timeout_s=settings.timeout_s, key="")
        self._count = token_counter(settings)

    @property
    def name(self) -> str:
        """The model's id."""
        return self._model

    @property
    def sees_images(self) -> bool:
        """Whether requests may carry pictures."""
        return self._sees_images

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Answer one request.

        Raises:
            ModelTimeoutError: There was no whole reply in time; the model has stopped writing.
            ModelUnavailableError: No replica lives, or all have more requests than they take.
            ModelFormatError: The reply is empty.
            ModelError: The model rejects the request, or it holds pictures for a blind model.
            ImageError: A picture of the request is none.
        """
        async with aclosing(self._items(request, stream=False)) as items:
            async for completion in items:
                choice, usage = completion.choices[0], completion.usage
                counts = usage.model_dump() if usage else {}
                text = choice.message.content or ""
                return self._reply(request.role, text, choice.finish_reason, counts)
        raise self._broke_off()

    async def stream(self, request: ChatRequest) -> AsyncGenerator[str | ChatReply, None]:
        """Answer one request piece by piece; leaving early stops the model's writing.

        Yields:
            The reply's text in pieces, and last the whole reply with its cost.

        Raises:
            ModelTimeoutError, ModelUnavailableError, ModelFormatError, ModelError, ImageError: As
                `complete`, perhaps after some pieces.
        """
        text, finish = "", None
        usage: dict[str, Any] = {}
        async with aclosing(self._events(request)) as events:
            async for event in events:
                usage = event.get("usage") or usage
                for choice in event["choices"]:
                    finish = choice["finish_reason"] or finish
                    if piece := choice["delta"].get("content"):
                        text += piece
                        yield piece
        if finish is None:
            raise self._broke_off()
        yield self._reply(request.role, text, finish, usage)

    async def check(self) -> None:
        """Ask a replica whether its engine lives.

        Raises:
            ModelUnavailableError: None says so.
        """
        await check_replica(self._handle, self._where)

    def count_tokens(self, text: str) -> int:
        """Exactly by `llm.tokenizer`, else an upper estimate; a chat template comes on top."""
        return self._count(text)

    async def close(self) -> None:
        """Nothing: the deployment lives on."""

    async def _events(self, request: ChatRequest) -> AsyncGenerator[dict[str, Any], None]:
        """The events of a streamed reply, which vLLM writes as lines of a text."""
        async with aclosing(self._items(request, stream=True)) as items:
            async for text in items:
                for line in text.splitlines():
                    data = line.removeprefix("data: ")
                    if not data or data == "[DONE]":
                        continue
                    event: dict[str, Any] = json.loads(data)
                    if error := event.get("error"):
                        raise self._refused(error["message"], error["code"], request.role)
                    yield event

    async def _items(self, request: ChatRequest, *, stream: bool) -> AsyncGenerator[Any, None]:
        """What the replica yields, in time; its work ends when nobody reads on."""
        if request.images and not self._sees_images:
            raise ModelError(f"{self._where} cannot see images: set llm.sees_images if it can")
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        # In a thread: pictures are encoded, and the first call imports vLLM's protocol.
        asked = await asyncio.to_thread(chat_request, request, self._model, stream=stream)
        replies: Any = self._handle.options(stream=True).chat.remote(asked)
        with model_failures(self._where, self._timeout_s):
            async with aclosing(read(replies, deadline)) as items:
                async for item in items:
                    # A stream comes in batches; an error of its start does too, as an object.
                    for each in item if isinstance(item, list) else [item]:
                        if error := getattr(each, "error", None):
                            raise self._refused(error.message, error.code, request.role)
                        yield each

    def _refused(self, message: str, code: int, role: str) -> ModelError:
        if says_overflow(message):
            return self._sentences.too_long(role)
        return self._sentences.refused(code, first_line(message))

    def _reply(self, role: str, text: str, finish: str | None, counts: dict[str, Any]) -> ChatReply:
        if not text.strip():
            raise self._sentences.empty(role, finish)
        usage = Usage(
            role=role,
            prompt_tokens=counts.get("prompt_tokens") or 0,
            completion_tokens=counts.get("completion_tokens") or 0,
        )
        return ChatReply(text=text, usage=usage, finish_reason=finish_reason(finish))

    def _broke_off(self) -> ModelUnavailableError:
        return ModelUnavailableError(f"{self._where} broke off its reply")


def chat_request(request: ChatRequest, model: str, *, stream: bool) -> "ChatCompletionRequest":
    """A request as vLLM takes it; the id of the caller's request is part of its own.

    Raises:
        ImageError: A picture is of no known format.
    """
    # Importing vLLM's protocol takes seconds: who asks no vLLM does without.
    from ray.serve.llm.openai_api_models import ChatCompletionRequest

    # One of its own for each call: vLLM refuses a second call under an id that it works on.
    caller = _get_serve_request_context().request_id
    own = f"{request.role}-{uuid.uuid4().hex[:12]}"
    body = {
        **chat_body(request, model),
        "request_id": f"{caller}-{own}" if caller else own,
        "stream": stream,
    }
    if stream:
        body["stream_options"] = {"include_usage": True}
    if request.json_schema is not None:
        body["response_format"] = response_format(request.json_schema)
    return ChatCompletionRequest(**body)


def llm_deployment(settings: VllmSettings) -> Application:
    """The deployment of a model, to be bound into an application.

    Raises:
        ConfigError: vLLM is missing, the model's folder is, or Ray or vLLM refuses a value.
    """
    try:
        from ray.serve.llm import LLMConfig, build_llm_deployment
        from vllm import AsyncEngineArgs  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"a vLLM backbone needs vLLM 0.29.0 ({error}): install vmem[gpu], or on a machine"
            " without a GPU run `make setup-vllm`"
        ) from error
    try:
        config = LLMConfig(**llm_config(settings))
        build: Callable[..., Application] = build_llm_deployment
        return build(config, name_prefix="Backbone:")
    except ValueError as error:
        said = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise ConfigError(f"backbone.vllm: {first_line(said)}") from error
