"""Clients that ask a server without a pause: how long answers take, what is refused, what fails."""

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
from rich.table import Table

from vmem.show import console

PERCENTILES = (50, 95, 99)


@dataclass(slots=True, kw_only=True)
class Load:
    """What some clients met.

    Attributes:
        clients: How many there were.
        wall_s: Seconds from the first request to the last answer.
        answered_s: Seconds of each request that was answered.
        refused: Requests refused with 429.
        failed: Requests that got anything else.
    """

    clients: int
    wall_s: float = 0.0
    answered_s: list[float] = field(default_factory=list)
    refused: int = 0
    failed: int = 0

    @property
    def answered_a_second(self) -> float:
        """Requests answered in each second."""
        return len(self.answered_s) / self.wall_s

    def percentile_ms(self, percent: int) -> float:
        """Milliseconds within which so many percent of what was answered were answered."""
        cuts = statistics.quantiles(self.answered_s, n=100, method="inclusive")
        return 1000 * cuts[percent - 1]


async def measure_load(
    url: str, bodies: Sequence[dict[str, Any]], clients: int, seconds: float
) -> Load:
    """Let some clients post for a while, each anew as soon as it is answered.

    A client that is refused waits as long as it is asked to.

    Args:
        url: Where to post.
        bodies: What to post, in turn.
        clients: How many post at once.
        seconds: How long new requests are made.
    """
    load = Load(clients=clients)
    began = time.perf_counter()

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=clients)) as client:

        async def ask(number: int) -> None:
            while time.perf_counter() < began + seconds:
                asked = time.perf_counter()
                async with client.post(url, json=bodies[number % len(bodies)]) as reply:
                    await reply.read()
                if reply.status == HTTPStatus.OK:
                    load.answered_s.append(time.perf_counter() - asked)
                elif reply.status == HTTPStatus.TOO_MANY_REQUESTS:
                    load.refused += 1
                    await asyncio.sleep(float(reply.headers["retry-after"]))
                else:
                    load.failed += 1
                number += 1

        await asyncio.gather(*(ask(number) for number in range(clients)))
    load.wall_s = time.perf_counter() - began
    return load


def print_load(loads: Sequence[Load]) -> None:
    """A table, a row for each number of clients."""
    names = (f"p{percent} ms" for percent in PERCENTILES)
    table = Table("clients", "a second", *names, "answered", "429", "errors")
    for load in loads:
        times = (f"{load.percentile_ms(percent):.0f}" for percent in PERCENTILES)
        counts = (len(load.answered_s), load.refused, load.failed)
        table.add_row(
            str(load.clients), f"{load.answered_a_second:.0f}", *times, *(str(n) for n in counts)
        )
    console.print(table)


def plot_load(loads: Sequence[Load], path: Path) -> None:
    """Draw latency and throughput against the number of clients, as SVG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    clients = [load.clients for load in loads]
    for percent in PERCENTILES:
        times = [load.percentile_ms(percent) for load in loads]
        left.plot(clients, times, marker="o", label=f"p{percent}")
    left.set(xscale="log", yscale="log", ylabel="ms, of what is answered")
    left.legend()
    right.plot(clients, [load.answered_a_second for load in loads], marker="o", color="tab:green")
    right.set(xscale="log", ylim=0, ylabel="searches answered a second")
    for axes in (left, right):
        axes.set_xticks(clients, [str(n) for n in clients])
        axes.minorticks_off()
        axes.set_xlabel("clients at once")
        axes.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
