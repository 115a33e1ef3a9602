"""Memories, rounds and files over HTTP: what goes in comes out, and what is erased is gone."""

import base64
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.anyio


async def add(client: httpx.AsyncClient, *rounds: Any, memory: str = "trip") -> Any:
    response = await client.post(f"/v1/memories/{memory}/rounds", json={"rounds": rounds})
    assert response.status_code == 200, response.text
    return response.json()


async def test_a_memory_is_made_once_listed_and_erased(client: httpx.AsyncClient) -> None:
    made = await client.post("/v1/memories", json={"id": "trip"})
    again = await client.post("/v1/memories", json={"id": "trip"})
    assert (made.status_code, again.status_code) == (201, 200)
    assert made.json() == again.json()
    assert made.json() | {"created_at": "", "version": 0} == {
        "id": "trip",
        "rounds": 0,
        "erased": 0,
        "images": 0,
        "version": 0,
        "created_at": "",
    }
    listed = (await client.get("/v1/memories")).json()
    assert [memory["id"] for memory in listed["memories"]] == ["trip"]
    gone = await client.delete("/v1/memories/trip")
    assert (gone.status_code, gone.content) == (204, b"")
    missing = await client.get("/v1/memories/trip")
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "unknown_memory"


async def test_pages_follow_each_other_without_gap_or_repetition(
    client: httpx.AsyncClient, canoe: dict[str, Any]
) -> None:
    names = [f"m{n}" for n in range(5)]
    for name in names:
        await client.post("/v1/memories", json={"id": name})
    assert await pages(client, "/v1/memories", "memories", 2) == names
    rounds = [{**canoe, "id": f"r{n}"} for n in range(5)]
    await add(client, *rounds)
    assert await pages(client, "/v1/memories/trip/rounds", "rounds", 2) == [r["id"] for r in rounds]


async def pages(client: httpx.AsyncClient, path: str, what: str, limit: int) -> Any:
    ids, after = [], None
    while True:
        params = {"limit": limit} | ({"after": after} if after is not None else {})
        page = (await client.get(path, params=params)).json()
        assert len(page[what]) <= limit
        ids += [item["id"] for item in page[what]]
        after = page["next"]
        if after is None:
            return ids


async def test_a_round_comes_back_with_links_to_its_picture(
    client: httpx.AsyncClient, tent: dict[str, Any], picture: Callable[..., bytes]
) -> None:
    done = await add(client, tent)
    assert (done["added"], done["unchanged"]) == (["D1:1"], 0)
    round_ = (await client.get("/v1/memories/trip/rounds/D1:1")).json()
    assert (round_["id"], round_["position"], round_["time"]) == ("D1:1", 0, tent["time"])
    user, assistant = round_["turns"]
    assert (user["speaker"], user["text"]) == ("user", tent["user"])
    assert (assistant["speaker"], assistant["text"]) == ("assistant", tent["assistant"])
    (shown,) = user["images"]
    assert (shown["id"], shown["caption"]) == ("D1:1:IMG_1", "a green tent")
    assert shown["url"] == f"/v1/memories/trip/images/{shown['digest']}"
    file = await client.get(shown["url"])
    assert file.content == picture()
    assert file.headers["content-type"] == "image/png"
    assert file.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in file.headers["content-security-policy"]
    assert file.headers["cache-control"].startswith("private")


async def test_an_empty_url_for_a_caption_alone(
    client: httpx.AsyncClient, canoe: dict[str, Any]
) -> None:
    await add(client, {"id": "a", "time": "2026-01-01", "images": [{"caption": "a lost photo"}]})
    round_ = (await client.get("/v1/memories/trip/rounds/a")).json()
    assert round_["turns"][0]["images"] == [
        {"id": "a:IMG_1", "caption": "a lost photo", "url": None, "digest": None}
    ]


async def test_the_same_round_again_is_no_change_and_another_is_a_conflict(
    client: httpx.AsyncClient, tent: dict[str, Any]
) -> None:
    first = await add(client, tent)
    again = await add(client, tent)
    assert (again["added"], again["unchanged"], again["version"]) == ([], 1, first["version"])
    other = await client.post(
        "/v1/memories/trip/rounds", json={"rounds": [{**tent, "user": "Another tent."}]}
    )
    assert (other.status_code, other.json()["error"]["code"]) == (409, "round_conflict")


async def test_a_round_without_time_is_the_same_a_day_later(
    client: httpx.AsyncClient, served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"id": "a", "user": "Hello."}
    monkeypatch.setattr("serve.rounds_in.local_now", lambda: "2026-03-03T10:00")
    await add(client, asked)
    monkeypatch.setattr("serve.rounds_in.local_now", lambda: "2026-03-04T10:00")
    again = await add(client, asked, {"id": "b", "user": "New."})
    assert (again["added"], again["unchanged"]) == (["b"], 1)
    round_ = (await client.get("/v1/memories/trip/rounds/a")).json()
    assert (round_["time"], round_["session"]) == ("2026-03-03T10:00", "2026-03-03")
    changed = await client.post(
        "/v1/memories/trip/rounds", json={"rounds": [{**asked, "user": "Bye."}]}
    )
    assert changed.status_code == 409


async def test_an_append_is_all_or_nothing(
    client: httpx.AsyncClient, tent: dict[str, Any], canoe: dict[str, Any]
) -> None:
    broken = {**tent, "id": "x", "images": [{"base64": base64.b64encode(b"no picture").decode()}]}
    refused = await client.post("/v1/memories/trip/rounds", json={"rounds": [canoe, broken]})
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "invalid_image")
    assert "rounds.1: picture 1" in refused.json()["error"]["message"]
    assert (await client.get("/v1/memories/trip")).status_code == 404


async def test_a_form_holds_pictures_and_voice_as_file_parts(
    client: httpx.AsyncClient, picture: Callable[..., bytes], voice: bytes
) -> None:
    rounds = [
        {
            "id": "a",
            "time": "2026-03-03",
            "user": "The map.",
            "images": [{"file": "map", "caption": "a map"}],
            "audio": {"file": "message", "transcript": "we are lost"},
        }
    ]
    files = {"map": ("map.png", picture("blue")), "message": ("m.wav", voice)}
    for form in (json.dumps(rounds), json.dumps({"rounds": rounds})):
        done = await client.post("/v1/memories/trip/rounds", data={"rounds": form}, files=files)
        assert done.status_code == 200, done.text
    (turn,) = (await client.get("/v1/memories/trip/rounds/a")).json()["turns"]
    assert turn["transcript"] == "we are lost"
    heard = await client.get(turn["audio_url"])
    assert (heard.content, heard.headers["content-type"]) == (voice, "audio/wav")
    assert (await client.get(turn["images"][0]["url"])).content == picture("blue")


async def test_an_erased_round_is_found_nowhere_and_keeps_its_place(
    client: httpx.AsyncClient, tent: dict[str, Any], canoe: dict[str, Any]
) -> None:
    await add(client, tent, canoe)
    digest = (await client.get("/v1/memories/trip/rounds/D1:1")).json()["turns"][0]["images"][0]
    erased = await client.delete("/v1/memories/trip/rounds/D1:1")
    assert erased.status_code == 200
    memory = (await client.get("/v1/memories/trip")).json()
    assert (memory["erased"], memory["version"]) == (1, erased.json()["version"])
    missing = await client.get("/v1/memories/trip/rounds/D1:1")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "unknown_round")
    assert (await client.get(digest["url"])).status_code == 404
    listed = (await client.get("/v1/memories/trip/rounds")).json()["rounds"]
    assert [(round_["id"], round_["position"]) for round_ in listed] == [("D2:1", 1)]
    asked = {"query": "The canoe, the tent by the lake", "explain": True}
    found = (await client.post("/v1/memories/trip/search", json=asked)).json()
    assert [round_["id"] for round_ in found["rounds"]] == ["D2:1"]
    assert [block["round_ids"] for block in found["context"]["blocks"]] == [["D2:1"]]
    assert "lake" not in found["context"]["text"]
    taken = await client.post("/v1/memories/trip/rounds", json={"rounds": [tent]})
    assert taken.status_code == 409


async def test_a_file_of_another_memory_is_none_of_this_one(
    client: httpx.AsyncClient, tent: dict[str, Any], canoe: dict[str, Any]
) -> None:
    await add(client, tent, memory="one")
    await add(client, canoe, memory="two")
    url = (await client.get("/v1/memories/one/rounds/D1:1")).json()["turns"][0]["images"][0]["url"]
    other = await client.get(url.replace("/one/", "/two/"))
    assert (other.status_code, other.json()["error"]["code"]) == (404, "unknown_file")


async def test_a_round_id_may_hold_slashes_and_blanks(
    client: httpx.AsyncClient, canoe: dict[str, Any]
) -> None:
    await add(client, {**canoe, "id": "day 1/part 2"})
    round_ = await client.get("/v1/memories/trip/rounds/day%201%2Fpart%202")
    assert round_.json()["id"] == "day 1/part 2"
