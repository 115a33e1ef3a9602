"""Hostile requests are refused early, each with one sentence; nothing of them stays."""

import base64
import io
import json
import struct
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from PIL import Image as Pillow

from serve.errors import RequestError
from serve.limits import check_json
from serve.rounds_in import check_text

pytestmark = pytest.mark.anyio
JSON = {"content-type": "application/json"}


def b64(data: bytes) -> Any:
    return base64.b64encode(data).decode()


def bomb() -> Any:
    """A PNG that promises 900 million pixels in a few hundred bytes."""
    side = 30_000
    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(bytes(1_000))), (b"IEND", b"")]
    parts = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def tiff() -> Any:
    file = io.BytesIO()
    Pillow.new("RGB", (4, 4)).save(file, "TIFF")
    return file.getvalue()


SVG = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"
PICTURES = {
    "bomb": (b64(bomb()), 422, "million pixels"),
    "svg": (b64(SVG), 422, "is not a"),
    "tiff": (b64(tiff()), 422, "is not a"),
    "html": (b64(b"<html><script>"), 422, "is not a"),
    "truncated": (b64(b"\x89PNG\r\n\x1a\n\0\0"), 422, "picture"),
    "not base64": ("@@@@", 422, "is not base64"),
    "data URL": ("data:image/png;base64,AAAA", 422, "is not base64"),
    "huge base64": ("A" * (28 * 2**20), 413, "over 20 MiB"),
    "empty": ("", 422, "base64"),
}
"""The base64 of a picture, the status and a part of the sentence."""


@pytest.mark.parametrize("name", PICTURES)
async def test_a_picture_that_is_none_is_refused_before_the_service_sees_it(
    client: httpx.AsyncClient, served: Any, name: str
) -> None:
    text, status, part = PICTURES[name]
    asked = {
        "rounds": {"rounds": [{"id": "a", "user": "x", "images": [{"base64": text}]}]},
        "search": {"query": "what?", "image": {"base64": text}},
        "answer": {"query": "what?", "image": {"base64": text}},
    }
    for route, body in asked.items():
        response = await client.post(f"/v1/memories/trip/{route}", json=body)
        assert response.status_code == status, response.text
        message = response.json()["error"]["message"]
        assert part in message
        assert len(message) < 300
    assert served.service.calls == []


DEEP = b'{"query": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
BODIES = {
    "deep lists": (DEEP, 422, "nested"),
    "deep objects": (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, 422, "nested"),
    "unclosed": (b"[" * 1_000_000, 422, "nested"),
    "many values": (b'{"query": [' + b"1," * 60_000 + b"1]}", 422, "values"),
    "many texts": (b'{"query": [' + b'"",' * 60_000 + b"1]}", 422, "values"),
    "huge number": (b'{"options": {"top_k": ' + b"9" * 100_000 + b"}}", 422, "digits"),
    "huge exponent": (b'{"query": "a", "options": {"temperature": 1e999}}', 422, "temperature"),
    "not a number": (b'{"query": "a", "options": {"temperature": NaN}}', 422, ""),
    "not JSON": (b"{'query': 'a'}", 422, "is not valid JSON"),
    "not UTF-8": (b'{"query": "\xff\xfe"}', 422, "is not valid JSON"),
    "half a surrogate": (b'{"query": "\\ud800"}', 422, "is not valid JSON"),
    "empty": (b"", 422, "is not valid JSON"),
    "a list": (b"[]", 422, "The body"),
    "null": (b"null", 422, "The body"),
    "unknown field": (b'{"query": "a", "uri": "s3://b"}', 422, "uri is no field"),
    "a path": (b'{"query": "a", "image": {"path": "/etc/passwd"}}', 422, "image.path is no field"),
    "a uri": (b'{"query": "a", "image": {"uri": "file:///etc/passwd"}}', 422, "image.uri is no"),
    "a missing field": (b"{}", 422, "query is missing"),
    "an empty question": (b'{"query": ""}', 422, "query"),
    "blanks": (b'{"query": "  "}', 422, "empty"),
    "long question": (json.dumps({"query": "a" * 20_001}).encode(), 413, "20,000 characters"),
    "url": (b'{"query": "a", "image": {"url": "http://127.0.0.1/x"}}', 422, "does not fetch"),
    "two places": (b'{"query":"a","image":{"base64":"AA","url":"http://x"}}', 422, "not several"),
    "no place": (b'{"query": "a", "image": {"caption": "x"}}', 422, "give a picture"),
    "a file of no form": (b'{"query": "a", "image": {"file": "x"}}', 422, "file part"),
    "bad digest": (b'{"query": "a", "image": {"digest": "../../etc"}}', 422, "image.digest"),
}


@pytest.mark.parametrize("name", BODIES)
async def test_a_hostile_body_gets_one_sentence(
    client: httpx.AsyncClient, served: Any, name: str
) -> None:
    body, status, part = BODIES[name]
    for route in ("search", "answer"):
        response = await client.post(f"/v1/memories/trip/{route}", content=body, headers=JSON)
        assert response.status_code == status, response.text
        error = response.json()["error"]
        assert part in error["message"]
        assert len(error["message"]) < 250
        assert "pydantic" not in response.text
        assert "passwd" not in response.text
    assert served.service.calls == []


ROUNDS = {
    "none": ([], 422, "rounds"),
    "no id": ([{"user": "x"}], 422, "rounds.0.id is missing"),
    "nothing said": ([{"id": "a", "user": " "}], 422, "no text"),
    "both forms": ([{"id": "a", "user": "x", "turns": [{"speaker": "u"}]}], 422, "not both"),
    "bad time": ([{"id": "a", "user": "x", "time": "yesterday"}], 422, "no date"),
    "twice": ([{"id": "a", "user": "x"}, {"id": "a", "user": "y"}], 422, "share an id"),
    "too many": ([{"id": str(n), "user": "x"} for n in range(257)], 413, "256 rounds"),
    "many pictures": ([{"id": "a", "images": [{"caption": "x"}] * 17}], 413, "16 pictures"),
    "a long text": ([{"id": "a", "user": "x" * 60_001}], 413, "60,000 characters"),
    "NUL": ([{"id": "a", "user": "x\0y"}], 422, "NUL"),
    "NUL in a caption": ([{"id": "a", "images": [{"caption": "\0"}]}], 422, "NUL"),
    "control in the id": ([{"id": "a\nb", "user": "x"}], 422, "control characters"),
    "a long id": ([{"id": "a" * 201, "user": "x"}], 422, "rounds.0.id"),
    "a path": ([{"id": "a", "images": [{"path": "/etc/passwd"}]}], 422, "path is no field"),
    "a digest": ([{"id": "a", "images": [{"digest": "0" * 64}]}], 404, "no such memory"),
    "audio path": ([{"id": "a", "audio": {"uri": "/etc/passwd"}}], 422, "uri is no field"),
    "no audio": ([{"id": "a", "audio": {"base64": b64(b"#EXTM3U\nfile:///x")}}], 422, "is no WAV"),
}


@pytest.mark.parametrize("name", ROUNDS)
async def test_a_hostile_round_gets_one_sentence_and_leaves_nothing(
    client: httpx.AsyncClient, name: str
) -> None:
    rounds, status, part = ROUNDS[name]
    response = await client.post("/v1/memories/trip/rounds", json={"rounds": rounds})
    assert response.status_code == status, response.text
    assert part in response.json()["error"]["message"]
    listed = await client.get("/v1/memories/trip/rounds")
    assert listed.status_code == 404 or listed.json()["rounds"] == []


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "a/b", "-a", "x" * 101, "é", "a\0", "..", None, 7]
)
async def test_an_ill_formed_name_is_refused_on_create(
    client: httpx.AsyncClient, name: str
) -> None:
    response = await client.post("/v1/memories", json={"id": name})
    assert (response.status_code, response.json()["error"]["code"]) == (422, "invalid_request")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/memories/a%20b", 404),
        ("/v1/memories/%00", 404),
        ("/v1/memories/..%2f..%2fetc", 404),
        ("/v1/memories/" + "x" * 101, 404),
        ("/v1/memories/trip/images/..%2f..%2fetc%2fpasswd", 404),
        ("/v1/memories/trip/images/xyz", 422),
        ("/v1/memories/trip/rounds?after=99999999999999999999", 422),
        ("/v1/memories/trip/rounds?after=" + "9" * 5_000, 422),
        ("/v1/memories/trip/rounds?limit=0", 422),
        ("/v1/memories?after=../x", 422),
        ("/nothing/here", 404),
        ("/v2/memories", 404),
        ("/ui/../../etc/passwd", 404),
        ("/ui/%2e%2e/%2e%2e/errors.py", 404),
        ("/ui/..%2fhttp.py", 404),
        ("/docs/assets/..%2f__init__.py", 404),
    ],
)
async def test_a_hostile_path_is_one_of_nothing(
    client: httpx.AsyncClient, path: str, status: int
) -> None:
    response = await client.get(path)
    assert response.status_code == status
    assert set(response.json()["error"]) == {"code", "message", "type", "param", "request_id"}


async def test_other_methods_and_types_are_errors_of_the_same_shape(
    client: httpx.AsyncClient,
) -> None:
    method = await client.put("/v1/memories", json={})
    assert (method.status_code, method.json()["error"]["code"]) == (405, "method_not_allowed")
    assert "POST" in method.headers["allow"] or "GET" in method.headers["allow"]
    for kind in ("text/plain", "application/xml", "application/x-www-form-urlencoded", ""):
        for path in ("/v1/memories", "/v1/memories/trip/search", "/v1/memories/trip/import"):
            response = await client.post(path, content=b"{}", headers={"content-type": kind})
            assert response.status_code == 415
            assert response.json()["error"]["code"] == "unsupported_media_type"


async def test_a_long_body_is_refused_before_it_is_read(serve_app: Callable[..., Any]) -> None:
    served = serve_app(limits={"body_bytes": 2_000})
    sent = []

    async def endless() -> AsyncIterator[Any]:
        while True:
            sent.append(1_000)
            yield b" " * 1_000

    async with served.client() as client:
        announced = await client.post(
            "/v1/memories/trip/search", content=b" " * 2_001, headers=JSON
        )
        streamed = await client.post("/v1/memories/trip/search", content=endless(), headers=JSON)
    for response in (announced, streamed):
        assert (response.status_code, response.json()["error"]["code"]) == (413, "too_large")
        assert response.headers["connection"] == "close"
    assert sum(sent) <= 4_000
    assert served.metrics.reasons == ["too_large"] * 2


async def test_long_headers_are_refused(client: httpx.AsyncClient, served: Any) -> None:
    many = {f"x-h{n}": "a" * 1_000 for n in range(17)}
    for response in (
        await client.get("/v1/memories", headers=many),
        await client.get("/v1/memories?after=" + "a" * 17_000),
    ):
        assert (response.status_code, response.json()["error"]["code"]) == (
            431,
            "headers_too_large",
        )
    assert served.service.calls == []


async def test_a_content_length_that_is_none_is_refused(client: httpx.AsyncClient) -> None:
    for length in ("-1", "x", "9" * 30):
        response = await client.get("/v1/memories", headers={"content-length": length})
        assert response.status_code == 413


FORM = "multipart/form-data; boundary=x"
FORMS = {
    "no boundary": ("multipart/form-data", b"", 400),
    "garbage": (FORM, b"garbage", 400),
    "another charset": (f"{FORM}; charset=punycode", b"--x--", 415),
    "many fields": (FORM, b'--x\r\ncontent-disposition: form-data; name="a"\r\n\r\n\r\n' * 40, 400),
    "twice": (
        FORM,
        b'--x\r\ncontent-disposition: form-data; name="query"\r\n\r\na\r\n' * 2 + b"--x--",
        422,
    ),
}


@pytest.mark.parametrize("name", FORMS)
async def test_a_hostile_form_is_refused(client: httpx.AsyncClient, served: Any, name: str) -> None:
    content_type, body, status = FORMS[name]
    response = await client.post(
        "/v1/memories/trip/search", content=body, headers={"content-type": content_type}
    )
    assert response.status_code == status, response.text
    assert "error" in response.json()
    assert served.service.calls == []


async def test_deep_json_in_a_form_field_is_refused(client: httpx.AsyncClient) -> None:
    data = {"query": "a", "options": "[" * 100_000}
    files = {"x": ("x", b"")}
    response = await client.post("/v1/memories/trip/search", data=data, files=files)
    assert (response.status_code, "nested" in response.text) == (422, True)


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("[[[[1]]]]", True),
        ("[[[[[1]]]]]", False),
        ('["[[[[[["]', True),
        ('["\\"[[[[[["]', True),
        ('["\\\\", [[[[', False),
        ("[[1],[[2]],[[[3]]]]", True),
        ("1" * 64, True),
        ("1" * 65, False),
        ("-1.5e" + "1" * 70, False),
        ('"' + "1" * 1_000 + '"', True),
        ('"open', True),
        ("[" + "1," * 50_000 + "1]", True),
        ("[" + "1," * 50_001 + "1]", False),
        ("[" + '"a",' * 50_001 + "1]", False),
        ("[" + "[]" * 50_001 + "]", False),
    ],
)
async def test_nesting_is_counted_outside_of_texts(text: str, good: bool) -> None:
    if good:
        check_json(text.encode(), 4)
    else:
        with pytest.raises(RequestError):
            check_json(text.encode(), 4)


async def test_text_limits_count_characters() -> None:
    check_text("é" * 10, "a text", 10)
    with pytest.raises(Exception, match="a text has over 10 characters"):
        check_text("é" * 11, "a text", 10)
