"""Keeps a Ray that is started here on loopback: its own ports, and those of Serve's replicas.

Serve opens a gRPC port in each replica on every address of the machine, and unpickles what comes.
Where nodes call each other the port has to be open to them, and a network policy closes it to
everybody else.
"""

from collections.abc import Callable
from typing import Any

from ray._common import tls_utils
from ray._private import ray_constants

SETUP_HOOK = "serve.loopback.stay_on_loopback"
"""What `runtime_env` names as its `worker_process_setup_hook`."""

_open_port: Callable[[object, str], int] = tls_utils.add_port_to_grpc_server


def loopback_options() -> dict[str, Any]:
    """Options of `ray.init` for a node that only this machine reaches."""
    # Else Ray takes 127.0.0.1 for the machine's outer address, and listens on all of them.
    ray_constants.ENABLE_RAY_CLUSTER = False
    return {"_node_ip_address": "127.0.0.1", "include_dashboard": False}


def stay_on_loopback() -> None:
    """Have this process's gRPC servers of Ray listen on 127.0.0.1; runs before Serve makes any."""
    tls_utils.add_port_to_grpc_server = open_on_loopback


def open_on_loopback(server: object, address: str) -> int:
    """Open a port of 127.0.0.1, whatever host is asked for.

    Args:
        server: A gRPC server.
        address: `host:port`; port 0 takes a free one.

    Returns:
        The port.
    """
    return _open_port(server, f"127.0.0.1:{address.rpartition(':')[2]}")
