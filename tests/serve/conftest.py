"""Shared by the tests that start the whole application."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


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
