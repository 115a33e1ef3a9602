"""In a node's workers: replicas listen on the node's own address of loopback, and nowhere else.

In a cluster a network policy closes these ports to everybody but the pods themselves.
"""

import os

from ray._common import tls_utils

_open_port = tls_utils.add_port_to_grpc_server


def stay_on_node() -> None:
    """Have this process's gRPC servers of Ray listen on `NODE_ADDRESS`."""
    tls_utils.add_port_to_grpc_server = _on_node


def _on_node(server: object, address: str) -> int:
    port: int = _open_port(  # type: ignore[no-untyped-call]
        server, f"{os.environ['NODE_ADDRESS']}:{address.rpartition(':')[2]}"
    )
    return port
