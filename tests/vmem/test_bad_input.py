"""Bad input of every kind: one sentence with the mend, a failing status, an untouched store."""

import io
import json
import os
import re
import socket
import struct
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as Pillow

from vmem.bank import Bank
from vmem.config import load_settings
from vmem.datasets.jsonl import read_rounds

Line = dict[str, Any]
DAY = {"session": "D1", "time": "2026-03-02"}
GOOD = {"id": "new", **DAY, "user": "a new word"}


def png(width: int, height: int, colour: tuple[int, int, int] = (9, 9, 9)) -> bytes:
    out = io.BytesIO()
    Pillow.new("RGB", (width, height), colour).save(out, "PNG")
    return out.getvalue()


def png_header(width: int, height: int) -> bytes:
    """A picture that promises so many pixels, and has none."""

    def part(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    ends = [part(b"IHDR", header), part(b"IDAT", zlib.compress(b"")), part(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(ends)


def noise() -> bytes:
    out = io.BytesIO()
    Pillow.effect_noise((64, 64), 90).save(out, "PNG")
    return out.getvalue()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, settings_file: Callable[..., Path]) -> Path:
    """The settings of a store with a memory of two rounds; every case must leave it so."""
    folder = tmp_path_factory.mktemp("store")
    settings = settings_file(folder, folder / "home")
    (folder / "kite.png").write_bytes(png(8, 8, (200, 9, 9)))
    lines = [
        {"id": "r1", **DAY, "user": "the harbour opens at nine"},
        {"id": "r2", **DAY, "user": "my kite", "images": [{"path": "kite.png", "caption": "red"}]},
    ]
    (folder / "trip.jsonl").write_text("\n".join(map(json.dumps, lines)))
    with Bank(load_settings(settings)) as bank:
        (dialogue,) = read_rounds(folder / "trip.jsonl")
        bank.append("trip", dialogue.rounds)
    return settings


def contents(settings: Path) -> dict[str, Any]:
    """All that a store holds."""
    with Bank(load_settings(settings)) as bank:
        collections = bank.store.collections()
        return {
            "banks": bank.catalogue.banks(),
            "memories": bank.memories(),
            "rounds": bank.catalogue.bank_digest("default"),
            "rows": {name: sorted(bank.store.digests(name).items()) for name in collections},
            "images": bank.media.count(),
        }


@pytest.fixture
def refused(vmem: Any, store: Path) -> Callable[..., str]:
    """Runs a command that must fail and change nothing; returns its one sentence."""

    def run(*words: object, settings: Path = store, stdin: bytes = b"") -> str:
        before = contents(store)
        done = vmem(*words, "-s", settings, stdin=stdin)
        assert contents(store) == before
        assert done.returncode == 1
        assert done.stdout == ""
        assert re.fullmatch(r"error [A-Z]\w+Error: \S.*\n", done.stderr), done.stderr
        return str(done.stderr)

    return run


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["not json"], "DataError: WHERE line 1 is not JSON"),
        ([json.dumps(GOOD), '{"id": "x"'], "DataError: WHERE line 2 is not JSON"),
        ([json.dumps([1])], "DataError: WHERE line 1: input should be an object"),
        ([json.dumps({"id": "x", "user": "hi"})], "DataError: WHERE line 1: session is missing"),
        ([json.dumps(GOOD)] * 2, "WHERE line 2: round id 'new' is used twice; give each its own"),
        ([json.dumps(GOOD | {"user": " "})], "WHERE line 1: the round has no text, no image"),
        (
            [json.dumps(GOOD | {"time": "2 March"})],
            "WHERE line 1: time: '2 March' is no date like 2023-05-08 or 2023-05-08T13:56",
        ),
        ([json.dumps(GOOD | {"time": "2026-02-30"})], "line 1: time: '2026-02-30' is no date"),
        ([json.dumps(GOOD | {"colour": "red"})], "line 1: colour is no field of this format"),
        (["", ""], "DataError: WHERE holds no round"),
        (
            [json.dumps(GOOD), json.dumps(GOOD | {"id": "r1", "user": "the harbour is shut"})],
            "RoundConflictError: memory trip has a round r1 of other content; rounds never change,",
        ),
    ],
)
@pytest.mark.parametrize("as_file", [True, False], ids=["file", "stdin"])
def test_rounds_that_cannot_be_read(
    refused: Callable[..., str], tmp_path: Path, lines: list[str], said: str, as_file: bool
) -> None:
    path = tmp_path / "new.jsonl"
    path.write_text("\n".join(lines))
    where = str(path) if as_file else "standard input"
    sentence = refused("append", "trip", path if as_file else "-", stdin=path.read_bytes())
    assert said.replace("WHERE", where) in sentence


def test_bytes_that_are_no_text(refused: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "new.jsonl"
    path.write_bytes(json.dumps(GOOD | {"user": "café"}, ensure_ascii=False).encode("latin-1"))
    assert "new.jsonl is not UTF-8 text; save it as UTF-8" in refused("append", "trip", path)
    said = refused("append", "trip", "-", stdin=path.read_bytes())
    assert "standard input is not UTF-8 text; send it as UTF-8" in said


def test_a_file_that_is_not_there(refused: Callable[..., str], tmp_path: Path) -> None:
    assert "none.jsonl does not exist" in refused("append", "trip", tmp_path / "none.jsonl")
    assert "rounds.jsonl does not exist" in refused("import", "trip", tmp_path)


def test_a_name_that_no_memory_can_have(refused: Callable[..., str], tmp_path: Path) -> None:
    said = refused("append", "../trip", "-", stdin=json.dumps(GOOD).encode())
    assert "'../trip' cannot name a memory; take 1 to 200 letters, digits" in said


PICTURES: list[tuple[str, bytes | None, str]] = [
    ("text.png", b"no picture at all", r"is not a JPEG, PNG, WEBP, GIF, BMP file"),
    ("half.png", noise()[:2000], r"is damaged or truncated"),
    ("empty.png", b"", r"is empty \(0 bytes\)"),
    ("huge.png", png_header(20_000, 20_000), r"has over 50 million pixels; make it smaller"),
    ("none.png", None, r"does not exist"),
]


@pytest.mark.parametrize(("name", "data", "said"), PICTURES, ids=[name for name, _, _ in PICTURES])
def test_a_picture_that_cannot_be_used(
    refused: Callable[..., str], tmp_path: Path, name: str, data: bytes | None, said: str
) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    shared = GOOD | {"images": [{"path": name}]}
    (tmp_path / "new.jsonl").write_text(
        f"{json.dumps(GOOD | {'id': 'fine'})}\n{json.dumps(shared)}"
    )
    sentence = refused("append", "trip", tmp_path / "new.jsonl")
    assert re.search(rf"{re.escape(name)}'? {said}", sentence)
    asked = refused("search", "trip", "what is this?", "--image", tmp_path / name)
    assert re.search(rf"{re.escape(name)}'? {said}", asked)


@pytest.mark.parametrize("path", ["../secret.png", "/etc/hostname", "file:///etc/hostname"])
def test_a_path_that_leaves_the_data_folder(
    refused: Callable[..., str], tmp_path: Path, path: str
) -> None:
    (tmp_path / "secret.png").write_bytes(png(8, 8))
    (tmp_path / "data").mkdir()
    file = tmp_path / "data" / "new.jsonl"
    file.write_text(json.dumps(GOOD | {"images": [{"path": path}]}))
    sentence = refused("append", "trip", file)
    assert re.search(r"new\.jsonl line 1: round 'new': image .* lies outside its folder", sentence)


def test_an_address_that_is_not_read(refused: Callable[..., str], tmp_path: Path) -> None:
    file = tmp_path / "new.jsonl"
    file.write_text(json.dumps(GOOD | {"images": [{"uri": "http://10.0.0.1/x.png"}]}))
    sentence = refused("append", "trip", file)
    assert re.search(r"line 1: .* is not read over 'http'; allowed: data, file, gs", sentence)


def test_a_store_of_other_encoders(
    refused: Callable[..., str], tmp_path: Path, store: Path, settings_file: Callable[..., Path]
) -> None:
    other = {"text": {"kind": "fake"}, "image": {"kind": "none"}}
    settings = settings_file(tmp_path, store.parent / "home", encoders=other)
    for words in (["append", "trip", "-"], ["search", "trip", "harbour"]):
        said = refused(*words, settings=settings, stdin=json.dumps(GOOD).encode())
        assert "EncoderMismatchError: bank default was made with image_encoder" in said
        assert "or choose another bank" in said


HOLD = """
import sys
from vmem.stores.milvus import MilvusStore
store = MilvusStore(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def held(store: Path) -> Iterator[None]:
    """Another process has the store open."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, store.parent / "home/milvus.db"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    yield
    process.communicate()


@pytest.mark.usefixtures("held")
def test_a_store_that_another_process_has_open(vmem: Any, store: Path) -> None:
    for words in (
        ["append", "trip", "-"],
        ["search", "trip", "harbour"],
        ["delete", "trip", "--yes"],
    ):
        done = vmem(*words, "-s", store, stdin=json.dumps(GOOD).encode())
        assert (done.returncode, done.stdout) == (1, "")
        assert re.fullmatch(
            r"error StoreBusyError: \S+milvus\.db is in use by another process; end it, or .*\n",
            done.stderr,
        )
    (bank,) = json.loads(vmem("memories", "-s", store, "--json").stdout)
    assert [memory["rounds"] for memory in bank["memories"]] == [2]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small file system")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def fill(place: Path, left: int) -> Path:
    """Take all space but some bytes."""
    space = os.statvfs(place)
    filler = place / "filler"
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, space.f_bavail * space.f_frsize - left)
    return filler


@pytest.mark.parametrize(
    ("left", "kept"),
    [
        pytest.param(0, False, id="not even for reading"),
        pytest.param(64 << 10, False, id="not for the log"),
        pytest.param(1 << 20, True, id="for the log, not for the index"),
    ],
)
def test_a_full_disk(
    vmem: Any,
    small_disk: Path,
    tmp_path: Path,
    settings_file: Callable[..., Path],
    left: int,
    kept: bool,
) -> None:
    settings = settings_file(tmp_path, small_disk / "home")
    first, more = tmp_path / "first.jsonl", tmp_path / "more.jsonl"
    first.write_text(json.dumps(GOOD | {"id": "first", "user": "the harbour"}))
    long = " ".join(f"filler{n}" for n in range(100))
    lines = [GOOD | {"id": f"r{n}", "user": f"word{n} {long}"} for n in range(600)]
    more.write_text("\n".join(map(json.dumps, lines)))
    assert vmem("append", "trip", first, "-s", settings).returncode == 0
    filler = fill(small_disk, left)
    done = vmem("append", "trip", more, "-s", settings)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"error StoreError: .*(disk|space).*\n", done.stderr), done.stderr
    filler.unlink()
    (bank,) = json.loads(vmem("memories", "-s", settings, "--json").stdout)
    assert bank["memories"][0]["rounds"] == (1 + len(lines) if kept else 1), "all or nothing"
    for text, id_ in [("harbour", "first"), *([("word300", "r300")] if kept else [])]:
        found = json.loads(vmem("search", "trip", text, "-s", settings, "--json").stdout)
        assert found["rounds"][0]["round"] == id_


def test_a_query_that_cannot_be_searched_with(refused: Callable[..., str]) -> None:
    for verb in ("search", "ask"):
        assert "QueryError: the query is empty: write a question" in refused(verb, "trip", " \t")
        said = refused(verb, "trip", "x" * 100_000)
        assert "QueryError: the query has 100,000 characters, over the limit of 20,000" in said
        assert "QueryError: the query is not valid Unicode" in refused(verb, "trip", "caf\udcff")


@pytest.mark.parametrize(
    "words", [["search", "tripp", "x"], ["ask", "tripp", "x"], ["delete", "tripp", "--yes"]]
)
def test_an_unknown_memory(refused: Callable[..., str], words: list[str]) -> None:
    said = refused(*words)
    assert "UnknownMemoryError: bank default has no memory 'tripp'; it has trip" in said


def test_an_export_of_an_unknown_memory_writes_nothing(
    refused: Callable[..., str], tmp_path: Path
) -> None:
    assert "no memory 'tripp'" in refused("export", "tripp", "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_unknown_bank(refused: Callable[..., str]) -> None:
    said = refused("search", "trip", "x", "--bank", "other")
    assert "bank other has no memory 'trip'; it has none yet" in said


SETTINGS: list[tuple[str, str]] = [
    ("retrieval: {top_kk: 3}", r"bad\.yaml: there is no setting retrieval\.top_kk;"),
    ("retrieval: {top_k: none}", r"bad\.yaml: setting retrieval\.top_k: .*valid integer"),
    ("retrieval: {top_k: 0}", r"bad\.yaml: setting retrieval\.top_k: .*greater than or equal to 1"),
    ("retrieval: [", r"bad\.yaml cannot be read as YAML"),
    ("- 1", r"bad\.yaml must hold a mapping of settings"),
]


@pytest.mark.parametrize(("text", "said"), SETTINGS)
def test_a_settings_file_that_does_not_fit(
    refused: Callable[..., str], tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    assert re.search(rf"ConfigError: \S+{said}", refused("search", "trip", "x", settings=path))


def test_settings_that_are_not_there(refused: Callable[..., str], tmp_path: Path) -> None:
    said = refused("search", "trip", "x", settings=Path("quick"))
    assert "no settings named 'quick'; known: embedded, paper" in said
    said = refused("search", "trip", "x", settings=tmp_path / "none.yaml")
    assert "none.yaml cannot be read" in said


class Replies(BaseHTTPRequestHandler):
    """Gives every call the server's one reply."""

    server: "Model"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.server.calls += 1
        message = {"role": "assistant", "content": self.server.reply}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        body = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
        data = json.dumps(body | {"choices": [choice]}).encode()
        self.send_response(self.server.status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet."""


class Model(ThreadingHTTPServer):
    """A language model's server on loopback."""

    status = 200
    reply = ""
    calls = 0


@pytest.fixture
def model() -> Iterator[Model]:
    with Model(("127.0.0.1", 0), Replies) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def served(model: Model, store: Path, tmp_path: Path, settings_file: Callable[..., Path]) -> Path:
    """Settings whose backbone is that server, and sees."""
    return settings_file(tmp_path, store.parent / "home", llm=backbone(model.server_port))


def backbone(port: int, attempts: int = 2) -> dict[str, object]:
    url = f"http://127.0.0.1:{port}/v1"
    seeing = {"provider": "openai", "model": "m", "sees_images": True}
    return seeing | {"base_url": url, "attempts": attempts}


def test_a_model_that_cannot_be_reached(
    refused: Callable[..., str], store: Path, tmp_path: Path, settings_file: Callable[..., Path]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    settings = settings_file(tmp_path, store.parent / "home", llm=backbone(port, attempts=1))
    said = refused("ask", "trip", "harbour", settings=settings)
    assert f"ModelUnavailableError: model m at 127.0.0.1:{port} cannot be reached" in said
    assert "check that it runs and that llm.base_url is right" in said
    said = refused("search", "trip", "Which photo shows a kite?", "--llm", settings=settings)
    assert "ModelUnavailableError" in said


def test_a_model_that_keeps_refusing(
    refused: Callable[..., str], model: Model, served: Path
) -> None:
    model.status = 429
    said = refused("ask", "trip", "harbour", settings=served)
    assert "ModelUnavailableError: model m at 127.0.0.1" in said
    assert "keeps refusing (HTTP 429): try later, or ask less at once" in said
    assert model.calls == 2, "as many as llm.attempts says"


@pytest.mark.parametrize(
    ("status", "said"),
    [(401, "rejects the key .*: set VMEM_LLM__API_KEY"), (404, "is not known there: check llm")],
)
def test_a_model_that_refuses_for_good(
    refused: Callable[..., str], model: Model, served: Path, status: int, said: str
) -> None:
    model.status = status
    told = refused("ask", "trip", "x", settings=served)
    assert re.search(f"ModelUnusableError: model m .*{said}", told)
    assert model.calls == 1


def test_a_backbone_without_an_address(
    refused: Callable[..., str], store: Path, tmp_path: Path, settings_file: Callable[..., Path]
) -> None:
    settings = settings_file(tmp_path, store.parent / "home", llm={"provider": "openai"})
    said = refused("ask", "trip", "harbour", settings=settings)
    assert "ConfigError: llm.base_url and llm.model must name the server and its model" in said
    settings = settings_file(tmp_path, store.parent / "home", llm={"provider": "none"})
    said = refused("ask", "trip", "harbour", settings=settings)
    assert "ConfigError: answering needs a language model: set llm.provider, or use search" in said


@pytest.mark.parametrize(
    "reply", ["I see a kite. " * 100, '{"keywords": 7', "{}", '{"keywords": null}']
)
def test_keywords_that_are_no_json_leave_the_query_as_it_is(
    vmem: Any, model: Model, served: Path, store: Path, reply: str
) -> None:
    model.reply = reply
    before = contents(store)
    picture = store.parent / "kite.png"
    words = ["search", "trip", "what is this?", "--image", picture, "--llm", "--json"]
    done = vmem(*words, "-s", served)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["anchors"]["by_signal"]["text_dense"] == "what is this?"
    assert "image keywords not usable: m gave none that can be read" in found["anchors"]["notes"]
    assert found["rounds"][0]["round"] == "r2"
    assert model.calls == 1
    assert contents(store) == before


def test_a_broken_picture_costs_no_call(
    refused: Callable[..., str], model: Model, served: Path, tmp_path: Path
) -> None:
    (tmp_path / "broken.png").write_bytes(b"\x89PNG and no more")
    words = ["ask", "trip", "what is this?", "--image", tmp_path / "broken.png"]
    assert "ImageError: image 'broken.png' is not a JPEG" in refused(*words, settings=served)
    assert model.calls == 0
