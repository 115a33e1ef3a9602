"""Replicas of a local Ray listen on loopback only; `-m cluster` looks at the real ones."""

import sys
from collections.abc import Iterator

import pytest

from serve import loopback


class _Server:
    """Notes what a gRPC server would open."""

    def __init__(self) -> None:
        self.opened: list[str] = []

    def add_insecure_port(self, address: str) -> int:
        self.opened.append(address)
        return 4711


@pytest.fixture
def unpatched() -> Iterator[None]:
    before = loopback.tls_utils.add_port_to_grpc_server
    yield
    loopback.tls_utils.add_port_to_grpc_server = before


@pytest.mark.usefixtures("unpatched")
def test_what_serve_opens_everywhere_is_opened_on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_USE_TLS", "0")
    loopback.stay_on_loopback()
    server = _Server()
    assert loopback.tls_utils.add_port_to_grpc_server(server, "[::]:0") == 4711
    assert server.opened == ["127.0.0.1:0"]


def test_the_name_that_workers_are_told_is_the_hook() -> None:
    module, _, name = loopback.SETUP_HOOK.rpartition(".")
    assert getattr(sys.modules[module], name) is loopback.stay_on_loopback


def test_serves_replica_takes_the_function_from_where_it_is_replaced() -> None:
    """A Ray that opens its port another way must fail here, not listen everywhere in silence."""
    from ray.serve._private import replica

    assert replica.add_port_to_grpc_server is loopback._open_port
