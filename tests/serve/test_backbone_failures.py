"""A dead, slow or lying backbone: searches go on, answers fail with a fixed sentence.

The backbone is a small HTTP server that misbehaves on purpose; the replicas run in this process
(Serve's local testing mode), the rest is the real thing.
"""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from serve.settings import load_serve_settings

pytestmark = pytest.mark.anyio

Scope = dict[str, Any]
Misbehaviour = Callable[[Callable[[dict[str, Any]], Awaitable[None]]], Awaitable[None]]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def _replies(status: int, body: bytes) -> Misbehaviour:
    async def misbehave(send: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return misbehave


async def _hangs(send: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
    await asyncio.sleep(30)


def _error(message: str, code: str) -> bytes:
    return json.dumps({"error": {"message": message, "code": code}}).encode()


SECRET = "Traceback: /srv/secret.py sk-12345"
CASES: dict[str, tuple[Misbehaviour, int, str]] = {
    "hangs": (_hangs, 504, "model_timeout"),
    "429": (_replies(429, _error(SECRET, "rate")), 503, "model_unavailable"),
    "500": (_replies(500, _error(SECRET, "boom")), 503, "model_unavailable"),
    "broken JSON": (_replies(200, b'{"choices": [{'), 502, "model_failed"),
    "no choices": (_replies(200, b"{}"), 502, "model_failed"),
    "over-long prompt": (
        _replies(400, _error(f"maximum context length is 8. {SECRET}", "x")),
        502,
        "model_failed",
    ),
    "wrong key": (_replies(401, _error(SECRET, "x")), 502, "model_failed"),
}


@contextlib.asynccontextmanager
async def _backbone(misbehave: Misbehaviour) -> AsyncIterator[str]:
    async def app(scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await misbehave(send)

    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="critical"))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
    finally:
        server.force_exit = server.should_exit = True
        await serving


@contextlib.asynccontextmanager
async def _client(
    local_app: Callable[..., FastAPI], home: Path, base_url: str
) -> AsyncIterator[httpx.AsyncClient]:
    settings = load_serve_settings(
        {
            "name": "failing",
            "memory": {
                "encoders": {"text": {"kind": "fake"}, "image": {"kind": "fake"}},
                "llm": {
                    "provider": "openai",
                    "base_url": base_url,
                    "model": "m",
                    "timeout_s": 1.0,
                    "anchor_timeout_s": 0.5,
                    "attempts": 1,
                },
                "store": {"home": str(home)},
            },
            "http": {"open_on_loopback": True},
            "backbone": {"kind": "remote"},
        }
    )
    transport = httpx.ASGITransport(local_app(settings), client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        round_ = {"id": "1", "user": "a red kite", "time": "2026-05-04", "session": "s"}
        reply = await client.post("/v1/memories/m/rounds", json={"rounds": [round_]})
        assert reply.status_code == 200, reply.text
        yield client


async def _check(client: httpx.AsyncClient, status: int, code: str) -> None:
    question = {"query": "Which picture shows the kite?"}
    found = await client.post("/v1/memories/m/search", json=question)
    assert found.status_code == 200, found.text
    assert found.json()["citations"][0]["round_id"] == "1"
    assert any("caption" in note for note in found.json()["notes"])
    assert SECRET not in found.text
    answer = await client.post("/v1/memories/m/answer", json=question)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["code"] == code
    assert error["request_id"] == answer.headers["x-request-id"]
    assert "\n" not in error["message"]
    assert "secret" not in answer.text
    streamed = await client.post("/v1/memories/m/answer", json={**question, "stream": True})
    assert "event: found" in streamed.text
    assert f'"{code}"' in streamed.text.split("event: error")[1]
    assert "secret" not in streamed.text


@pytest.mark.parametrize("name", CASES)
async def test_searches_go_on_and_answers_fail_with_a_fixed_sentence(
    local_app: Callable[..., FastAPI], tmp_path: Path, name: str
) -> None:
    misbehave, status, code = CASES[name]
    async with _backbone(misbehave) as base_url, _client(local_app, tmp_path, base_url) as client:
        await _check(client, status, code)


async def test_a_backbone_that_is_not_there(
    local_app: Callable[..., FastAPI], tmp_path: Path
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with _client(local_app, tmp_path, f"http://127.0.0.1:{port}/v1") as client:
        await _check(client, 503, "model_unavailable")
