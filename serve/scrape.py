"""The metrics of all nodes of a Ray cluster, as one Prometheus text.

Ray exports what a node's processes count on that node alone. Each process keeps its own series, so
that a counter never falls when a replica is replaced; sum over them.
"""

import asyncio
import logging
import platform
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import version

import httpx
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

KEPT = ("ray_vmem_", "ray_serve_", "ray_vllm_")
"""What the names of the kept metrics begin with; Ray exports a hundred others about itself."""
DROPPED_LABELS = frozenset(
    [
        "NodeAddress",
        "SessionName",
        "Version",
        "otel_scope_name",
        "otel_scope_schema_url",
        "otel_scope_version",
    ]
)
"""Labels that are the same on every sample of a node; `node` says which it is."""
TIMEOUT_S = 4.0
"""Seconds for one node, below the ten that Prometheus gives a scrape."""
STANDS_S = 1.0
"""Seconds that what was gathered stands: replicas tell Ray no more often than that."""

_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")
log = logging.getLogger("vmem.serve")


class Scrape:
    """The metrics of a cluster, gathered once however many ask for them at a time.

    Args:
        addresses: Gives the `HOST:PORT` of each node's metrics.
    """

    def __init__(self, addresses: Callable[[], Awaitable[Sequence[str]]]) -> None:
        self._addresses = addresses
        self._gathering = asyncio.Lock()
        self._text = b""
        self._stale_at = 0.0

    async def text(self) -> bytes:
        """As `merge`, at most `STANDS_S` old."""
        async with self._gathering:  # who waits here finds what the one before has gathered
            if time.monotonic() >= self._stale_at:
                self._text = await merge(await self._addresses())
                self._stale_at = time.monotonic() + STANDS_S
            return self._text


async def merge(addresses: Sequence[str]) -> bytes:
    """Ask every node for its metrics and put the answers together.

    A node that gives none is left out, and `vmem_scrape_failed_nodes` counts it.

    Args:
        addresses: `HOST:PORT` of each node's metrics.
    """
    async with httpx.AsyncClient(trust_env=False, timeout=TIMEOUT_S) as client:
        texts = await asyncio.gather(*(_read(client, address) for address in addresses))
    return await asyncio.to_thread(merge_texts, dict(zip(addresses, texts, strict=True)))


async def _read(client: httpx.AsyncClient, address: str) -> str | None:
    """A node's metrics; None where it gives none."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            response = await client.get(f"http://{address}/metrics")
            response.raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
        log.warning("node %s gives no metrics: %s", address, type(error).__name__)
        return None
    return response.text


def merge_texts(texts: Mapping[str, str | None]) -> bytes:
    """The kept metrics of all nodes, each family once, each sample with its node.

    Args:
        texts: What each node answered, by its address; None where it did not.
    """
    families: dict[str, Metric] = {}
    failed = 0
    for address, text in texts.items():
        try:
            found = list(text_string_to_metric_families(_kept(text))) if text is not None else None
        except ValueError as error:
            log.warning("node %s gives metrics that cannot be read: %s", address, error)
            found = None
        if found is None:
            failed += 1
            continue
        for family in found:
            merged = families.setdefault(
                family.name, Metric(family.name, family.documentation, family.type)
            )
            merged.samples.extend(_of_node(sample, address) for sample in family.samples)
    return generate_latest(_Families([*families.values(), *_own(len(texts), failed)]))


class _Families(Collector):
    """Families that are there already, in the form that prometheus-client writes."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _kept(text: str) -> str:
    """The lines of the kept metrics: reading all of them would take several times as long."""
    starts = (*KEPT, *(f"# {word} {name}" for word in ("HELP", "TYPE") for name in KEPT))
    return "".join(line for line in text.splitlines(keepends=True) if line.startswith(starts))


def _of_node(sample: Sample, address: str) -> Sample:
    labels = {
        _snake_case(name): value
        for name, value in sample.labels.items()
        if name not in DROPPED_LABELS
    }
    return sample._replace(labels={**labels, "node": address})


@cache
def _snake_case(label: str) -> str:
    """A label as Prometheus spells labels: Ray's own `WorkerId` is `worker_id`."""
    return _CAPITAL.sub("_", label).lower()


def _own(nodes: int, failed: int) -> list[Metric]:
    """What is known here alone."""
    build = GaugeMetricFamily(
        "vmem_build_info", "What runs.", labels=["version", "ray_version", "python_version"]
    )
    build.add_metric([version("vmem"), version("ray"), platform.python_version()], 1)
    return [
        build,
        GaugeMetricFamily("vmem_scrape_nodes", "Nodes asked for metrics.", value=nodes),
        GaugeMetricFamily(
            "vmem_scrape_failed_nodes", "Nodes that gave no metrics and are left out.", value=failed
        ),
    ]
