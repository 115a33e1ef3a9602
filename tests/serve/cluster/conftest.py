"""The whole application on a real Ray: two retriever replicas, a real Milvus Lite, real HTTP.

Encoders and backbone are the scripted ones: what is tested here is that nothing is lost.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # read when Ray is imported
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

ADMISSION = {"search": 16, "answer": 4, "append": 64}


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@dataclass(frozen=True, kw_only=True)
class Running:
    """An application that answers.

    Attributes:
        url: Its address.
        home: Its store's folder.
        logs: The folder of Serve's logs.
    """

    url: str
    home: Path
    logs: Path

    def log_of(self, deployment: str) -> str:
        files = self.logs.glob(f"replica_vmem_{deployment}_*.log")
        return "".join(file.read_text() for file in files)

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.url, timeout=60)


@pytest.fixture(scope="session")
def running(
    tmp_path_factory: pytest.TempPathFactory, served_settings: Callable[..., dict[str, Any]]
) -> Iterator[Running]:
    import ray

    from serve.launch import address, embedded_store, end, free_port, local_ray, start
    from serve.settings import load_serve_settings

    home = tmp_path_factory.mktemp("served")
    settings = load_serve_settings(served_settings(home, free_port(), admission=ADMISSION))
    with embedded_store(settings.memory_settings()) as memory, local_ray(settings.ray):
        start(settings, memory)
        session = ray._private.worker._global_node.get_session_dir_path()
        logs = Path(session) / "logs" / "serve"
        yield Running(url=address(settings), home=home, logs=logs)
        end()


@pytest.fixture
def serve_process(
    served_settings: Callable[..., dict[str, Any]],
) -> Iterator[Callable[[Path], tuple[subprocess.Popen[bytes], str]]]:
    """Starts `vmem serve` in a process of its own, and ends it where the test did not."""
    started: list[subprocess.Popen[bytes]] = []

    def start(home: Path) -> tuple[subprocess.Popen[bytes], str]:
        from serve.launch import free_port

        home.mkdir(exist_ok=True)
        port = free_port()
        config = home / "serve.yaml"
        config.write_text(yaml.safe_dump(served_settings(home, port, admission=ADMISSION)))
        command = [Path(sys.executable).with_name("vmem"), "serve", "--config", str(config)]
        with (home / "serve.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        started.append(process)
        url = f"http://127.0.0.1:{port}"
        for _ in range(600):
            assert process.poll() is None, (home / "serve.log").read_text()
            with suppress(httpx.TransportError):
                if httpx.get(f"{url}/readyz").status_code == 200:
                    return process, url
            time.sleep(0.2)
        raise AssertionError((home / "serve.log").read_text())

    yield start
    for process in started:
        if process.poll() is None:
            process.terminate()
            process.wait(60)


@pytest.fixture(scope="session")
def replica_pids() -> Callable[..., list[int]]:
    """Processes of a deployment's replicas that descend from this process."""

    def pids(deployment: str) -> list[int]:
        title = f"ray::ServeReplica:vmem:{deployment}".encode()
        every = [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit()]
        return [p for p in every if _title(p).startswith(title) and os.getpid() in _ancestors(p)]

    return pids


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
