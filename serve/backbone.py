"""The backbone behind a Serve handle: a model in a deployment of its own, and its client."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast

from ray.serve.handle import DeploymentHandle, DeploymentResponseGenerator

from serve.handles import check_replica, model_failures, read
from vmem.build import make_chat
from vmem.config import Settings
from vmem.errors import ConfigError
from vmem.ports import ChatModel, ChatReply, ChatRequest
from vmem.tokens import estimate_tokens


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

    async def stream(self, request: ChatRequest) -> AsyncGenerator[str | ChatReply, None]:
        """Answer a request piece by piece, as `ChatModel.stream`."""
        async with aclosing(self._chat.stream(request)) as pieces:
            async for piece in pieces:
                yield piece

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Answer a request, as `ChatModel.complete`."""
        return await self._chat.complete(request)

    async def check_health(self) -> None:
        """What Serve asks now and then; a replica whose model died is replaced.

        Raises:
            ModelError: It does not answer.
        """
        await self._chat.check()


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
        with model_failures(self._name, self._timeout_s):
            async with asyncio.timeout(self._timeout_s):
                reply: ChatReply = await self._handle.complete.remote(request)
                return reply

    async def stream(self, request: ChatRequest) -> AsyncGenerator[str | ChatReply, None]:
        """Answer one request piece by piece; see `ChatModel.stream`."""
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        replies = self._handle.options(stream=True).stream.remote(request)
        pieces = cast(DeploymentResponseGenerator[str | ChatReply], replies)
        with model_failures(self._name, self._timeout_s):
            async with aclosing(read(pieces, deadline)) as items:
                async for piece in items:
                    yield piece

    async def check(self) -> None:
        """Ask a replica whether its model answers; see `ChatModel.check`."""
        await check_replica(self._handle, self._name)

    def count_tokens(self, text: str) -> int:
        """An upper estimate: counting in the replica would cost a call a block."""
        return estimate_tokens(text)

    async def close(self) -> None:
        """Nothing: the deployment lives on."""
