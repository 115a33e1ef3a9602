"""The whole application on a real Ray: two retriever replicas, a real Milvus Lite, real HTTP.

Encoders and backbone are the scripted ones: what is tested here is that nothing is lost.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # read when Ray is imported
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

CAPACITY = 36
"""Searches, and appends, that are taken on at once: some more than the 32 clients of a test."""
SECTIONS: dict[str, Any] = {
    "admission": {"search": CAPACITY, "answer": 4, "append": CAPACITY},
    "limits": {"rate_per_minute": 1_000_000},  # what is refused here is refused by admission
}


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


class Client(httpx.AsyncClient):
    """A caller; rounds are given as their texts by id."""

    async def post_rounds(self, memory: str, texts: Mapping[str, str]) -> httpx.Response:
        rounds = [
            {"id": each, "session": "s", "time": "2026-05-04T09:00", "user": text}
            for each, text in texts.items()
        ]
        return await self.post(f"/v1/memories/{memory}/rounds", json={"rounds": rounds})

    async def append(self, memory: str, texts: Mapping[str, str]) -> None:
        reply = await self.post_rounds(memory, texts)
        assert reply.status_code == 200, reply.text

    async def search(self, memory: str, query: str) -> httpx.Response:
        return await self.post(f"/v1/memories/{memory}/search", json={"query": query})

    async def found(self, memory: str, query: str) -> list[str]:
        """The ids of the rounds that a search cites, the best first."""
        reply = await self.search(memory, query)
        assert reply.status_code == 200, reply.text
        return [cited["round_id"] for cited in reply.json()["citations"]]

    async def round_ids(self, memory: str) -> list[str]:
        """The ids of all rounds, page by page."""
        ids: list[str] = []
        after: int | None = -1
        while after is not None:
            reply = await self.get(f"/v1/memories/{memory}/rounds", params={"after": after})
            page = reply.raise_for_status().json()
            ids += [each["id"] for each in page["rounds"]]
            after = page["next"]
        return ids


def _client(url: str) -> Client:
    return Client(base_url=url, timeout=60, limits=httpx.Limits(max_connections=None))


@pytest.fixture(scope="session")
def connect() -> Callable[[str], Client]:
    """A caller of an application, by its address."""
    return _client


@dataclass(frozen=True, kw_only=True)
class Running:
    """An application that answers.

    Attributes:
        url: Its address.
        home: Its store's folder.
        logs: The folder of Serve's logs.
        capacity: Searches, and appends, that it takes on at once.
    """

    url: str
    home: Path
    logs: Path
    capacity: int = CAPACITY

    def logs_of(self, deployment: str) -> list[str]:
        """The log of each replica that a deployment has or had."""
        files = self.logs.glob(f"replica_vmem_{deployment}_*.log")
        return [file.read_text() for file in files]

    def calls(self, deployment: str, mark: str) -> list[tuple[datetime, datetime]]:
        """From when to when replicas worked on each call whose request id begins with a mark."""
        lines = re.findall(
            rf"^INFO (\S+ \S+) \S+ \S+ {mark}\S* -- CALL \w+ OK ([\d.]+)ms$",
            "".join(self.logs_of(deployment)),
            re.M,
        )
        ends = [
            (datetime.fromisoformat(end), timedelta(milliseconds=float(ms))) for end, ms in lines
        ]
        return [(end - spent, end) for end, spent in ends]

    def client(self) -> Client:
        return _client(self.url)


@pytest.fixture(scope="session")
def running(
    tmp_path_factory: pytest.TempPathFactory, served_settings: Callable[..., dict[str, Any]]
) -> Iterator[Running]:
    import ray

    from serve.launch import address, embedded_store, end, free_port, local_ray, start
    from serve.settings import load_serve_settings

    home = tmp_path_factory.mktemp("served")
    settings = load_serve_settings(served_settings(home, free_port(), **SECTIONS))
    with embedded_store(settings.memory_settings()) as memory, local_ray(settings):
        start(settings, memory)
        session = ray._private.worker._global_node.get_session_dir_path()
        logs = Path(session) / "logs" / "serve"
        yield Running(url=address(settings), home=home, logs=logs)
        end()


@pytest.fixture
def serve_process(
    serve_process: Callable[[Path, dict[str, Any]], Any],
    served_settings: Callable[..., dict[str, Any]],
) -> Callable[[Path], Any]:
    """Starts `vmem serve` over a folder in a process of its own; returns it and its address."""
    from serve.launch import free_port

    return lambda home: serve_process(home, served_settings(home, free_port(), **SECTIONS))


@pytest.fixture(scope="session")
def replica_pids() -> Callable[..., list[int]]:
    """Processes of a deployment's replicas that descend from this process."""
    return lambda deployment: _pids(f"ray::ServeReplica:vmem:{deployment}")


@pytest.fixture(scope="session")
def resident_mib() -> Callable[[], float]:
    """Resident memory of all replicas and of the proxy, the object store's pages apart, in MiB."""

    def size() -> float:
        pids = [*_pids("ray::ServeReplica:vmem:"), *_pids("ray::ProxyActor")]
        status = "".join(Path(f"/proc/{pid}/status").read_text() for pid in pids)
        return sum(map(int, re.findall(r"^RssAnon:\s+(\d+) kB", status, re.M))) / 1024

    return size


def _pids(title: str) -> list[int]:
    every = [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit()]
    named = [pid for pid in every if _title(pid).startswith(title.encode())]
    return [pid for pid in named if os.getpid() in _ancestors(pid)]


def _title(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _ancestors(pid: int) -> set[int]:
    found: set[int] = set()
    while pid > 1:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return found
        pid = int(stat.rpartition(")")[2].split()[1])
        found.add(pid)
    return found
