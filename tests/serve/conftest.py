"""Shared by the tests that start the whole application."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml


@pytest.fixture(scope="session")
def served_settings() -> Callable[..., dict[str, Any]]:
    """Settings of an application of two retrievers with scripted encoders and backbone."""

    def settings(home: Path, port: int, **sections: Any) -> dict[str, Any]:
        return {
            "name": "test",
            "memory": {
                "encoders": {"text": {"kind": "fake"}, "image": {"kind": "fake"}},
                "llm": {"provider": "fake"},
                "store": {"home": str(home)},
            },
            "http": {"port": port, "open_on_loopback": True},
            "retriever": {"replicas": 2, "num_cpus": 0.5},
            **sections,
        }

    return settings


@pytest.fixture
def serve_process() -> Iterator[
    Callable[[Path, dict[str, Any]], tuple[subprocess.Popen[bytes], str]]
]:
    """Starts `vmem serve` with settings kept in a folder; returns it, once ready, and its address.

    It is ended where the test did not.
    """
    started: list[subprocess.Popen[bytes]] = []

    def start(folder: Path, settings: dict[str, Any]) -> tuple[subprocess.Popen[bytes], str]:
        folder.mkdir(exist_ok=True)
        config = folder / "serve.yaml"
        config.write_text(yaml.safe_dump(settings))
        command = [Path(sys.executable).with_name("vmem"), "serve", "--config", str(config)]
        said = folder / "serve.log"
        with said.open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        started.append(process)
        url = f"http://127.0.0.1:{settings['http']['port']}"
        for _ in range(1_000):
            assert process.poll() is None, said.read_text()
            with suppress(httpx.TransportError):
                if httpx.get(f"{url}/readyz").status_code == 200:
                    return process, url
            time.sleep(0.2)
        raise AssertionError(said.read_text())

    yield start
    for process in started:
        if process.poll() is None:
            process.terminate()
            process.wait(90)
