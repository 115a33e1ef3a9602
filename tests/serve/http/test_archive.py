"""Export and import: what goes out comes in elsewhere; a hostile archive leaves nothing."""

import io
import json
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from vmem.bank import Bank
from vmem.export import import_memory

pytestmark = pytest.mark.anyio
LINE = {"id": "a", "session": "s", "time": "2026-01-01", "user": "hello"}


def archive_of(entries: Any) -> Any:
    """A zip file of names (or entries) and contents."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return file.getvalue()


def lines(*rounds: Any) -> Any:
    return "".join(json.dumps(round_) + "\n" for round_ in rounds)


async def send(client: httpx.AsyncClient, data: bytes, memory: str = "copy") -> Any:
    files = {"archive": ("memory.zip", data)}
    return await client.post(f"/v1/memories/{memory}/import", files=files)


@pytest.fixture
async def exported(
    client: httpx.AsyncClient, tent: dict[str, Any], canoe: dict[str, Any], voice: bytes
) -> Any:
    files = {"message": ("m.wav", voice)}
    heard = {"id": "v", "time": "2026-03-10", "audio": {"file": "message", "transcript": "lost"}}
    form = {"rounds": json.dumps([tent, canoe, heard, {**canoe, "id": "gone"}])}
    await client.post("/v1/memories/trip/rounds", data=form, files=files)
    await client.delete("/v1/memories/trip/rounds/gone")
    response = await client.get("/v1/memories/trip/export")
    assert response.headers["content-type"] == "application/zip"
    assert 'filename="trip.zip"' in response.headers["content-disposition"]
    return response.content


async def test_an_export_comes_back_as_it_was(
    client: httpx.AsyncClient,
    served: Any,
    exported: bytes,
    picture: Callable[..., bytes],
    voice: bytes,
) -> None:
    with zipfile.ZipFile(io.BytesIO(exported)) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        text = archive.read("rounds.jsonl").decode()
        files = {archive.read(name) for name in names if name != "rounds.jsonl"}
    assert files == {picture(), voice}
    assert [json.loads(line)["id"] for line in text.splitlines()] == ["D1:1", "D2:1", "v"]
    assert served.tenant not in text
    assert "gone" not in text
    done = await send(client, exported)
    assert done.status_code == 200, done.text
    assert done.json()["added"] == ["D1:1", "D2:1", "v"]
    again = await send(client, exported)
    assert (again.json()["added"], again.json()["unchanged"]) == ([], 3)
    one, two = [(await client.get(f"/v1/memories/{name}/rounds")).text for name in ("trip", "copy")]
    assert two.replace("/copy/", "/trip/") == one


async def test_another_tenant_may_import_it(served: Any, exported: bytes) -> None:
    _, secret = served.other_key()
    async with served.client(secret) as other:
        assert (await send(other, exported, "trip")).status_code == 200
        shown = (await other.get("/v1/memories/trip/rounds/D1:1")).json()["turns"][0]["images"][0]
        assert (await other.get(shown["url"])).status_code == 200


async def test_the_command_reads_it_too(
    served: Any, exported: bytes, bank: Bank, tmp_path: Path
) -> None:
    with zipfile.ZipFile(io.BytesIO(exported)) as archive:
        archive.extractall(tmp_path)
    done = import_memory(bank, f"{served.tenant}/by-command", tmp_path)
    assert len(done.added) == 3


def link(name: str) -> Any:
    entry = zipfile.ZipInfo(name)
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    return entry


def image(**place: Any) -> Any:
    return lines({**LINE, "images": [{**place, "caption": "x"}]})


ROUND = ("rounds.jsonl", lines(LINE))
HOSTILE = {
    "no zip": (b"PK no zip", 422, "no zip file"),
    "empty": (b"", 422, "no zip file"),
    "no rounds": (archive_of([("x.txt", "x")]), 422, "has no rounds.jsonl"),
    "climbs": (archive_of([ROUND, ("../../x", "x")]), 422, "leads out"),
    "climbs inside": (archive_of([ROUND, ("images/../../x", "x")]), 422, "leads out"),
    "absolute": (archive_of([ROUND, ("/etc/cron.d/x", "x")]), 422, "leads out"),
    "backslash": (archive_of([ROUND, ("a\\..\\x", "x")]), 422, "leads out"),
    "link": (archive_of([ROUND, (link("images/x.png"), "/etc/passwd")]), 422, "no ordinary file"),
    "bomb": (archive_of([ROUND, ("x", bytes(200 * 2**20))]), 413, "unpacks to more"),
    "entries": (archive_of([(f"f{n}", b"") for n in range(20_001)]), 413, "20,000 entries"),
    "passwd": (archive_of([("rounds.jsonl", image(path="/etc/passwd"))]), 422, "outside"),
    "file uri": (archive_of([("rounds.jsonl", image(uri="file:///etc/passwd"))]), 422, "outside"),
    "up": (archive_of([("rounds.jsonl", image(path="../../etc/passwd"))]), 422, "outside"),
    "s3": (archive_of([("rounds.jsonl", image(uri="s3://bucket/x"))]), 422, "outside"),
    "memory": (archive_of([("rounds.jsonl", image(uri="memory://x"))]), 422, "outside"),
    "data": (archive_of([("rounds.jsonl", image(uri="data:image/png;base64,AA"))]), 422, "outside"),
    "chained": (archive_of([("rounds.jsonl", image(uri="file::s3://b/x"))]), 422, ""),
    "web": (archive_of([("rounds.jsonl", image(uri="http://127.0.0.1/x"))]), 422, "http"),
    "missing": (archive_of([("rounds.jsonl", image(path="images/x.png"))]), 422, "not exist"),
    "svg": (
        archive_of([("rounds.jsonl", image(path="x.svg")), ("x.svg", "<svg/>")]),
        422,
        "is not a",
    ),
    "deep": (archive_of([("rounds.jsonl", "[" * 100_000)]), 422, "line 1 is nested"),
    "values": (archive_of([("rounds.jsonl", "[" + "1," * 60_000)]), 422, "line 1 holds over"),
    "many": (archive_of([("rounds.jsonl", "{}\n" * 20_001)]), 413, "20,000 rounds"),
    "twice": (archive_of([("rounds.jsonl", lines(LINE, LINE))]), 422, "used twice"),
    "half good": (
        archive_of([("rounds.jsonl", lines(LINE, {"id": "b"}))]),
        422,
        "line 2",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_archive_gets_one_sentence_and_leaves_nothing(
    client: httpx.AsyncClient, name: str
) -> None:
    data, status, part = HOSTILE[name]
    response = await send(client, data)
    assert response.status_code == status, response.text
    message = response.json()["error"]["message"]
    assert part in message
    assert "/tmp" not in message
    assert "vmem-import" not in message
    assert "root:" not in message
    assert (await client.get("/v1/memories/copy")).status_code == 404


async def test_an_encrypted_archive_is_refused(client: httpx.AsyncClient) -> None:
    data = bytearray(archive_of([ROUND]))
    for mark in (b"PK\x03\x04", b"PK\x01\x02"):
        at = data.index(mark) + (6 if mark == b"PK\x03\x04" else 8)
        data[at] |= 1
    response = await send(client, bytes(data))
    assert (response.status_code, "encrypted" in response.text) == (422, True)


async def test_the_form_must_hold_an_archive(client: httpx.AsyncClient) -> None:
    response = await client.post("/v1/memories/copy/import", files={"other": ("x", b"x")})
    assert (response.status_code, "archive" in response.text) == (422, True)


async def test_a_large_export_comes_in_pieces(
    client: httpx.AsyncClient, served: Any, canoe: dict[str, Any]
) -> None:
    rounds = [{**canoe, "id": f"r{n}"} for n in range(450)]
    for start in (0, 225):
        sent = {"rounds": rounds[start : start + 225]}
        await client.post("/v1/memories/long/rounds", json=sent)
    served.service.calls.clear()
    data = (await client.get("/v1/memories/long/export")).content
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert len(archive.read("rounds.jsonl").splitlines()) == len(rounds)
    assert served.service.calls.count("rounds") == 4  # three pages and the end
