"""A load report counts what clients met, and draws it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from jobs.load_report import Load, measure_load, plot_load

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Server:
    """Answers, refuses and fails in turn, and keeps what it was asked."""

    def __init__(self) -> None:
        self.bodies: list[object] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.bodies.append(await request.json())
        turn = len(self.bodies) % 3
        if turn == 1:
            return web.json_response({})
        if turn == 2:
            return web.Response(status=429, headers={"retry-after": "0"})
        return web.Response(status=500)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    answering = Server()
    app = web.Application()
    app.router.add_post("/", answering.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    answering.url = f"http://{host}:{port}/"
    yield answering
    await runner.cleanup()


async def test_every_request_is_counted_as_what_became_of_it(server: Server) -> None:
    bodies = [{"number": n} for n in range(4)]
    load = await measure_load(server.url, bodies, clients=3, seconds=0.3)
    asked = len(server.bodies)
    assert len(load.answered_s) == (asked + 2) // 3
    assert load.refused == (asked + 1) // 3
    assert load.failed == asked // 3
    assert {body["number"] for body in server.bodies} == {0, 1, 2, 3}
    assert load.wall_s >= 0.3
    assert load.answered_a_second == len(load.answered_s) / load.wall_s


def test_percentiles_are_of_what_was_answered() -> None:
    load = Load(clients=1, wall_s=1.0, answered_s=[n / 1000 for n in range(1, 102)])
    assert load.percentile_ms(50) == pytest.approx(51)
    assert load.percentile_ms(95) == pytest.approx(96)
    assert load.percentile_ms(99) == pytest.approx(100)


def test_a_plot_is_a_whole_svg(tmp_path: Path) -> None:
    loads = [Load(clients=n, wall_s=1.0, answered_s=[0.01 * n, 0.02 * n]) for n in (1, 8)]
    path = tmp_path / "new" / "load.svg"
    plot_load(loads, path)
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<?xml")
    assert "</svg>" in text
