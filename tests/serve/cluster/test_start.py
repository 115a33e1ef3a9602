"""`vmem serve` cut off while it starts, and starts that fail: one status, and nothing left."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(280)]


class Start:
    """A `vmem serve` of its own, and every process that was seen to descend from it."""

    def __init__(self, home: Path, settings: dict[str, Any]) -> None:
        home.mkdir(exist_ok=True)
        config = home / "serve.yaml"
        config.write_text(yaml.safe_dump(settings))
        self._log = home / "serve.log"
        command = [Path(sys.executable).with_name("vmem"), "serve", "--config", str(config)]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        self._born: dict[int, str] = {}

    @property
    def output(self) -> str:
        return self._log.read_text()

    def watch_until(self, sign: str = "", timeout_s: float = 200) -> int:
        """Look on until a descendant of such a name is there, or until the end; its status."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            status = self.process.poll()
            titles = self._look()
            if status is not None or (sign and any(sign in title for title in titles)):
                return 0 if status is None else status
            time.sleep(0.02)
        raise AssertionError(f"{sign or 'the end'} did not come: {self.output}")

    def left(self) -> list[str]:
        """Command lines of those that are still there."""
        return [_title(pid) for pid, began in self._born.items() if _began(pid) == began]

    def end(self) -> None:
        for pid, began in {self.process.pid: _began(self.process.pid), **self._born}.items():
            if began and _began(pid) == began:
                os.kill(pid, signal.SIGKILL)
        self.process.wait(30)

    def _look(self) -> list[str]:
        parents = {int(f.name): _stat(int(f.name)) for f in Path("/proc").glob("[0-9]*")}
        family = {self.process.pid, *self._born}
        while more := {p for p, s in parents.items() if s and int(s[1]) in family} - family:
            family |= more
            self._born |= {pid: began for pid in more if (began := _began(pid))}
        return [_title(pid) for pid in self._born]


def _stat(pid: int) -> list[str]:
    """Its fields from the state on; none where it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
    return [] if fields[0] == "Z" else fields


def _began(pid: int) -> str:
    stat = _stat(pid)
    return stat[19] if stat else ""


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


@pytest.fixture
def serve(
    tmp_path: Path, served_settings: Callable[..., dict[str, Any]]
) -> Iterator[Callable[..., Start]]:
    from serve.launch import free_port

    started: list[Start] = []

    def start(*, port: int | None = None, home: Path = tmp_path / "home", **memory: Any) -> Start:
        settings = served_settings(home, port or free_port(), ray={"metrics_port": free_port()})
        settings["memory"] |= memory
        started.append(Start(tmp_path / f"start{len(started)}", settings))
        return started[-1]

    yield start
    for one in started:
        one.end()


@pytest.mark.parametrize(
    ("number", "sign"),
    [
        (signal.SIGINT, "milvus-lite server"),
        (signal.SIGTERM, "milvus-lite server"),
        (signal.SIGTERM, "raylet/raylet"),
        (signal.SIGINT, "raylet/raylet"),
        (signal.SIGTERM, "ray::ServeReplica:vmem"),
    ],
)
def test_a_signal_during_the_start_leaves_nothing(
    serve: Callable[..., Start], number: signal.Signals, sign: str
) -> None:
    start = serve()
    assert start.watch_until(sign) == 0, start.output
    os.kill(start.process.pid, number)
    assert start.watch_until() == 128 + number, start.output
    assert start.left() == []
    assert start.output == ""


def test_a_port_that_is_taken_starts_nothing(serve: Callable[..., Start]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        start = serve(port=port)
        assert start.watch_until() == 1
    assert f"port {port} cannot be used" in start.output
    assert "Traceback" not in start.output
    assert start.left() == []


def test_a_store_that_another_process_holds_is_refused(
    serve: Callable[..., Start], tmp_path: Path
) -> None:
    from serve.launch import embedded_store
    from vmem.config import Settings, replace

    home = tmp_path / "home"
    with embedded_store(replace(Settings(), store={"home": home})):
        start = serve()
        assert start.watch_until() == 1
    assert f"the store in {home} cannot be opened" in " ".join(start.output.split())
    assert "Traceback" not in start.output
    assert start.left() == []


@pytest.mark.timeout(600)  # Serve tries three times, ever more slowly
def test_a_replica_that_cannot_start_says_why(serve: Callable[..., Start], tmp_path: Path) -> None:
    missing = {"kind": "minilm", "model": str(tmp_path / "nothing")}
    start = serve(encoders={"text": missing, "image": {"kind": "none"}})
    assert start.watch_until(timeout_s=550) == 1
    output = " ".join(start.output.split())
    assert "the application did not start: EncoderError: the encoder's weights" in output
    assert "Traceback" not in output
    assert start.left() == []
