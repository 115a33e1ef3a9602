"""Several nodes' metrics as one text, on samples of what Ray exports and on real sockets."""

import asyncio
import logging
from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from serve.scrape import STANDS_S, Scrape, merge, merge_texts


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def _node(worker: str, requests: int) -> str:
    labels = f'NodeAddress="10.0.0.1",SessionName="s",Version="2",WorkerId="{worker}"'
    scope = 'otel_scope_name="ray",otel_scope_schema_url="",otel_scope_version=""'
    return f"""# HELP ray_node_cpu_count Of no interest here.
# TYPE ray_node_cpu_count gauge
ray_node_cpu_count{{{labels}}} 2.0
# HELP ray_vmem_requests_total Requests answered.
# TYPE ray_vmem_requests_total counter
ray_vmem_requests_total{{{labels},route="/v1/a \\"b\\"",{scope}}} {requests}.0
# HELP ray_vmem_stage_seconds Seconds.
# TYPE ray_vmem_stage_seconds histogram
ray_vmem_stage_seconds_bucket{{{labels},le="0.5",{scope}}} 1.0
ray_vmem_stage_seconds_bucket{{{labels},le="+Inf",{scope}}} 2.0
ray_vmem_stage_seconds_count{{{labels},{scope}}} 2.0
ray_vmem_stage_seconds_sum{{{labels},{scope}}} 1.5
# HELP ray_serve_deployment_queued_queries Queued.
# TYPE ray_serve_deployment_queued_queries gauge
ray_serve_deployment_queued_queries{{{labels},deployment="Api",{scope}}} 1.0
"""


def _samples(text: bytes) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_each_family_stands_once_with_every_nodes_samples() -> None:
    text = merge_texts({"10.0.0.1:8080": _node("aa", 3), "10.0.0.2:8080": _node("bb", 4)})
    for line in (
        "# TYPE ray_vmem_requests_total counter",
        "# TYPE ray_vmem_stage_seconds histogram",
    ):
        assert text.decode().count(line) == 1
    samples = _samples(text)
    assert samples["ray_vmem_requests_total"] == [
        ({"route": '/v1/a "b"', "worker_id": worker, "node": node}, float(value))
        for worker, node, value in (("aa", "10.0.0.1:8080", 3), ("bb", "10.0.0.2:8080", 4))
    ]
    assert sum(value for _, value in samples["ray_vmem_stage_seconds_count"]) == 2 + 2
    assert len(samples["ray_vmem_stage_seconds_bucket"]) == 2 * 2
    assert len(samples["ray_serve_deployment_queued_queries"]) == 2


def test_rays_metrics_about_itself_are_left_out() -> None:
    assert "ray_node_cpu_count" not in _samples(merge_texts({"a:1": _node("aa", 1)}))


def test_processes_of_one_node_keep_their_series_apart() -> None:
    text = merge_texts({"a:1": _node("aa", 5), "a:2": _node("bb", 5)})
    labels = [
        tuple(sorted(labels.items())) for labels, _ in _samples(text)["ray_vmem_requests_total"]
    ]
    assert len(set(labels)) == len(labels) == 2


def test_the_same_node_again_gives_no_sample_twice() -> None:
    """Two nodes with the very same labels still differ by their addresses."""
    text = merge_texts({"a:1": _node("aa", 5), "b:1": _node("aa", 5)})
    lines = [line.rpartition(" ")[0] for line in text.decode().splitlines() if line[0] != "#"]
    assert len(set(lines)) == len(lines)


def test_nodes_that_fail_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    broken = 'ray_vmem_requests_total{route="unfinished'
    text = merge_texts({"a:1": _node("aa", 3), "b:1": None, "c:1": broken})
    samples = _samples(text)
    assert samples["vmem_scrape_failed_nodes"] == [({}, 2.0)]
    assert samples["vmem_scrape_nodes"] == [({}, 3.0)]
    assert sum(value for _, value in samples["ray_vmem_requests_total"]) == 3
    assert [record.args[0] for record in caplog.records if record.args] == ["c:1"]


def test_what_runs_is_told() -> None:
    ((labels, value),) = _samples(merge_texts({}))["vmem_build_info"]
    assert value == 1
    assert labels["ray_version"].count(".") == 2
    assert labels["version"]


@pytest.mark.anyio
async def test_nodes_are_asked_at_once_and_a_silent_one_costs_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("serve.scrape.TIMEOUT_S", 0.5)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    asked: list[str] = []
    both_asked = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).split()[1].decode())
        if len(asked) == 2:
            both_asked.set()
        await both_asked.wait()
        body = _node(f"w{len(asked)}", 1).encode()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    servers = [
        await asyncio.start_server(each, "127.0.0.1", 0) for each in (answer, answer, refuse, hang)
    ]
    addresses = [f"127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in servers]
    samples = _samples(await merge([*addresses, "no such host:1"]))
    assert asked == ["/metrics", "/metrics"]
    assert sum(value for _, value in samples["ray_vmem_requests_total"]) == 2
    assert samples["vmem_scrape_failed_nodes"] == [({}, 3.0)]
    for server in servers:
        server.close()
        await server.wait_closed()


class _Nodes:
    """Addresses of a cluster without nodes; counts how often they are asked for."""

    def __init__(self) -> None:
        self.asked = 0
        self.go_on = asyncio.Event()
        self.errors: list[Exception] = []

    async def __call__(self) -> list[str]:
        self.asked += 1
        await self.go_on.wait()
        if self.errors:
            raise self.errors.pop()
        return []


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time that the scrape goes by; the event loop goes by its own."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr("serve.scrape.time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


@pytest.mark.anyio
async def test_scrapes_at_once_cost_one_and_so_do_those_of_the_same_second(
    clock: SimpleNamespace,
) -> None:
    nodes = _Nodes()
    scrape = Scrape(nodes)
    waiting = [asyncio.create_task(scrape.text()) for _ in range(50)]
    await asyncio.sleep(0)
    nodes.go_on.set()
    texts = await asyncio.gather(*waiting)
    assert set(texts) == {merge_texts({})}
    assert nodes.asked == 1
    for later_s, asked in ((0.9, 1), (0.1, 2), (0.9, 2), (5.0, 3)):
        clock.now += STANDS_S * later_s
        await scrape.text()
        assert nodes.asked == asked


@pytest.mark.anyio
async def test_who_waits_for_a_scrape_that_is_given_up_or_fails_scrapes_anew() -> None:
    nodes = _Nodes()
    nodes.errors = [ConnectionError("the cluster is gone")]
    scrape = Scrape(nodes)
    given_up, failing, good = (asyncio.create_task(scrape.text()) for _ in range(3))
    await asyncio.sleep(0)
    given_up.cancel()
    nodes.go_on.set()
    with pytest.raises(ConnectionError):
        await failing
    assert await good == merge_texts({})
    assert nodes.asked == 3
