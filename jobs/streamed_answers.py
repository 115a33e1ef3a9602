"""One streamed answer, timed: by the application over HTTP, or by its backbone alone."""

import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, cast

import httpx
from ray import serve as ray_serve
from ray.serve.handle import DeploymentResponseGenerator

from serve.app import NAME
from vmem.ports import ChatReply, ChatRequest

OPTIONS = {"max_tokens": 48, "top_k": 3}
"""A short prompt and a short answer: on CPUs the model's own work hides what is added to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Streamed:
    """When an answer's first piece and its end came.

    Attributes:
        first_s: Seconds to the first piece.
        end_s: Seconds to the last.
        tokens: Tokens of the answer.
        search_s: Seconds of retrieval and anchors, as the application tells them.
        context: The context that the application gave its backbone.
    """

    first_s: float
    end_s: float
    tokens: int
    search_s: float = 0.0
    context: str = ""

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second after the first."""
        return (self.tokens - 1) / (self.end_s - self.first_s)


async def stream_over_http(client: httpx.AsyncClient, path: str, question: str) -> Streamed:
    """Ask the application.

    Raises:
        httpx.HTTPStatusError, RuntimeError: It fails.
    """
    body = {"query": question, "stream": True, "options": OPTIONS}
    began = time.perf_counter()
    first_s, found, done = 0.0, {}, {}
    async with client.stream("POST", path, json=body) as reply:
        reply.raise_for_status()
        async for event, data in _events(reply):
            if event == "error":
                raise RuntimeError(data["error"]["message"])
            if event == "found":
                found = data
            elif event == "done":
                done = data
            elif not first_s:
                first_s = time.perf_counter() - began
    usage = [used for used in done["usage"] if used["role"] == "answer"]
    return Streamed(
        first_s=first_s,
        end_s=time.perf_counter() - began,
        tokens=sum(used["completion_tokens"] for used in usage),
        search_s=sum(found["seconds"].values()),
        context=found["context"]["text"],
    )


async def _events(reply: httpx.Response) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    event = ""
    async for line in reply.aiter_lines():
        if line.startswith("event:"):
            event = line.removeprefix("event:").strip()
        elif line.startswith("data:"):
            yield event, json.loads(line.removeprefix("data:"))


async def stream_direct(prompt: str) -> Streamed:
    """Ask the running application's backbone through its handle."""
    handle = ray_serve.get_deployment_handle("Backbone", NAME).options(stream=True)
    request = ChatRequest(role="answer", prompt=prompt, max_tokens=OPTIONS["max_tokens"])
    began = time.perf_counter()
    first_s, tokens = 0.0, 0
    pieces = cast(DeploymentResponseGenerator[str | ChatReply], handle.stream.remote(request))
    async for piece in pieces:
        first_s = first_s or time.perf_counter() - began
        if isinstance(piece, ChatReply):
            tokens = piece.usage.completion_tokens
    return Streamed(first_s=first_s, end_s=time.perf_counter() - began, tokens=tokens)
