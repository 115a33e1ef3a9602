"""The whole application without a Ray: requests through handles to replicas and back."""

import asyncio
import base64
import io
from collections.abc import AsyncIterator, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from PIL import Image as Pillow

from vmem.bank import Bank
from vmem.encoders import fake
from vmem.errors import EncoderError, ModelUnavailableError, StoreError
from vmem.llm.fake import FakeChat, echo_role
from vmem.ports import ChatRequest

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def local(
    tmp_path_factory: pytest.TempPathFactory,
    served_settings: Callable[..., dict[str, Any]],
    start_local: Callable[..., Any],
) -> Iterator[Any]:
    """Writer, retriever, and the scripted model in a deployment of its own."""
    with start_local(served_settings(tmp_path_factory.mktemp("local"), 8000)) as started:
        yield started


@pytest.fixture(scope="module")
async def client(local: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client, and with it one event loop for all tests of the file, as a replica has one."""
    async with local.client() as opened:
        yield opened


def _round(round_id: str, text: str, **more: Any) -> dict[str, Any]:
    return {"id": round_id, "session": "s", "time": "2026-05-04T09:00", "user": text, **more}


async def _append(client: httpx.AsyncClient, memory: str, *rounds: dict[str, Any]) -> Any:
    reply = await client.post(f"/v1/memories/{memory}/rounds", json={"rounds": rounds})
    assert reply.status_code == 200, reply.text
    return reply.json()


async def _search(client: httpx.AsyncClient, memory: str, query: str, **options: Any) -> Any:
    asked = {"query": query, "options": options}
    reply = await client.post(f"/v1/memories/{memory}/search", json=asked)
    assert reply.status_code == 200, reply.text
    return reply.json()


async def test_an_acknowledged_append_is_found_by_the_next_search(
    client: httpx.AsyncClient,
) -> None:
    for number in range(8):
        done = await _append(client, "raw", _round(f"r{number}", f"the word is zq{number}"))
        found = await _search(client, "raw", f"zq{number}")
        assert found["citations"][0]["round_id"] == f"r{number}"
        assert found["version"] == done["version"]


async def test_a_request_changes_the_retrievers_settings_for_itself_alone(
    client: httpx.AsyncClient,
) -> None:
    await _append(client, "own", *(_round(f"{n}", f"the tent number {n}") for n in range(4)))
    narrow = await _search(client, "own", "tent", top_k=1, target="image")
    assert (len(narrow["citations"]), narrow["route"]["target"]) == (1, "image")
    plain = await _search(client, "own", "tent")
    assert (len(plain["citations"]), plain["route"]["target"]) == (4, "text")


async def test_appends_that_come_together_are_each_for_itself(client: httpx.AsyncClient) -> None:
    await _append(client, "group0", _round("taken", "one"))
    rounds = [_round("taken", "two"), *(_round(f"r{n}", f"word {n}") for n in range(1, 12))]
    replies = await asyncio.gather(
        *(
            client.post(f"/v1/memories/group{n % 3}/rounds", json={"rounds": [round_]})
            for n, round_ in enumerate(rounds)
        )
    )
    assert [reply.status_code for reply in replies] == [409, *[200] * 11]
    for memory in range(3):
        listed = (await client.get(f"/v1/memories/group{memory}/rounds")).json()["rounds"]
        added = {f"r{n}" for n in range(1, 12) if n % 3 == memory}
        assert {round_["id"] for round_ in listed} == added | ({"taken"} if memory == 0 else set())
        assert [round_["position"] for round_ in listed] == [*range(len(listed))]
        for round_id in added:
            found = await _search(client, f"group{memory}", f"word {round_id[1:]}")
            assert found["citations"][0]["round_id"] == round_id


async def test_an_answer_is_what_the_model_in_its_deployment_says(
    client: httpx.AsyncClient, local: Any, events: Callable[[str], Any]
) -> None:
    await _append(client, "kites", _round("1", "a red kite"), _round("2", "a blue canoe"))
    asked = {"query": "Which picture shows the kite?", "explain": True}
    body = (await client.post("/v1/memories/kites/answer", json=asked)).json()
    assert "a red kite" in body["prompt"]
    assert body["answer"] == echo_role(ChatRequest(role="answer", prompt=body["prompt"]))
    assert body["anchors"]["hypo_caption"].startswith("fake hypo_caption ")
    assert [call["role"] for call in body["usage"]] == ["hypo_caption", "answer"]
    assert body["usage"][1]["prompt_tokens"] == len(body["prompt"].split())
    assert body["model"] == "fake"
    streamed = await client.post("/v1/memories/kites/answer", json={**asked, "stream": True})
    (first, found), *tokens, (last, done) = events(streamed.text)
    assert (first, last) == ("found", "done")
    assert found["citations"] == body["citations"]
    assert {name for name, _ in tokens} == {"token"}
    assert len(tokens) == len(body["answer"].split())
    assert "".join(token["text"] for _, token in tokens) == done["answer"] == body["answer"]
    assert done["usage"] == body["usage"]
    assert done["request_id"] == streamed.headers["x-request-id"]
    route = "/v1/memories/{memory}/answer"
    assert local.counted.requests[-2:] == [(route, "text->image", 200)] * 2


async def test_texts_are_encoded_by_the_retriever(client: httpx.AsyncClient) -> None:
    texts = ["a red kite", "a blue canoe"]
    reply = await client.post("/v1/embeddings", json={"model": "vmem-embedding", "input": texts})
    assert reply.status_code == 200, reply.text
    expected_ND = fake.FakeTextEncoder().encode(texts)
    got = [item["embedding"] for item in reply.json()["data"]]
    assert got == [pytest.approx(vector_D.tolist()) for vector_D in expected_ND]


async def test_an_erased_round_and_its_picture_are_gone_from_every_replica(
    client: httpx.AsyncClient,
) -> None:
    file = io.BytesIO()
    Pillow.new("RGB", (8, 8), "green").save(file, "PNG")
    image = {"base64": base64.b64encode(file.getvalue()).decode(), "caption": "a green tent"}
    await _append(client, "trip", _round("1", "the lake", images=[image]), _round("2", "a canoe"))
    before = await _search(client, "trip", "the lake")
    (picture,) = before["citations"][0]["images"]
    assert (await client.get(picture["url"])).content == file.getvalue()
    erased = await client.delete("/v1/memories/trip/rounds/1")
    assert erased.json()["version"] > before["version"]
    after = await _search(client, "trip", "the lake")
    assert [cited["round_id"] for cited in after["citations"]] == ["2"]
    assert "lake" not in after["context"]["text"]
    assert (await client.get(picture["url"])).status_code == 404
    again = await client.delete("/v1/memories/trip/rounds/1")
    assert (again.status_code, again.json()["error"]["code"]) == (404, "unknown_round")
    taken = await client.post("/v1/memories/trip/rounds", json={"rounds": [_round("1", "new")]})
    assert (taken.status_code, taken.json()["error"]["code"]) == (409, "round_conflict")


async def test_a_deleted_memory_is_unknown_and_its_name_begins_anew(
    client: httpx.AsyncClient,
) -> None:
    await _append(client, "gone", _round("1", "alpha"))
    assert (await _search(client, "gone", "alpha"))["citations"]
    assert (await client.delete("/v1/memories/gone")).status_code == 204
    question = {"query": "alpha"}
    for reply in (
        await client.get("/v1/memories/gone"),
        await client.delete("/v1/memories/gone"),
        await client.post("/v1/memories/gone/search", json=question),
        await client.post("/v1/memories/gone/answer", json=question),
        await client.post("/v1/memories/gone/answer", json={**question, "stream": True}),
    ):
        assert (reply.status_code, reply.json()["error"]["code"]) == (404, "unknown_memory")
        assert reply.json()["error"]["request_id"] == reply.headers["x-request-id"]
    await _append(client, "gone", _round("2", "beta"))
    found = await _search(client, "gone", "alpha")
    assert [cited["round_id"] for cited in found["citations"]] == ["2"]


PARTS = {"writer": "ok", "encoders": "ok", "store": "ok", "backbone": "ok"}
DOWN = [
    (Bank, "check", StoreError, {"writer", "store"}),
    (fake, "unit_length", EncoderError, {"encoders"}),
    (FakeChat, "check", ModelUnavailableError, {"backbone"}),
]


@pytest.mark.parametrize(("owner", "name", "error", "down"), DOWN)
async def test_what_is_down_is_named_and_is_ready_once_it_is_back(
    client: httpx.AsyncClient,
    clock: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    error: type[Exception],
    down: set[str],
) -> None:
    def fail(*_: object) -> None:
        raise error("gpu-7 at 10.0.0.9")

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, fail)
        unready = await client.get("/readyz")
    assert unready.status_code == 503
    assert unready.json() == {"parts": PARTS | dict.fromkeys(down, "unavailable")}
    clock.now += 1.0
    assert (await client.get("/readyz")).status_code == 503  # what was found stands for a while
    clock.now += 2.0
    ready = await client.get("/readyz")
    assert (ready.status_code, ready.json()) == (200, {"parts": PARTS})
