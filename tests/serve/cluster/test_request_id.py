"""The id of a request, as Serve's proxy passes it on and back."""

import re
import socket
from typing import Any
from urllib.parse import urlsplit

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(280)]


def ask(url: str, request_id: bytes | None) -> tuple[int, list[bytes], bytes]:
    """Status, ids in the response's head, and its body, of a request that httpx would not send."""
    place = urlsplit(url)
    header = b"" if request_id is None else b"x-request-id: " + request_id + b"\r\n"
    request = b"GET /v1/nothing HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n" + header
    with socket.create_connection((place.hostname, place.port), timeout=60) as connection:
        connection.sendall(request + b"\r\n")
        reply = b"".join(iter(lambda: connection.recv(65_536), b""))
    head, _, body = reply.partition(b"\r\n\r\n")
    ids = re.findall(rb"(?im)^x-request-id: ?([^\r\n]*)", head)
    return int(head.split()[1]), ids, body


@pytest.mark.parametrize(
    "hostile",
    [b"", b"a" * 10_000, b'"; <script>', b"\xff\xfe", "ä".encode(), b"a\r\nx-request-id: b c"],
    ids=["empty", "long", "quotes", "no UTF-8", "not ASCII", "two"],
)
def test_an_id_that_is_none_is_replaced_everywhere(running: Any, hostile: bytes) -> None:
    status, ids, body = ask(running.url, hostile)
    assert status == 404
    (own,) = ids
    assert re.fullmatch(rb"[0-9a-f]{32}|a", own)
    assert b'"request_id":"' + own + b'"' in body


def test_a_good_id_is_kept_and_a_missing_one_made(running: Any) -> None:
    status, ids, body = ask(running.url, b"caller-1.x_y")
    assert (status, ids) == (404, [b"caller-1.x_y"])
    assert b'"request_id":"caller-1.x_y"' in body
    status, (made,), body = ask(running.url, None)
    assert status == 404
    assert re.fullmatch(rb"[0-9a-f]{32}", made)
    assert made in body


def test_a_terminal_escape_is_refused(running: Any) -> None:
    assert ask(running.url, b"\x1b[31mred") == (400, [], b"Invalid HTTP request received.")
