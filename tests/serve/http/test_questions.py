"""Search and answer over HTTP: as JSON, as a form, as a stream that its reader may leave."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from serve.routes.questions import router
from serve.streams import EventStream
from vmem.errors import (
    ModelError,
    ModelTimeoutError,
    ModelUnavailableError,
    StoreError,
)

pytestmark = pytest.mark.anyio
BARE = {"request_id", "memory", "version", "route", "context", "citations", "notes", "seconds"}
EXPLAINED = {"anchors", "lanes", "fused", "usage", "rounds"}


@pytest.fixture
async def trip(client: httpx.AsyncClient, tent: dict[str, Any], canoe: dict[str, Any]) -> Any:
    await client.post("/v1/memories/trip/rounds", json={"rounds": [tent, canoe]})
    return "/v1/memories/trip"


def events(text: str) -> Any:
    """The events of a stream: name and data."""
    blocks = [block for block in text.split("\n\n") if block and not block.startswith(":")]
    fields = [dict(line.split(": ", 1) for line in block.split("\n")) for block in blocks]
    return [(one.get("event"), json.loads(one["data"])) for one in fields]


async def test_a_search_cites_the_rounds_found_best_first(
    client: httpx.AsyncClient, trip: str
) -> None:
    found = (await client.post(f"{trip}/search", json={"query": "Who brings tape?"})).json()
    assert set(found) == BARE
    assert (found["memory"], found["route"]["case"]) == ("trip", "text->text")
    first = found["citations"][0]
    assert (first["rank"], first["round_id"], first["shown"]) == (1, "D2:1", True)
    assert "tape" in found["context"]["text"]
    assert found["context"]["blocks"][-1]["round_ids"][-1] == "D2:1"
    tent = next(one for one in found["citations"] if one["round_id"] == "D1:1")
    assert (await client.get(tent["images"][0]["url"])).status_code == 200


async def test_an_explained_search_says_what_each_step_did(
    client: httpx.AsyncClient, trip: str, picture: Callable[..., bytes]
) -> None:
    asked = {
        "query": "Where was this?",
        "image": {"base64": base64.b64encode(picture()).decode()},
        "options": {"top_k": 1, "window": 0},
        "explain": True,
    }
    found = (await client.post(f"{trip}/search", json=asked)).json()
    assert set(found) == BARE | EXPLAINED
    assert found["route"]["query_modality"] == "image"
    assert found["anchors"]["by_signal"]["visual"] == {"image": "attached"}
    assert [item["round_id"] for item in found["lanes"]["visual"]] == ["D1:1"]
    assert [item["rank"] for item in found["fused"]] == [*range(1, len(found["fused"]) + 1)]
    assert found["fused"][0]["ranks"].keys() <= found["lanes"].keys()
    assert {round_["id"] for round_ in found["rounds"]} >= {"D1:1"}
    assert len(found["citations"]) == 1


async def test_options_change_one_request(client: httpx.AsyncClient, trip: str) -> None:
    asked = {"query": "The tent.", "options": {"target": "image"}}
    forced = (await client.post(f"{trip}/search", json=asked)).json()
    plain = (await client.post(f"{trip}/search", json={"query": "The tent."})).json()
    assert (forced["route"]["target"], plain["route"]["target"]) == ("image", "text")


@pytest.mark.parametrize(
    "options",
    [{"top_k": 0}, {"top_k": 51}, {"window": 6}, {"max_tokens": 1025}, {"temperature": 2.1}],
)
async def test_options_stay_within_bounds(
    client: httpx.AsyncClient, trip: str, options: dict[str, Any]
) -> None:
    refused = await client.post(f"{trip}/search", json={"query": "a", "options": options})
    assert refused.status_code == 422
    assert f"options.{next(iter(options))} must be from" in refused.json()["error"]["message"]


async def test_a_picture_of_the_memory_by_its_digest(client: httpx.AsyncClient, trip: str) -> None:
    round_ = (await client.get(f"{trip}/rounds/D1:1")).json()
    digest = round_["turns"][0]["images"][0]["digest"]
    asked = {"query": "Where was this?", "image": {"digest": digest}}
    found = (await client.post(f"{trip}/search", json=asked)).json()
    assert found["route"]["query_modality"] == "image"
    missing = {"query": "Where was this?", "image": {"digest": "0" * 64}}
    refused = await client.post(f"{trip}/search", json=missing)
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "invalid_image")


async def test_a_form_asks_as_json_does(
    client: httpx.AsyncClient, trip: str, picture: Callable[..., bytes]
) -> None:
    form = {"query": "Where was this?", "options": '{"top_k": 1}', "explain": "true"}
    files = {"image": ("x.gif", picture(kind="JPEG"))}
    found = await client.post(f"{trip}/search", data=form, files=files)
    assert found.status_code == 200, found.text
    assert found.json()["anchors"]["by_signal"]["visual"] == {"image": "attached"}
    answered = await client.post(f"{trip}/answer", data={"query": "Which tent?"}, files=files)
    assert answered.json()["answer"] == "A green tent."


async def test_an_answer_with_what_it_rests_on(client: httpx.AsyncClient, trip: str) -> None:
    body = (await client.post(f"{trip}/answer", json={"query": "What leaks?"})).json()
    assert set(body) == BARE | {"answer", "usage", "model"}
    assert body["answer"] == "A green tent."
    assert [call["role"] for call in body["usage"]] == ["answer"]
    assert body["citations"][0]["round_id"] == "D2:1"
    explained = {"query": "What leaks?", "explain": True}
    body = (await client.post(f"{trip}/answer", json=explained)).json()
    assert set(body) == BARE | EXPLAINED | {"answer", "model", "prompt"}
    assert "canoe leaks" in body["prompt"]


async def test_a_stream_is_found_then_tokens_then_done(
    client: httpx.AsyncClient, trip: str
) -> None:
    asked = {"query": "What leaks?", "stream": True}
    response = await client.post(f"{trip}/answer", json=asked)
    assert response.headers["content-type"].startswith("text/event-stream")
    (first, found), *tokens, (last, done) = events(response.text)
    assert (first, set(found)) == ("found", BARE)
    assert {name for name, _ in tokens} == {"token"}
    assert "".join(token["text"] for _, token in tokens) == done["answer"] == "A green tent."
    assert last == "done"
    assert set(done) == {"answer", "usage", "model", "seconds", "request_id"}
    assert done["request_id"] == response.headers["x-request-id"] == found["request_id"]


FAILED = [
    (ModelTimeoutError("gpu-7 at 10.0.0.9"), 504, "model_timeout"),
    (ModelUnavailableError("gpu-7 at 10.0.0.9"), 503, "model_unavailable"),
    (ModelError("gpu-7 at 10.0.0.9"), 502, "model_failed"),
    (RuntimeError("gpu-7 at 10.0.0.9"), 500, "unexpected"),
]


@pytest.mark.parametrize(("error", "status", "code"), FAILED)
async def test_a_failing_backbone_is_a_status_or_the_streams_last_event(
    client: httpx.AsyncClient, served: Any, trip: str, error: Exception, status: int, code: str
) -> None:
    def fail(request: Any) -> None:
        raise error

    served.service.script = fail
    whole = await client.post(f"{trip}/answer", json={"query": "What leaks?"})
    assert (whole.status_code, whole.json()["error"]["code"]) == (status, code)
    streamed = await client.post(f"{trip}/answer", json={"query": "What leaks?", "stream": True})
    assert streamed.status_code == 200
    assert [name for name, _ in events(streamed.text)] == ["found", "error"]
    assert events(streamed.text)[-1][1]["error"]["code"] == code
    assert "gpu-7" not in whole.text + streamed.text
    counted = [entry[2] for entry in served.metrics.requests if entry[0].endswith("/answer")]
    assert counted == [status, status]
    assert served.app.state.admission.under_way() == 0


@pytest.mark.parametrize(
    ("error", "status"), [(StoreError("db at 10.0.0.9"), 503), (RuntimeError("10.0.0.9"), 500)]
)
async def test_an_error_before_the_first_event_is_a_status(
    client: httpx.AsyncClient, served: Any, trip: str, error: Exception, status: int
) -> None:
    served.service.down["answer"] = error
    for stream in (True, False):
        asked = {"query": "What leaks?", "stream": stream}
        response = await client.post(f"{trip}/answer", json=asked)
        assert response.status_code == status
        assert response.headers["content-type"] == "application/json"
        assert "10.0.0.9" not in response.text
        assert response.json()["error"]["request_id"] == response.headers["x-request-id"]


async def test_an_answer_that_takes_too_long_is_given_up(
    serve_app: Callable[..., Any], tent: dict[str, Any]
) -> None:
    served = serve_app(http={"request_timeout_s": 0.3})
    served.service.hold = asyncio.Event()
    async with served.client() as client:
        await client.post("/v1/memories/trip/rounds", json={"rounds": [tent]})
        response = await client.post("/v1/memories/trip/answer", json={"query": "What?"})
    assert (response.status_code, response.json()["error"]["code"]) == (504, "timeout")
    assert (served.service.under_way, served.app.state.admission.under_way()) == (0, 0)


async def test_a_stream_that_has_begun_may_take_longer(
    serve_app: Callable[..., Any], tent: dict[str, Any]
) -> None:
    served = serve_app(http={"request_timeout_s": 0.5})
    served.service.hold = asyncio.Event()
    async with served.client() as client:
        await client.post("/v1/memories/trip/rounds", json={"rounds": [tent]})
        asked = {"query": "What?", "stream": True}
        task = asyncio.create_task(client.post("/v1/memories/trip/answer", json=asked))
        await asyncio.sleep(1.0)
        served.service.hold.set()
        assert [name for name, _ in events((await task).text)][-1] == "done"


async def test_a_reader_that_leaves_ends_the_answer_and_frees_its_place(
    served: Any, client: httpx.AsyncClient, trip: str
) -> None:
    """The connection closes after the first event, while the backbone is still writing."""
    served.service.hold = asyncio.Event()
    body = json.dumps({"query": "What leaks?", "stream": True}).encode()
    asked = [{"type": "http.request", "body": body, "more_body": False}]
    got_first, sent = asyncio.Event(), []

    async def receive() -> Any:
        if asked:
            return asked.pop()
        await got_first.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)
        if message.get("body"):
            assert served.app.state.admission.under_way("answer") == 1
            got_first.set()

    headers = {"content-type": "application/json", "authorization": f"Bearer {served.secret}"}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": "POST",
        "path": "/v1/memories/trip/answer",
        "raw_path": b"/v1/memories/trip/answer",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "scheme": "http",
        "root_path": "",
    }
    await asyncio.wait_for(served.app(scope, receive, send), 10)
    assert sent[0]["status"] == 200
    assert (served.service.closed, served.service.under_way) == (1, 0)
    assert served.app.state.admission.under_way() == 0


async def test_a_silent_stream_is_kept_alive_with_comments_until_its_end() -> None:
    async def slow() -> AsyncIterator[Any]:
        await asyncio.sleep(0.1)
        yield b"data: x\n\n"

    sent = []

    async def send(message: dict[str, Any]) -> None:
        if not message.get("more_body", True):
            await asyncio.sleep(0.1)  # long enough for a comment to wait behind the end
        sent.append(message.get("body", b""))

    async def receive() -> None:
        await asyncio.Event().wait()

    await EventStream(slow(), keep_alive_s=0.02)({"type": "http"}, receive, send)
    assert sent[1] == b": ping\n\n"
    assert b"data: x\n\n" in sent
    assert sent[-1] == b""
    assert sent.count(b"") == len(["start", "end"])


async def test_requests_are_counted_by_case(
    client: httpx.AsyncClient, served: Any, trip: str
) -> None:
    await client.post(f"{trip}/search", json={"query": "What leaks?"})
    await client.post(f"{trip}/answer", json={"query": "A tent.", "options": {"target": "image"}})
    counted = served.metrics.requests[-2:]
    assert counted == [
        (f"{router.prefix}/search", "text->text", 200),
        (f"{router.prefix}/answer", "text->image", 200),
    ]


async def test_script_in_rounds_comes_back_as_json_only(
    client: httpx.AsyncClient, picture: Callable[..., bytes]
) -> None:
    evil = "<script>alert(1)</script>"
    image = {"base64": base64.b64encode(picture()).decode(), "caption": evil}
    round_ = {"id": "a", "time": "2026-01-01", "user": evil, "images": [image]}
    await client.post("/v1/memories/evil/rounds", json={"rounds": [round_]})
    for response in (
        await client.get("/v1/memories/evil/rounds"),
        await client.post("/v1/memories/evil/search", json={"query": evil}),
    ):
        assert response.status_code == 200
        assert (
            evil in response.json()["rounds"][0]["turns"][0]["text"]
            if "rounds" in (response.json())
            else evil in response.json()["context"]["text"]
        )
        assert response.headers["content-type"] == "application/json"
        assert response.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in response.headers["content-security-policy"]
