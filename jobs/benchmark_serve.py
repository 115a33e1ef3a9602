"""Measures the serving application on this machine: ratios of one run, and a load report.

python -m jobs.benchmark_serve [--config embedded] [--plot runs/load.svg]
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Annotated

import aiohttp
import httpx
import typer

from jobs.benchmark import iqr
from jobs.load_report import measure_load, plot_load, print_load
from jobs.streamed_answers import Streamed, stream_direct, stream_over_http
from serve.launch import address, embedded_store, end, free_port, local_ray, start
from serve.settings import ServeSettings, load_serve_settings
from serve.stopping import stopping
from vmem.bank import Bank
from vmem.config import Settings, replace
from vmem.datasets.sample import read_sample
from vmem.show import console, errors
from vmem.types import Query, Round

MEMORY = "sample"
CLIENTS = (1, 8, 32, 128)
REPEATS = 100
"""Searches timed one after the other, each way in turn."""
ROUNDS_OF_EIGHT = 5
"""Times that eight clients search, each way in turn."""
LOAD_S = 15.0
"""Seconds of load at each number of clients."""
QUESTIONS = tuple(q.query.text for q in read_sample().questions if q.query.image is None)[:16]
ANSWERED = QUESTIONS[:8]
LAG = 3
"""Questions between the two ways of answering one, so that no prompt's state is still cached."""
OPTIONS = {"hypo_caption": False}
"""So that a search means the same in process and over HTTP: no language model."""

Search = Callable[[str], Awaitable[None]]


def main(
    config: Annotated[str, typer.Option("--config")] = "embedded",
    plot: Annotated[Path, typer.Option("--plot", help="Where the plot of the load goes.")] = Path(
        "runs/load.svg"
    ),
) -> None:
    """Print what HTTP adds to a search and to an answer, and times under load."""
    settings = load_serve_settings(config)
    port = {"port": free_port()}
    settings = settings.model_copy(update={"http": settings.http.model_copy(update=port)})
    with stopping() as stop, tempfile.TemporaryDirectory(prefix="vmem-bench-") as folder:
        memory = replace(settings.memory_settings(), store={"home": Path(folder)})
        with embedded_store(memory) as stored, local_ray(settings):
            stop.listen()
            with errors.status("starting"):
                began = time.perf_counter()
                start(settings, stored)
                console.print(f"ready after {time.perf_counter() - began:.0f} s")
            asyncio.run(_measure(settings, stored, plot))
            end()


async def _measure(settings: ServeSettings, memory: Settings, plot: Path) -> None:
    async with httpx.AsyncClient(base_url=address(settings), timeout=300) as client:
        await _append(client, read_sample().dialogues[0].rounds)
        local = Bank(replace(memory, llm={"provider": "none"}), writes=False)
        with errors.status("searching"):
            # A light client: it shares the processors with what it measures.
            async with aiohttp.ClientSession(address(settings), raise_for_status=True) as light:
                await _print_search(light, local)
        if settings.backbone.kind == "embedded":
            with errors.status("answering"):
                await _print_answer(client, local)
        local.close()
    with errors.status("loading"):
        bodies = [{"query": question, "options": OPTIONS} for question in QUESTIONS]
        url = f"{address(settings)}/v1/memories/{MEMORY}/search"
        loads = [await measure_load(url, bodies, clients, LOAD_S) for clients in CLIENTS]
    print_load(loads)
    plot_load(loads, plot)
    console.print(f"plot: {plot}")


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


async def _print_search(client: aiohttp.ClientSession, local: Bank) -> None:
    async def over_http(question: str) -> None:
        body = {"query": question, "options": OPTIONS}
        async with client.post(f"/v1/memories/{MEMORY}/search", json=body) as reply:
            await reply.read()

    async def in_process(question: str) -> None:
        await local.search(MEMORY, Query(text=question))

    ways = (over_http, in_process)
    for search in ways:  # both warm
        await _rate(search, 8)
    seconds: dict[Search, list[float]] = {search: [] for search in ways}
    for number in range(REPEATS):
        for search in ways:
            began = time.perf_counter()
            await search(QUESTIONS[number % len(QUESTIONS)])
            seconds[search].append(time.perf_counter() - began)
    http, bare = seconds[over_http], seconds[in_process]
    pairs = [a / b for a, b in zip(http, bare, strict=True)]
    console.print(
        f"search, 1 client: HTTP {_ms(http)}, in process {_ms(bare)};"
        f" ratio of medians {statistics.median(http) / statistics.median(bare):.2f}"
        f" [IQR of pairs {iqr(pairs)}]"
    )
    rates = [[await _rate(search, 8) for search in ways] for _ in range(ROUNDS_OF_EIGHT)]
    http_rate, bare_rate = (statistics.median(column) for column in zip(*rates, strict=True))
    console.print(
        f"search, 8 clients: HTTP {http_rate:.0f}/s, in process {bare_rate:.0f}/s;"
        f" ratio of medians {http_rate / bare_rate:.2f}"
        f" [IQR of pairs {iqr([a / b for a, b in rates])}]"
    )


async def _rate(search: Search, clients: int, each: int = 20) -> float:
    """Searches a second of some clients at once."""

    async def client() -> None:
        for number in range(each):
            await search(QUESTIONS[number % len(QUESTIONS)])

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return clients * each / (time.perf_counter() - began)


async def _print_answer(client: httpx.AsyncClient, local: Bank) -> None:
    """The same prompts by the application and by its backbone's own handle."""
    served: list[Streamed] = []
    direct: list[Streamed] = []
    path = f"/v1/memories/{MEMORY}/answer"
    for step in range(len(ANSWERED) + LAG):
        if step < len(ANSWERED):
            served.append(await stream_over_http(client, path, ANSWERED[step]))
        if step >= LAG:
            asked = ANSWERED[step - LAG]
            context = served[step - LAG].context
            direct.append(await stream_direct(local.parts.prompts.answer_prompt(context, asked)))
    speeds = [a.tokens_per_s / b.tokens_per_s for a, b in zip(served, direct, strict=True)]
    firsts = [a.first_s / (a.search_s + b.first_s) for a, b in zip(served, direct, strict=True)]
    rate = [statistics.median(s.tokens_per_s for s in way) for way in (served, direct)]
    first = [_ms([s.first_s for s in way]) for way in (served, direct)]
    console.print(
        f"answers ({len(served)}, {statistics.median(s.tokens for s in served):.0f} tokens):"
        f" after the first token {rate[0]:.1f} tokens/s over HTTP, {rate[1]:.1f} from the backbone;"
        f" median ratio {statistics.median(speeds):.2f} [IQR {iqr(speeds)}]"
    )
    console.print(
        f"time to first token: {first[0]} over HTTP, of it {_ms([s.search_s for s in served])}"
        f" searching and anchors; {first[1]} from the backbone; over the sum, median ratio"
        f" {statistics.median(firsts):.2f} [IQR {iqr(firsts)}]"
    )


def _ms(seconds: Sequence[float]) -> str:
    return f"{1000 * statistics.median(seconds):.1f} ms"


if __name__ == "__main__":
    typer.run(main)
