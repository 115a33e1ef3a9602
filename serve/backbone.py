"""The backbone behind a Serve handle: a model in a deployment of its own, and its client."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Literal, cast

import httpx
from ray.exceptions import RayActorError, RayTaskError
from ray.serve.exceptions import BackPressureError, RayServeException
from ray.serve.handle import DeploymentHandle, DeploymentResponseGenerator

from vmem.build import make_chat
from vmem.config import Settings
from vmem.errors import ConfigError, ModelError, ModelTimeoutError, ModelUnavailableError, VmemError
from vmem.ports import ChatModel, ChatReply, ChatRequest
from vmem.tokens import estimate_tokens

BackboneKind = Literal["embedded", "vllm", "remote", "none"]


class Backbone:
    """The deployment that hosts the model which the settings' `llm` names, such as llama.cpp.

    Args:
        settings: The memory's settings.

    Raises:
        ConfigError: They name no model.
        ModelError: The model cannot be started.
    """

    def __init__(self, settings: Settings) -> None:
        chat = make_chat(settings)
        if chat is None:
            raise ConfigError("backbone.kind embedded needs a model: set memory.llm.provider")
        self._chat: ChatModel = chat

    async def stream(self, request: ChatRequest) -> AsyncIterator[str | ChatReply]:
        """Answer a request piece by piece, as `ChatModel.stream`."""
        async for piece in self._chat.stream(request):
            yield piece

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Answer a request, as `ChatModel.complete`."""
        return await self._chat.complete(request)

    async def check(self) -> None:
        """Count a token, which needs the model.

        Raises:
            ModelError: It does not answer.
        """
        await asyncio.to_thread(self._chat.count_tokens, "ready")

    def check_health(self) -> None:
        """What Serve asks now and then; a replica whose model died is replaced.

        Raises:
            ModelError: It does not answer.
        """
        self._chat.count_tokens("ready")


class HandleChat:
    """A `ChatModel` that is a `Backbone` deployment.

    Args:
        handle: The deployment's handle.
        name: The model's name.
        sees_images: Whether it takes pictures.
        timeout_s: Seconds for one call.
    """

    def __init__(
        self, handle: DeploymentHandle[Any], *, name: str, sees_images: bool, timeout_s: float
    ) -> None:
        self._handle = handle
        self._name = name
        self._sees_images = sees_images
        self._timeout_s = timeout_s

    @property
    def name(self) -> str:
        """The model's name."""
        return self._name

    @property
    def sees_images(self) -> bool:
        """Whether requests may carry pictures."""
        return self._sees_images

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Answer one request; see `ChatModel.complete`."""
        try:
            async with asyncio.timeout(self._timeout_s):
                reply: ChatReply = await self._handle.complete.remote(request)
                return reply
        except (TimeoutError, RayTaskError, RayActorError, RayServeException) as error:
            raise self._told(error) from error

    async def stream(self, request: ChatRequest) -> AsyncIterator[str | ChatReply]:
        """Answer one request piece by piece; see `ChatModel.stream`."""
        streamed = self._handle.options(stream=True).stream.remote(request)
        pieces = cast(DeploymentResponseGenerator[str | ChatReply], streamed)
        try:
            async with asyncio.timeout(self._timeout_s):
                async for piece in pieces:
                    yield piece
        except (TimeoutError, RayTaskError, RayActorError, RayServeException) as error:
            raise self._told(error) from error
        finally:
            pieces.cancel()  # type: ignore[no-untyped-call]  # nobody waits for what is still to come

    def count_tokens(self, text: str) -> int:
        """An upper estimate: counting in the replica would cost a call a block."""
        return estimate_tokens(text)

    async def close(self) -> None:
        """Nothing: the deployment lives on."""

    def _told(self, error: Exception) -> VmemError:
        if isinstance(error, TimeoutError):
            return ModelTimeoutError(f"{self._name} gave no reply within {self._timeout_s:g} s")
        if isinstance(error, RayTaskError):
            if isinstance(error.cause, VmemError):
                return error.cause
            return ModelError(f"{self._name} failed: {type(error.cause).__name__}")
        if isinstance(error, BackPressureError):
            return ModelUnavailableError(f"{self._name} has more requests than it takes")
        return ModelUnavailableError(f"{self._name} is down: {type(error).__name__}")


CHECK_S = 3.0
"""Seconds in which a backbone must say that it is there."""


async def backbone_fault(
    settings: Settings, kind: BackboneKind, handle: DeploymentHandle[Any] | None
) -> str:
    """What is wrong with the backbone, in a sentence; empty where it answers."""
    try:
        async with asyncio.timeout(CHECK_S):
            if handle is not None and kind == "embedded":
                await handle.check.remote()
            elif handle is not None and kind == "vllm":
                await handle.check_health.remote()
            elif kind == "remote":
                return await _server_fault(settings)
    except TimeoutError:
        return f"the backbone gave no sign within {CHECK_S:g} s"
    except (RayTaskError, RayActorError, RayServeException) as error:
        return f"the backbone is down: {type(error).__name__}"
    return ""


async def _server_fault(settings: Settings) -> str:
    if settings.llm.provider != "openai":
        return ""
    key = settings.llm.api_key.get_secret_value()
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        async with httpx.AsyncClient(timeout=CHECK_S) as client:
            reply = await client.get(f"{settings.llm.base_url}/models", headers=headers)
    except httpx.HTTPError as error:
        return f"the backbone's server cannot be reached: {type(error).__name__}"
    refused = reply.status_code in {401, 403} or reply.status_code >= 500
    return f"the backbone's server answers with status {reply.status_code}" if refused else ""
