"""Measures the serving application on this machine: ratios of one run, and a load report.

python -m jobs.benchmark_serve [--config embedded]
"""

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, cast

import httpx
import typer
from ray import serve as ray_serve
from ray.serve.handle import DeploymentResponseGenerator
from rich.table import Table

from jobs.benchmark import iqr
from serve.app import NAME
from serve.launch import address, embedded_store, end, free_port, local_ray, start
from serve.settings import ServeSettings, load_serve_settings
from vmem.bank import Bank
from vmem.config import Settings, replace
from vmem.datasets.sample import read_sample
from vmem.ports import ChatReply, ChatRequest
from vmem.show import console, errors
from vmem.types import Query, Round

MEMORY = "sample"
CLIENTS = (1, 8, 32, 128)
REPEATS = 60
"""Searches timed one after the other, each way in turn."""
LOAD_S = 15.0
"""Seconds of load at each number of clients."""
QUESTIONS = tuple(q.query.text for q in read_sample().questions if q.query.image is None)[:16]
OPTIONS = {"hypo_caption": False}
"""So that a search means the same in process and over HTTP: no language model."""


def main(config: Annotated[str, typer.Option("--config")] = "embedded") -> None:
    """Print what HTTP adds to a search and to an answer, and times under load."""
    settings = load_serve_settings(config)
    port = {"port": free_port()}
    settings = settings.model_copy(update={"http": settings.http.model_copy(update=port)})
    with tempfile.TemporaryDirectory(prefix="vmem-bench-") as folder:
        memory = replace(settings.memory_settings(), store={"home": Path(folder)})
        with embedded_store(memory) as stored, local_ray(settings.ray):
            with errors.status("starting"):
                began = time.perf_counter()
                start(settings, stored)
                console.print(f"ready after {time.perf_counter() - began:.0f} s")
            asyncio.run(_measure(settings, stored))
            end()


async def _measure(settings: ServeSettings, memory: Settings) -> None:
    async with httpx.AsyncClient(base_url=address(settings), timeout=300) as client:
        rounds = read_sample().dialogues[0].rounds
        await _append(client, rounds)
        local = Bank(replace(memory, llm={"provider": "none"}), writes=False)
        over_http, in_process = _searches(client, local)
        with errors.status("searching"):
            await _print_search(over_http, in_process)
        if settings.backbone.kind == "embedded":
            with errors.status("answering"):
                await _print_answer(client)
        with errors.status("loading"):
            await _print_load(address(settings))
        local.close()


async def _append(client: httpx.AsyncClient, rounds: Sequence[Round]) -> None:
    """The sample's words; its pictures would measure their upload."""
    body = [
        {
            "id": round_.id,
            "session": round_.session,
            "time": round_.time,
            "turns": [
                {"speaker": turn.speaker, "text": turn.text} for turn in round_.turns if turn.text
            ],
        }
        for round_ in rounds
        if any(turn.text for turn in round_.turns)
    ]
    reply = await client.post(f"/v1/memories/{MEMORY}/rounds", json={"rounds": body})
    reply.raise_for_status()


Search = Callable[[str], Awaitable[None]]


def _searches(client: httpx.AsyncClient, local: Bank) -> tuple[Search, Search]:
    async def over_http(question: str) -> None:
        body = {"query": question, "options": OPTIONS}
        reply = await client.post(f"/v1/memories/{MEMORY}/search", json=body)
        reply.raise_for_status()

    async def in_process(question: str) -> None:
        await local.search(MEMORY, Query(text=question))

    return over_http, in_process


async def _print_search(over_http: Search, in_process: Search) -> None:
    for search in (over_http, in_process):
        for question in QUESTIONS:
            await search(question)
    seconds: dict[Search, list[float]] = {over_http: [], in_process: []}
    for number in range(REPEATS):
        for search in (over_http, in_process):
            began = time.perf_counter()
            await search(QUESTIONS[number % len(QUESTIONS)])
            seconds[search].append(time.perf_counter() - began)
    http, bare = seconds[over_http], seconds[in_process]
    ratios = [a / b for a, b in zip(http, bare, strict=True)]
    console.print(
        f"search, 1 client: HTTP {_ms(http)}, in process {_ms(bare)};"
        f" ratio of medians {statistics.median(http) / statistics.median(bare):.2f}"
        f" [IQR of pairs {iqr(ratios)}]"
    )
    rates = {search: [await _rate(search, 8) for _ in range(3)] for search in seconds}
    http_rate, bare_rate = (statistics.median(rates[s]) for s in (over_http, in_process))
    console.print(
        f"search, 8 clients: HTTP {http_rate:.0f}/s, in process {bare_rate:.0f}/s;"
        f" ratio {http_rate / bare_rate:.2f}"
    )


async def _rate(search: Search, clients: int, each: int = 20) -> float:
    """Searches a second of some clients at once."""

    async def client() -> None:
        for number in range(each):
            await search(QUESTIONS[number % len(QUESTIONS)])

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return clients * each / (time.perf_counter() - began)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Streamed:
    """One streamed answer: when its first piece and its end came, and its tokens."""

    first_s: float
    end_s: float
    tokens: int
    retrieval_s: float = 0.0

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.end_s


async def _print_answer(client: httpx.AsyncClient) -> None:
    """The same prompts by the application and by its backbone's own handle."""
    handle = ray_serve.get_deployment_handle("Backbone", NAME)
    served, direct = [], []
    for question in QUESTIONS:
        body = {"query": question, "stream": True, "explain": True, "options": {"max_tokens": 64}}
        explained = {**body, "stream": False, "options": {"max_tokens": 1}}
        reply = await client.post(f"/v1/memories/{MEMORY}/answer", json=explained)
        prompt = reply.raise_for_status().json()["prompt"]
        other = f"{time.time_ns()} {prompt}"  # a cached prompt would flatter whoever comes second
        request = ChatRequest(role="answer", prompt=other, max_tokens=64)
        streamed = handle.options(stream=True).stream.remote(request)
        pieces = cast(DeploymentResponseGenerator[str | ChatReply], streamed)
        direct.append(await _timed(pieces))
        served.append(await _timed_http(client, {**body, "query": f"{question} {time.time_ns()}"}))
    rate = [statistics.median(s.tokens_per_second for s in each) for each in (served, direct)]
    first = [s.first_s / (s.retrieval_s + d.first_s) for s, d in zip(served, direct, strict=True)]
    console.print(
        f"answer: {rate[0]:.1f} tokens/s over HTTP, {rate[1]:.1f} from the backbone;"
        f" ratio {rate[0] / rate[1]:.2f}"
    )
    console.print(
        f"time to first token over retrieval + backbone's own: {statistics.median(first):.2f}"
        f" [IQR {iqr(first)}]"
    )


async def _timed(pieces: AsyncIterator[str | ChatReply]) -> _Streamed:
    began = time.perf_counter()
    first_s, tokens = 0.0, 0
    async for piece in pieces:
        first_s = first_s or time.perf_counter() - began
        if isinstance(piece, ChatReply):
            tokens = piece.usage.completion_tokens
    return _Streamed(first_s=first_s, end_s=time.perf_counter() - began, tokens=tokens)


async def _timed_http(client: httpx.AsyncClient, body: dict[str, object]) -> _Streamed:
    began = time.perf_counter()
    first_s, tokens, retrieval_s, event = 0.0, 0, 0.0, ""
    path = f"/v1/memories/{MEMORY}/answer"
    async with client.stream("POST", path, json=body) as reply:
        reply.raise_for_status()
        async for line in reply.aiter_lines():
            if line.startswith("event:"):
                event = line.removeprefix("event:").strip()
            elif line.startswith("data:"):
                data = json.loads(line.removeprefix("data:"))
                if event == "found":
                    retrieval_s = sum(data["seconds"].values())
                elif event == "token":
                    first_s = first_s or time.perf_counter() - began
                elif event == "done":
                    tokens = sum(
                        u["completion_tokens"] for u in data["usage"] if u["role"] == "answer"
                    )
                elif event == "error":
                    raise RuntimeError(data["error"]["message"])
    return _Streamed(
        first_s=first_s, end_s=time.perf_counter() - began, tokens=tokens, retrieval_s=retrieval_s
    )


async def _print_load(base_url: str) -> None:
    table = Table("clients", "searches/s", "p50 ms", "p95 ms", "p99 ms", "refused (429)", "errors")
    for clients in CLIENTS:
        load = await _load(base_url, clients)
        table.add_row(str(clients), *load.cells())
    console.print(table)


@dataclass(slots=True)
class _Load:
    seconds: list[float]
    refused: int = 0
    failed: int = 0

    def cells(self) -> list[str]:
        cuts = statistics.quantiles(self.seconds, n=100, method="inclusive")
        times = [f"{1000 * cuts[percent - 1]:.0f}" for percent in (50, 95, 99)]
        rate = f"{len(self.seconds) / LOAD_S:.0f}"
        return [rate, *times, str(self.refused), str(self.failed)]


async def _load(base_url: str, clients: int) -> _Load:
    """Searches of so many clients, each asking again as soon as it is answered or refused."""
    load = _Load([])
    deadline = time.perf_counter() + LOAD_S
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)

    async with httpx.AsyncClient(base_url=base_url, timeout=60, limits=limits) as client:

        async def ask(number: int) -> None:
            while time.perf_counter() < deadline:
                body = {"query": QUESTIONS[number % len(QUESTIONS)], "options": OPTIONS}
                began = time.perf_counter()
                reply = await client.post(f"/v1/memories/{MEMORY}/search", json=body)
                if reply.status_code == httpx.codes.OK:
                    load.seconds.append(time.perf_counter() - began)
                elif reply.status_code == httpx.codes.TOO_MANY_REQUESTS:
                    load.refused += 1
                    await asyncio.sleep(float(reply.headers["retry-after"]))
                else:
                    load.failed += 1
                number += 1

        await asyncio.gather(*(ask(number) for number in range(clients)))
    return load


def _ms(seconds: Sequence[float]) -> str:
    return f"{1000 * statistics.median(seconds):.1f} ms"


if __name__ == "__main__":
    typer.run(main)
