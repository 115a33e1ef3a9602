"""What the application opens on its machine: nothing that another machine could reach."""

import ipaddress
import os
from typing import Any

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(280)]


@pytest.mark.usefixtures("running")
def test_every_process_listens_on_loopback_only() -> None:
    """Ray's own, Serve's proxy, and the port of each replica for the calls of the others."""
    import ray  # noqa: F401  # its copy of psutil is found once it is imported
    from psutil import CONN_LISTEN, Process

    listening: list[tuple[str, str]] = []
    for process in Process(os.getpid()).children(recursive=True):
        connections: Any = process.net_connections("tcp")
        title = process.cmdline()[0] if process.cmdline() else process.name()
        listening += [(title, c.laddr.ip) for c in connections if c.status == CONN_LISTEN]
    replicas = [title for title, _ in listening if title.startswith("ray::ServeReplica")]
    assert len(replicas) >= 2 * len(set(replicas)) >= 2 * 4  # Ray's port and Serve's, each
    assert [where for where in listening if not _is_loopback(where[1])] == []


def _is_loopback(address: str) -> bool:
    ip = ipaddress.ip_address(address)
    return (getattr(ip, "ipv4_mapped", None) or ip).is_loopback
