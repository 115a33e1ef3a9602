"""One local Ray for all job tests; small, on loopback, without token or dashboard."""

import os
from collections.abc import Iterator

import pytest

os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # read when Ray is imported
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")


@pytest.fixture(scope="session")
def local_ray() -> Iterator[None]:
    import ray

    ray.init(
        num_cpus=8,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=150_000_000,
        _node_ip_address="127.0.0.1",
    )
    yield
    ray.shutdown()
