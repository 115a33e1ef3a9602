"""Replies in SQLite: what their key depends on, and that they outlive those who wrote them."""

import hashlib
import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from vmem.errors import StoreBusyError, StoreError
from vmem.llm import cache as cache_module
from vmem.llm.cache import KeptReply, ReplyCache, reply_key
from vmem.ports import ChatReply, ChatRequest
from vmem.types import Usage

REQUEST = ChatRequest(
    role="answer",
    prompt="Where?",
    images=(b"one", b"two"),
    max_tokens=9,
    temperature=0.5,
    json_schema={"type": "object", "properties": {"a": {}, "b": {}}},
)
PLACE: dict[str, Any] = {"server": "http://x/v1", "model": "m7", "repetition": 0}
OTHER_REQUESTS = {
    "role": "judge",
    "prompt": "Where ?",
    "images": (b"two", b"one"),
    "max_tokens": 10,
    "temperature": 0.6,
    "json_schema": {"type": "object", "properties": {"b": {}, "a": {}}},
    "calls_tool": True,
}
OTHER_PLACES = {"server": "http://y/v1", "model": "m8", "repetition": 1}


def kept(text: str = "Rome", **values: Any) -> KeptReply:
    usage = Usage(role="answer", prompt_tokens=11, completion_tokens=3)
    reply = ChatReply(text=text, usage=usage, finish_reason="length")
    return KeptReply(
        **{"reply": reply, "seconds": 1.25, "kept_at": "2026-01-02T03:04:05.678+00:00", **values}
    )


def test_every_field_of_a_request_changes_its_key() -> None:
    assert set(OTHER_REQUESTS) == {field.name for field in fields(ChatRequest)}
    keys = [reply_key(REQUEST, **PLACE)]
    keys += [reply_key(replace(REQUEST, **{k: v}), **PLACE) for k, v in OTHER_REQUESTS.items()]
    keys += [reply_key(REQUEST, **{**PLACE, k: v}) for k, v in OTHER_PLACES.items()]
    keys.append(reply_key(replace(REQUEST, images=(b"onetwo",)), **PLACE))
    keys.append(reply_key(replace(REQUEST, json_schema=None), **PLACE))
    assert len(set(keys)) == 1 + len(OTHER_REQUESTS) + len(OTHER_PLACES) + 2


def test_nothing_else_changes_a_key() -> None:
    same = replace(
        REQUEST,
        images=(bytes(bytearray(b"one")), b"two"),
        json_schema=json.loads(json.dumps(REQUEST.json_schema)),
    )
    assert reply_key(same, **PLACE) == reply_key(REQUEST, **PLACE)
    whole = replace(REQUEST, temperature=1)
    assert reply_key(whole, **PLACE) == reply_key(replace(whole, temperature=1.0), **PLACE)


def test_a_key_is_the_digest_of_canonical_json() -> None:
    canonical = (
        '{"images":["' + hashlib.sha256(b"one").hexdigest() + '"],"json_schema":null,'
        '"max_tokens":256,"model":"m7","prompt":"O\\u00f9?","repetition":2,"role":"answer",'
        '"server":"s","temperature":0.0}'
    )
    request = ChatRequest(role="answer", prompt="Où?", images=(b"one",))
    key = reply_key(request, server="s", model="m7", repetition=2)
    assert key == hashlib.sha256(canonical.encode()).hexdigest()


@pytest.mark.parametrize("text", ["Rome", "São 北京 🎈\n\0", "cut \ud83d"])
def test_a_reply_comes_back_as_it_was(tmp_path: Path, text: str) -> None:
    cache = ReplyCache(tmp_path / "new" / "replies.sqlite3")
    assert cache.get("a" * 64) is None
    assert cache.put("a" * 64, kept(text)).result() == kept(text)
    cache.close()
    again = ReplyCache(tmp_path / "new" / "replies.sqlite3")
    assert again.get("a" * 64) == kept(text)
    assert again.get("b" * 64) is None
    again.close()


def test_the_first_reply_stays(tmp_path: Path) -> None:
    cache = ReplyCache(tmp_path / "replies.sqlite3")
    cache.put("a", kept("first")).result()
    assert cache.put("a", kept("second")).result() == kept("first")
    assert cache.get("a") == kept("first")
    cache.close()


def test_a_commit_reaches_the_disk(tmp_path: Path) -> None:
    """The pragmas that say so: 2 is FULL."""
    cache = ReplyCache(tmp_path / "replies.sqlite3")
    for pragma, value in (("synchronous", 2), ("journal_mode", "wal")):
        assert cache._writes.execute(f"PRAGMA {pragma}").fetchone() == (value,)
    cache.close()


def test_threads_write_at_once(
    tmp_path: Path, at_once: Callable[[Sequence[Callable[[], object]]], None]
) -> None:
    cache = ReplyCache(tmp_path / "replies.sqlite3")

    def task(number: int) -> Callable[[], object]:
        def run() -> None:
            for n in range(10):
                reply = kept(f"{number} {n}")
                assert cache.put(f"{number} {n}", reply).result() == reply

        return run

    at_once([task(number) for number in range(8)])
    assert all(
        cache.get(f"{number} {n}") == kept(f"{number} {n}")
        for number in range(8)
        for n in range(10)
    )
    cache.close()


def test_a_new_file_is_opened_by_many_at_once(
    tmp_path: Path, at_once: Callable[[Sequence[Callable[[], object]]], None]
) -> None:
    """SQLite itself does not wait here."""
    for number in range(3):
        path = tmp_path / f"{number}.sqlite3"
        at_once([lambda path=path: ReplyCache(path).close() for _ in range(8)])  # type: ignore[misc]


WRITER = """
import sys
from pathlib import Path
from vmem.llm.cache import KeptReply, ReplyCache
from vmem.ports import ChatReply
from vmem.types import Usage
path, me = Path(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
cache = ReplyCache(path)
for n in range(25):
    for key in (f"{me} {n}", f"both {n}"):
        reply = ChatReply(text=f"{me} {key}", usage=Usage(role="answer"))
        held = cache.put(key, KeptReply(reply=reply, seconds=1.0, kept_at="now")).result()
        print(key, "=", held.reply.text, flush=True)
"""


def test_processes_share_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "replies.sqlite3"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), me],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for me in ("left", "right")
    ]
    for writer in writers:
        assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
    said = [writer.communicate("go\n", timeout=120)[0] for writer in writers if writer.stdin]
    assert [writer.returncode for writer in writers] == [0, 0]
    lines = [dict(line.split(" = ") for line in out.splitlines()) for out in said]
    cache = ReplyCache(path)
    for n in range(25):
        held = cache.get(f"both {n}")
        assert held is not None
        assert lines[0][f"both {n}"] == lines[1][f"both {n}"] == held.reply.text
        assert lines[0][f"left {n}"] == f"left left {n}"
        assert lines[1][f"right {n}"] == f"right right {n}"
    cache.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM replies").fetchone() == (3 * 25,)
    connection.close()


def test_what_is_no_cache_is_told(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a database, " * 99)
    with pytest.raises(StoreError, match=r"the cache .*notes\.txt could not be opened \(file is "):
        ReplyCache(tmp_path / "notes.txt")
    with pytest.raises(StoreError, match="could not be opened"):
        ReplyCache(tmp_path / "notes.txt" / "replies.sqlite3")


def test_a_writer_that_does_not_end_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "BUSY_TIMEOUT_S", 0.05)
    cache = ReplyCache(tmp_path / "replies.sqlite3")
    other = sqlite3.connect(tmp_path / "replies.sqlite3", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusyError, match="another process writes for too long; try again"):
        cache.put("a", kept()).result()
    other.execute("ROLLBACK")
    other.close()
    assert cache.put("a", kept()).result() == kept()
    cache.close()


def test_a_reply_that_cannot_be_written_is_told_and_others_are_kept(tmp_path: Path) -> None:
    cache = ReplyCache(tmp_path / "replies.sqlite3")
    usage = Usage(role="answer", prompt_tokens=2**70)
    with pytest.raises(OverflowError):
        cache.put("a", kept(reply=ChatReply(text="x", usage=usage))).result(timeout=60)
    assert cache.put("b", kept()).result(timeout=60) == kept()
    cache.close()


def test_what_waits_to_be_written_is_written_at_the_end(tmp_path: Path) -> None:
    cache = ReplyCache(tmp_path / "replies.sqlite3")
    other = sqlite3.connect(tmp_path / "replies.sqlite3", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    futures = [cache.put(str(number % 4), kept(str(number))) for number in range(8)]
    assert not any(future.cancel() or future.done() for future in futures)
    other.execute("ROLLBACK")
    other.close()
    cache.close()
    assert [future.result() for future in futures] == [kept(text) for text in "01230123"]
    again = ReplyCache(tmp_path / "replies.sqlite3")
    assert [again.get(key) for key in "0123"] == [kept(text) for text in "0123"]
    again.close()
