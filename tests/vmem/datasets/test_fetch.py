import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from vmem.datasets.fetch import (
    ATTEMPTS,
    GALLERY,
    GALLERY_HOST,
    GALLERY_VERSION,
    LOCOMO_URL,
    fetch,
)
from vmem.errors import DataError

LISTING = f"{GALLERY_HOST}/api/{GALLERY}/tree/{GALLERY_VERSION}/data?recursive=true"
FILES = {
    "data/dialog/Pets.json": b"{}",
    "data/image/Pets/D1_IMG_001.jpg": b"a picture" * 50,
    "data/image/Pets/QA_IMG_001.png": b"another picture",
}


class Server:
    """Answers from a table, and counts what it was asked."""

    def __init__(self, answers: dict[str, Callable[[], httpx.Response]]) -> None:
        self.answers = answers
        self.asked: Counter[str] = Counter()
        self.transport = httpx.MockTransport(self.answer)

    def answer(self, request: httpx.Request) -> httpx.Response:
        url = str(request.url)
        self.asked[url] += 1
        return self.answers[url]() if url in self.answers else httpx.Response(404)


def resolved(path: str) -> str:
    return f"{GALLERY_HOST}/{GALLERY}/resolve/{GALLERY_VERSION}/{path}"


def gallery(files: dict[str, bytes]) -> Server:
    """The data set's host: a listing in two pages, and the files behind a redirection."""
    entries = [
        {"type": "directory", "path": "data/image/Pets", "size": 0, "oid": "x"},
        {"type": "file", "path": "data/notes.txt", "size": 3},
        *({"type": "file", "path": path, "size": len(data)} for path, data in files.items()),
    ]
    page_two = f"{LISTING}&cursor=2"
    answers: dict[str, Callable[[], httpx.Response]] = {
        LISTING: lambda: httpx.Response(
            200, json=entries[:3], headers={"link": f'<{page_two}>; rel="next"'}
        ),
        page_two: lambda: httpx.Response(200, json=entries[3:]),
    }
    for path, data in files.items():
        place = f"https://cdn.example.org/{path}"
        answers[resolved(path)] = lambda place=place: httpx.Response(
            302, headers={"location": place}
        )
        answers[place] = lambda data=data: httpx.Response(200, content=data)
    return Server(answers)


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_locomo_is_one_file(tmp_path: Path) -> None:
    content = json.dumps([]).encode() * 1000
    server = Server({LOCOMO_URL: lambda: httpx.Response(200, content=content)})
    told: list[tuple[int, int | None]] = []
    folder = fetch(
        "locomo",
        tmp_path / "new" / "folder",
        lambda done, total: told.append((done, total)),
        transport=server.transport,
    )
    assert names(folder) == {"locomo10.json"}
    assert (folder / "locomo10.json").read_bytes() == content
    assert told[-1] == (len(content), len(content))
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_mem_gallery_is_its_dialogues_and_pictures(tmp_path: Path) -> None:
    told: list[tuple[int, int | None]] = []
    fetch(
        "mem-gallery",
        tmp_path,
        lambda done, total: told.append((done, total)),
        transport=gallery(FILES).transport,
    )
    assert names(tmp_path) == {path.removeprefix("data/") for path in FILES}
    for path, data in FILES.items():
        assert (tmp_path / path.removeprefix("data/")).read_bytes() == data
    everything = sum(map(len, FILES.values()))
    assert told[-1] == (everything, everything)
    assert {total for _, total in told} == {everything}


def test_what_is_there_in_full_is_not_asked_for_again(tmp_path: Path) -> None:
    whole, half, _ = (tmp_path / path.removeprefix("data/") for path in FILES)
    for path, data in ((whole, b"{}"), (half, b"a pic")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    server = gallery(FILES)
    fetch("mem-gallery", tmp_path, transport=server.transport)
    asked = {path for path in FILES if server.asked[resolved(path)]}
    assert asked == set(FILES) - {"data/dialog/Pets.json"}
    assert half.read_bytes() == FILES["data/image/Pets/D1_IMG_001.jpg"]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_fault_that_passes_is_waited_out(tmp_path: Path, status: int) -> None:
    answers = iter([httpx.Response(status), httpx.Response(200, content=b"[]")])
    server = Server({LOCOMO_URL: lambda: next(answers)})
    fetch("locomo", tmp_path, transport=server.transport, backoff_s=0)
    assert server.asked[LOCOMO_URL] == 2
    assert (tmp_path / "locomo10.json").read_bytes() == b"[]"


@pytest.mark.parametrize(("status", "tries"), [(404, 1), (403, 1), (503, ATTEMPTS)])
def test_a_refusal_says_what_to_do(tmp_path: Path, status: int, tries: int) -> None:
    server = Server({LOCOMO_URL: lambda: httpx.Response(status)})
    with pytest.raises(DataError, match=rf"answers {status}\).*put its files into .* by hand"):
        fetch("locomo", tmp_path, transport=server.transport, backoff_s=0)
    assert server.asked[LOCOMO_URL] == tries
    assert names(tmp_path) == set()


@pytest.mark.parametrize("name", ["locomo", "mem-gallery"])
def test_without_internet_there_is_one_sentence(tmp_path: Path, name: str) -> None:
    tries = []

    def refuse(request: httpx.Request) -> httpx.Response:
        tries.append(request)
        raise httpx.ConnectError("no route to host")

    with pytest.raises(DataError) as caught:
        fetch(name, tmp_path, transport=httpx.MockTransport(refuse), backoff_s=0)
    assert len(tries) == ATTEMPTS
    assert str(caught.value).startswith(f"{name} could not be downloaded (ConnectError: no route")
    assert f"put its files into {tmp_path} by hand" in str(caught.value)


def test_a_file_that_keeps_coming_short_is_not_kept(tmp_path: Path) -> None:
    server = gallery(FILES)
    short = "https://cdn.example.org/data/image/Pets/QA_IMG_001.png"
    server.answers[short] = lambda: httpx.Response(200, content=b"anoth")
    with pytest.raises(DataError, match=r"QA_IMG_001.png came incomplete"):
        fetch("mem-gallery", tmp_path, transport=server.transport, backoff_s=0)
    assert server.asked[short] == ATTEMPTS
    assert names(tmp_path) == {"dialog/Pets.json", "image/Pets/D1_IMG_001.jpg"}


def test_a_listing_cannot_write_outside_the_folder(tmp_path: Path) -> None:
    server = gallery({"data/image/../../../evil.jpg": b"x"})
    with pytest.raises(DataError, match="names a path outside its folder"):
        fetch("mem-gallery", tmp_path / "inner", transport=server.transport)
    assert names(tmp_path) == set()


@pytest.mark.parametrize(
    ("body", "complaint"),
    [(b"<html>", "is not JSON"), (b'[{"type": "file"}]', "path is missing"), (b"[]", "lists no")],
)
def test_a_listing_of_another_kind_is_named(tmp_path: Path, body: bytes, complaint: str) -> None:
    server = Server({LISTING: lambda: httpx.Response(200, content=body)})
    with pytest.raises(DataError, match=complaint):
        fetch("mem-gallery", tmp_path, transport=server.transport)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    server = Server({LOCOMO_URL: lambda: httpx.Response(200, content=b"[]")})
    with pytest.raises(DataError, match="file cannot be written"):
        fetch("locomo", tmp_path / "file", transport=server.transport)


def test_an_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'photobench' cannot be downloaded; known: locomo, mem-"):
        fetch("photobench", tmp_path)
