"""The picture store, on a folder and on fsspec's memory file system."""

import hashlib
import io
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pytest
from PIL import Image

from vmem.errors import ConfigError, ImageError, StoreError
from vmem.images import decode_image, read_image
from vmem.stores.images import ImageStore

AtOnce = Callable[[list[Callable[[], object]]], None]
ROOT = Path(__file__).parents[3]
DIGEST = "ab" + "0" * 62


def picture(format: str = "PNG", color: str = "red", side: int = 4) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (side, side), color).save(buffer, format)
    return buffer.getvalue()


@pytest.fixture(params=["folder", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "folder":
        yield str(tmp_path / "odd #name [x] 100%" / "images")
    else:
        name = uuid.uuid4().hex
        yield f"memory://{name}/images"
        memory = fsspec.filesystem("memory")
        if memory.exists(f"/{name}"):
            memory.rm(f"/{name}", recursive=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "images"


@pytest.mark.parametrize(
    ("format", "extension"),
    [("PNG", "png"), ("JPEG", "jpg"), ("GIF", "gif"), ("WEBP", "webp"), ("BMP", "bmp")],
)
def test_a_picture_comes_back_by_digest_and_by_uri(url: str, format: str, extension: str) -> None:
    store = ImageStore(url)
    data = picture(format)
    digest, uri = store.put(data)
    assert digest == hashlib.sha256(data).hexdigest()
    assert uri.endswith(f"/{digest[:2]}/{digest[2:]}.{extension}")
    assert store.get(digest) == store.get(uri) == read_image(uri) == data
    assert ImageStore(url).get(digest) == data


def test_the_same_picture_is_kept_once(url: str) -> None:
    store = ImageStore(url)
    assert store.put(picture()) == store.put(picture())
    assert store.count() == 1
    store.put(picture(color="blue"))
    assert store.count() == 2


def test_a_picture_is_deleted_once(url: str) -> None:
    store = ImageStore(url)
    digest, uri = store.put(picture())
    other, _ = store.put(picture(color="blue"))
    assert store.delete(uri)
    assert not store.delete(digest)
    assert store.count() == 1
    with pytest.raises(ImageError, match=f"image {digest} is not in "):
        store.get(uri)
    assert decode_image(store.get(other), other).size == (4, 4)


def test_what_does_not_decode_is_not_kept(url: str) -> None:
    store = ImageStore(url)
    store.put(picture())
    for data in (b"", b"no picture", picture(side=64)[:60]):
        with pytest.raises(ImageError, match=hashlib.sha256(data).hexdigest()):
            store.put(data)
        with pytest.raises(ImageError, match="holiday"):
            store.put(data, "holiday.png")
    assert store.count() == 1


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "../" + DIGEST, DIGEST.upper(), DIGEST[:-1], "", f"s3://b/ab/{DIGEST[2:]}"],
)
def test_a_name_that_is_no_digest_reads_nothing(url: str, name: str) -> None:
    store = ImageStore(url)
    with pytest.raises(ImageError, match="neither the digest nor the URI"):
        store.get(name)
    with pytest.raises(ImageError, match="neither the digest nor the URI"):
        store.delete(name)


def test_a_uri_reads_from_this_store_only(folder: Path, tmp_path: Path) -> None:
    _, uri = ImageStore(str(tmp_path / "elsewhere")).put(picture())
    with pytest.raises(ImageError, match=re.escape(f"is not in {folder};")):
        ImageStore(str(folder)).get(uri)
    assert ImageStore(str(folder)).count() == 0


def test_a_damaged_picture_is_told_and_mended_by_putting_it_again(folder: Path) -> None:
    store = ImageStore(str(folder))
    data = picture()
    digest, uri = store.put(data)
    Path(uri).write_bytes(data[:-1] + b"x")
    with pytest.raises(ImageError, match=re.escape(f"image {uri} is damaged")):
        store.get(digest)
    store.delete(digest)
    store.put(data)
    Path(uri).write_bytes(data[:10])  # as a power cut leaves it
    store.put(data)
    assert store.get(digest) == data


def test_an_object_that_is_there_is_left_alone(folder: Path) -> None:
    store = ImageStore(str(folder))
    _, uri = store.put(picture())
    os.utime(uri, (1, 1))
    store.put(picture())
    assert Path(uri).stat().st_mtime == 1


def test_threads_that_put_the_same_picture_agree(folder: Path, at_once: AtOnce) -> None:
    store = ImageStore(str(folder))
    data = picture(side=500)
    found: list[tuple[str, str]] = []
    at_once([lambda: found.append(store.put(data))] * 8)
    assert len(found) == 8
    assert len(set(found)) == 1
    assert [path.name for path in folder.rglob("*.*")] == [Path(found[0][1]).name]


def test_a_full_disk_is_told_and_leaves_nothing_behind(folder: Path) -> None:
    code = """
import io, os, resource, signal, sys
from PIL import Image
from vmem.errors import StoreError
from vmem.stores.images import ImageStore
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
buffer = io.BytesIO()
Image.frombytes("RGB", (100, 100), os.urandom(30_000)).save(buffer, "BMP")
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
try:
    ImageStore(sys.argv[1]).put(buffer.getvalue())
except StoreError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, folder], cwd=ROOT, capture_output=True, text=True, check=True
    )
    told = r"^/.*/images could not keep image [0-9a-f]{64}: File too large\n$"
    assert re.match(told, done.stdout)
    assert [path for path in folder.rglob("*") if path.is_file()] == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = ImageStore(str(tmp_path / "file"))
    with pytest.raises(StoreError, match="file could not keep image"):
        store.put(picture())
    with pytest.raises(ConfigError, match=r"images_url nonsense://x cannot be used"):
        ImageStore("nonsense://x")
