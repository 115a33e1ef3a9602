"""Measures how busy the stages of an evaluation keep a server, and what they add to its time.

python -m jobs.benchmark_eval [--concurrency 8] [--repeats 3] [--data LOCOMO]

The server is a process of its own that takes as long for every call. What stages add is their time
from the first call to the last reply over the least it could be, calls × latency / concurrency; a
bare client of the same calls says what of it is the machine's and the server's own.
"""

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import aiohttp
import httpx
import numpy as np
import torch
import typer
from rich.table import Table

from jobs.benchmark_data import write_locomo
from jobs.benchmark_server import Work
from jobs.evaluation.evaluate import drive
from jobs.evaluation.plan import Plan
from jobs.evaluation.records import Stage
from vmem.show import console, errors

LATENCY_S = 0.1
BARE = "bare client"
SYSTEMS = ("bm25", "v-mem")
"""Searched without and with encoders; what they take is theirs, and not the stage's."""
FAKE = {"encoders": {"text": {"kind": "fake"}, "image": {"kind": "fake"}}}
PROMPT = "Some words of a context that is as long as those of a real question are. " * 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One stage against the server.

    Attributes:
        work: What the server did.
        concurrency: Calls that it was to have under way.
        cpu_s: Processor time of this process from the first call to the last reply.
    """

    work: Work
    concurrency: int
    cpu_s: float

    @property
    def added(self) -> float:
        """Time over the least that it could be, less 1."""
        return self.work.wall * self.concurrency / (self.work.calls * LATENCY_S) - 1


def main(
    concurrency: Annotated[list[int], typer.Option("--concurrency")] = [8, 32],  # noqa: B006
    repeats: Annotated[int, typer.Option("--repeats", min=2)] = 3,
    data: Annotated[Path | None, typer.Option("--data", help="LoCoMo; else the sample.")] = None,
) -> None:
    """Print busy shares, time added and processor time a call, at each limit of calls at once."""
    torch.set_num_threads(1)  # as Ray sets it for a driver of one processor
    with tempfile.TemporaryDirectory(prefix="vmem-bench-") as folder, _server() as url:
        data = data or write_locomo(Path(folder))
        for limit in concurrency:
            found: dict[str, list[Measured]] = {}
            for number in range(repeats):
                with errors.status(f"{limit} calls at once, {number + 1} of {repeats}"):
                    path = Path(folder) / f"{limit}.{number}"
                    for name, measured in _measure(url, limit, data, path):
                        found.setdefault(name, []).append(measured)
            _print(limit, found)


@contextmanager
def _server() -> Iterator[str]:
    """The server's address, while it runs."""
    command = [sys.executable, "-m", "jobs.benchmark_server", str(LATENCY_S)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            if server.stdout is None or not (port := server.stdout.readline().strip()):
                raise typer.Exit(1)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


def _measure(url: str, limit: int, data: Path, path: Path) -> Iterator[tuple[str, Measured]]:
    def stage(run: Callable[[], object]) -> Measured:
        return _stage(url, limit, run)

    alone = _plan(url, limit, data, "no-memory", FAKE)
    answered = stage(lambda: _answer(alone, path / "alone"))
    yield "answers, no memory", answered
    judged = stage(lambda: drive(Stage.JUDGE, alone, alone.judges[0], path / "alone"))
    yield "judgements", judged
    bare = stage(lambda: asyncio.run(_bare(url, limit, answered.work.calls)))
    yield BARE, bare
    for system in SYSTEMS:
        plan = _plan(url, limit, data, system, {})
        yield f"answers, {system}", stage(partial(_answer, plan, path / system))


def _answer(plan: Plan, path: Path) -> None:
    drive(Stage.ANSWER, plan, plan.backbones[0], path)


def _plan(url: str, limit: int, data: Path, system: str, changes: dict[str, Any]) -> Plan:
    model = {
        "llm": {"provider": "openai", "base_url": f"{url}/v1", "model": "fixed"},
        "concurrency": limit,
        "self_hosted": True,
    }
    return Plan(
        name="bench",
        changes=changes,
        benchmarks=[{"name": "locomo", "data": data}],
        systems=[system],
        backbones=[{"name": "backbone", **model}],
        judges=[{"name": "judge", **model}],
    )


def _stage(url: str, limit: int, run: Callable[[], object]) -> Measured:
    httpx.post(f"{url}/work")
    with _clocks() as clocks:
        run()
    work = Work(**httpx.get(f"{url}/work").json())
    if work.most > limit:
        raise AssertionError(f"{work.most} calls at once, over the limit of {limit}")
    at, cpu = np.array(clocks).T
    first, last = np.interp([work.first, work.last], at, cpu)
    return Measured(work=work, concurrency=limit, cpu_s=float(last - first))


@contextmanager
def _clocks() -> Iterator[list[tuple[float, float]]]:
    """The machine's clock and this process's processor time, read now and then."""
    read: list[tuple[float, float]] = []
    done = threading.Event()

    def look() -> None:
        while True:
            read.append((time.perf_counter(), time.process_time()))
            if done.wait(0.25):  # a thread that wakes often would be measured too
                break
        read.append((time.perf_counter(), time.process_time()))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield read
    finally:
        done.set()
        looking.join()


async def _bare(url: str, limit: int, calls: int) -> None:
    """As many calls by the lightest client there is, which keeps nothing."""
    numbers = iter(range(calls))

    async def client(session: aiohttp.ClientSession) -> None:
        for number in numbers:
            message = {"role": "user", "content": f"{number} {PROMPT}"}
            body = {"model": "fixed", "messages": [message], "max_tokens": 128}
            async with session.post(f"{url}/v1/chat/completions", json=body) as reply:
                await reply.json()

    async with (
        aiohttp.ClientSession(raise_for_status=True) as session,
        asyncio.TaskGroup() as tasks,
    ):
        for _ in range(limit):
            tasks.create_task(client(session))


def _print(limit: int, found: dict[str, list[Measured]]) -> None:
    repeats = len(next(iter(found.values())))
    table = Table(
        title=f"{limit} calls at once, {LATENCY_S * 1000:.0f} ms each: medians [IQR] of {repeats};"
        f" load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    columns: dict[str, Callable[[Measured], float]] = {
        "busy %": lambda one: 100 * one.work.busy(limit),
        "added %": lambda one: 100 * one.added,
        "CPU ms": lambda one: 1000 * one.cpu_s / one.work.calls,
        "server's": lambda one: 1000 * one.work.cpu / one.work.calls,
        "call ms": lambda one: 1000 * one.work.served / one.work.calls,
    }
    for name in ("", "calls", *columns, "over bare %"):
        table.add_column(name)
    for name, runs in found.items():
        cells = [_shown([read(one) for one in runs]) for read in columns.values()]
        pairs = zip(runs, found[BARE], strict=True)
        over = [100 * ((1 + one.added) / (1 + bare.added) - 1) for one, bare in pairs]
        table.add_row(name, str(runs[0].work.calls), *cells, _shown(over))
    console.print(table)
    console.print(
        "added: time over calls × latency / concurrency; CPU ms: this process's a call, and beside"
        " it the server's; call ms: what a call took there; over bare: time over the bare client's"
    )


def _shown(values: Sequence[float]) -> str:
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{statistics.median(values):.1f} [{low:.1f}, {high:.1f}]"


if __name__ == "__main__":
    typer.run(main)
