"""Whole evaluations by the real command, against a scripted server that speaks chat completions.

The server answers by a script and not by a model: what it says depends on the request alone, so
that two runs can be compared, and it counts requests by what they ask.
"""

import asyncio
import hashlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvicorn
import yaml
from fastapi import FastAPI, Request, Response

PATIENCE_S = 900.0
"""Seconds after which a condition that a test waits for is given up: other work may be going on."""
QUESTIONS = 6
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TOKENIZERS_PARALLELISM": "false",
}


@dataclass(frozen=True, kw_only=True)
class Sent:
    """One reply: a status with a body, or nothing for as long as the client waits."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    silent: bool = False


def completion(text: str | None, **message: Any) -> Sent:
    """A chat completion that says something."""
    values = {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "scripted",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"content": text, **message}}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 3},
    }
    return Sent(body=json.dumps(values).encode())


def good(body: Mapping[str, Any], _: int) -> Sent:
    """A judgement where a judge is asked, else a word; both by the request alone."""
    digest = int(key_of(body), 16)
    if body["model"] == "judge":
        return completion(json.dumps({"score": digest % 5 / 4, "reasoning": f"because {digest:x}"}))
    return completion(f"word {digest:x}")


def key_of(body: Mapping[str, Any]) -> str:
    """What a request asks, as a short hash."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:8]


class ScriptedServer:
    """Speaks `/v1/chat/completions` and `/v1/models` on loopback.

    Attributes:
        script: Makes a reply of a request's body and of how often it was asked before.
        models_status: What the list of models is answered with.
        hold: Once a model gave so many replies, all further requests to it wait, and are never
            answered; None lets all pass.
        started: Requests that came, by what they ask.
        answered: Those that were answered.
        held: Those that waited.
        replies: Answers by model.
    """

    def __init__(self) -> None:
        self.script: Callable[[Mapping[str, Any], int], Sent] = good
        self.models_status = 200
        self.hold: tuple[str, int] | None = None
        self.started: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.held: Counter[str] = Counter()
        self.replies: Counter[str] = Counter()
        app = FastAPI()
        app.post("/v1/chat/completions")(self._chat)
        app.get("/v1/models")(self._models)
        config = uvicorn.Config(app, port=0, log_level="critical", ws="none", lifespan="off")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/v1"

    def stop(self) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()

    async def _models(self) -> Response:
        body = {"object": "list", "data": [{"id": name} for name in ("backbone", "judge")]}
        return Response(json.dumps(body), self.models_status, media_type="application/json")

    async def _chat(self, request: Request) -> Response:
        body = await request.json()
        key = key_of(body)
        earlier = self.started[key]
        self.started[key] += 1
        model = body["model"]
        if self.hold and self.hold[0] == model and self.replies[model] >= self.hold[1]:
            self.held[key] += 1
            await _gone(request)
            return Response(status_code=503)
        sent = self.script(body, earlier)
        if sent.silent:
            await _gone(request)
        self.answered[key] += 1
        self.replies[model] += 1
        return Response(sent.body, sent.status, sent.headers, media_type="application/json")


async def _gone(request: Request) -> None:
    """Wait until the client waits no more."""
    while not await request.is_disconnected():  # noqa: ASYNC110 - there is no event for that
        await asyncio.sleep(0.02)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    made = ScriptedServer()
    yield made
    made.stop()


@pytest.fixture
def say() -> Callable[..., Sent]:
    """Makes a chat completion."""
    return completion


@pytest.fixture
def send() -> type[Sent]:
    """Makes any other reply."""
    return Sent


class Evaluation:
    """`vmem eval run` of the sample in a process group of its own, as often as it is called.

    Args:
        folder: Where plan and runs go.
        url: The scripted server.
        options: Of every call, such as `--address`.
        changes: Of the plan.
    """

    def __init__(self, folder: Path, url: str, options: tuple[str, ...], **changes: Any) -> None:
        self.folder = folder
        self._options = options
        self._started: list[subprocess.Popen[str]] = []
        self.plan: dict[str, Any] = {
            "name": "whole",
            "changes": {"encoders": {"text": {"kind": "fake"}, "image": {"kind": "fake"}}},
            "benchmarks": [{"name": "sample", "questions": QUESTIONS}],
            "systems": ["v-mem", "no-memory"],
            "backbones": [{"name": "b", "llm": _llm(url, "backbone"), "concurrency": 2}],
            "judges": [{"name": "j", "llm": _llm(url, "judge"), "concurrency": 2, "planted": 2}],
            "draws": 100,
            **changes,
        }

    def path(self, run: str) -> Path:
        """The folder of a run: all have one name, which a report may tell."""
        return self.folder / run / "run"

    def copy_replies(self, run: str, other: str) -> None:
        """Have another run begin with the replies that one kept."""
        self.path(other).mkdir(parents=True)
        for file in self.path(run).glob("replies.db*"):
            shutil.copy(file, self.path(other))

    def start(self, run: str, *options: str) -> subprocess.Popen[str]:
        """Start the command; both outputs can be read from the process."""
        plan = self.folder / "plan.yaml"
        plan.write_text(yaml.safe_dump(self.plan))
        command = ["eval", "run", "--plan", str(plan), "--out", str(self.path(run))]
        return self.vmem(*command, *self._options, *options)

    def vmem(self, *words: str) -> subprocess.Popen[str]:
        """Start any `vmem` command."""
        process = subprocess.Popen(
            [sys.executable, "-m", "vmem.cli", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **ENVIRONMENT},
            start_new_session=True,
        )
        self._started.append(process)
        return process

    def to_its_end(self, run: str, *options: str, status: int = 0) -> str:
        """Run the command; gives what it says on standard error."""
        process = self.start(run, *options)
        _, said = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == status, said
        return said

    def kill(self, process: subprocess.Popen[str]) -> None:
        """SIGKILL the command's whole group, which must not have ended by itself."""
        assert process.poll() is None
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == -signal.SIGKILL

    def end(self) -> None:
        for process in self._started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()


def _llm(url: str, model: str) -> dict[str, Any]:
    return {"provider": "openai", "base_url": url, "model": model, "timeout_s": 120}


@pytest.fixture
def evaluation(
    tmp_path: Path, server: ScriptedServer, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Evaluation]]:
    """Makes evaluations of a plan with changes; `address=True` has its drivers on a running Ray."""
    made: list[Evaluation] = []

    def make(*, address: bool = False, **changes: Any) -> Evaluation:
        options: tuple[str, ...] = ()
        if address:
            request.getfixturevalue("local_ray")
            import ray

            options = ("--address", ray.get_runtime_context().gcs_address)
        made.append(Evaluation(tmp_path, server.url, options, **changes))
        return made[-1]

    yield make
    for each in made:
        each.end()


@pytest.fixture
def wait_for() -> Callable[[Callable[[], bool], subprocess.Popen[str]], None]:
    """Waits for a condition while a process runs, however slow the machine is."""

    def wait(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline, "the condition never came true"
            time.sleep(0.02)

    return wait


@pytest.fixture
def kept() -> Callable[[Path], int]:
    """Counts the replies that a run has kept."""

    def count(run: Path) -> int:
        path = run / "replies.db"
        if not path.exists():
            return 0
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            return int(connection.execute("SELECT count(*) FROM replies").fetchone()[0])
        except sqlite3.OperationalError:  # it is being made
            return 0
        finally:
            connection.close()

    return count
