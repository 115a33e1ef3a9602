import base64
import hashlib
import io
import os
import struct
import zlib
from pathlib import Path

import fsspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from vmem.errors import ImageError
from vmem.images import (
    MAX_BYTES,
    MAX_PIXELS,
    decode_image,
    find_file,
    image_digest,
    locate,
    read_image,
)

WIDTH, HEIGHT = 6, 4


def encoded(picture: Image.Image, format_: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    picture.save(file, format_, **options)
    return file.getvalue()


def plain(colour: str = "red") -> Image.Image:
    return Image.new("RGB", (WIDTH, HEIGHT), colour)


def png_that_claims(width: int, height: int) -> bytes:
    """A small PNG whose header, with a right checksum, promises another size."""
    data = encoded(plain())
    header = b"IHDR" + struct.pack(">II", width, height) + data[24:29]
    return data[:12] + header + struct.pack(">I", zlib.crc32(header)) + data[33:]


def data_uri(data: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


@pytest.mark.parametrize("format_", ["JPEG", "PNG", "WEBP", "GIF", "BMP"])
def test_the_five_formats_become_rgb(format_: str) -> None:
    picture = decode_image(encoded(plain(), format_), "a picture")
    assert picture.mode == "RGB"
    assert picture.size == (WIDTH, HEIGHT)
    assert np.abs(np.asarray(picture, int) - [255, 0, 0]).max() <= 3


@pytest.mark.parametrize("format_", ["TIFF", "PPM", "ICO"])
def test_other_formats_are_refused(format_: str) -> None:
    with pytest.raises(ImageError, match=r"'scan.x' is not a JPEG, PNG"):
        decode_image(encoded(plain(), format_), "scan.x")


def test_the_first_frame_of_an_animation_is_taken() -> None:
    frames = encoded(plain("red"), "GIF", save_all=True, append_images=[plain("blue")])
    assert decode_image(frames, "a.gif").getpixel((0, 0)) == (255, 0, 0)


@pytest.mark.parametrize(
    ("orientation", "corner"),
    [(1, (0, 0)), (3, (WIDTH - 1, HEIGHT - 1)), (6, (HEIGHT - 1, 0)), (8, (0, WIDTH - 1))],
)
def test_exif_orientation_is_applied(orientation: int, corner: tuple[int, int]) -> None:
    picture = plain("black")
    picture.putpixel((0, 0), (255, 255, 255))
    exif = Image.Exif()
    exif[0x0112] = orientation
    turned = decode_image(encoded(picture, "PNG", exif=exif), "turned.png")
    assert turned.size == ((WIDTH, HEIGHT) if orientation < 5 else (HEIGHT, WIDTH))
    assert turned.getpixel(corner) == (255, 255, 255)


def test_a_broken_exif_block_does_not_spoil_the_picture() -> None:
    data = encoded(plain(), "PNG", exif=b"Exif\x00\x00XX not a TIFF header")
    assert decode_image(data, "phone.png").size == (WIDTH, HEIGHT)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparent_parts_become_white(mode: str) -> None:
    clear = Image.new("RGBA", (WIDTH, HEIGHT), (0, 0, 0, 0)).convert(mode)
    options = {"transparency": bytes(256)} if mode == "P" else {}
    assert decode_image(encoded(clear, **options), "logo.png").getpixel((1, 1)) == (255,) * 3


def test_sixteen_bit_greys_keep_their_brightness() -> None:
    grey = np.full((HEIGHT, WIDTH), 128 * 256, np.uint16)
    data = encoded(Image.fromarray(grey))
    assert decode_image(data, "x-ray.png").getpixel((0, 0)) == (128,) * 3


@pytest.mark.parametrize(
    ("width", "height"),
    [(20_000, 20_000), (MAX_PIXELS // 5_000 + 1, 5_000), (9_500, 10_000), (2**31 - 1, 1)],
)
def test_too_many_pixels_are_refused_from_the_header(width: int, height: int) -> None:
    with pytest.raises(ImageError, match=r"'bomb.png' has over 50 million pixels"):
        decode_image(png_that_claims(width, height), "bomb.png")


def test_pixels_up_to_the_limit_pass_the_header_check() -> None:
    # It is then found truncated, as its data is that of a small picture.
    with pytest.raises(ImageError, match="damaged or truncated"):
        decode_image(png_that_claims(MAX_PIXELS // 5_000, 5_000), "big.png")


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", r"'x.jpg' is empty \(0 bytes\)"),
        (b"<svg></svg>", "'x.jpg' is not a JPEG"),
        (b"GIF89a", "'x.jpg' is not a JPEG|'x.jpg' is damaged"),
        (encoded(Image.effect_noise((64, 64), 50), "JPEG")[:600], "'x.jpg' is damaged or trunc"),
        (b"\x89PNG" + bytes(MAX_BYTES), "'x.jpg' is over 20 MiB"),
    ],
)
def test_bad_bytes_get_one_sentence(data: bytes, complaint: str) -> None:
    with pytest.raises(ImageError, match=complaint) as caught:
        decode_image(data, "x.jpg")
    assert "\n" not in str(caught.value)


SEEDS = [
    encoded(Image.effect_noise((9, 7), 50).convert("RGB"), format_)
    for format_ in ("JPEG", "PNG", "WEBP", "GIF", "BMP")
]


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::PIL.Image.DecompressionBombWarning")
@settings(deadline=None)
@given(
    data=st.sampled_from(SEEDS),
    changes=st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), max_size=6),
    keep=st.floats(0.05, 1),
)
def test_damage_never_raises_anything_else(
    data: bytes, changes: list[tuple[float, int]], keep: float
) -> None:
    damaged = bytearray(data)
    for where, value in changes:
        damaged[int(where * len(damaged))] = value
    try:
        assert decode_image(bytes(damaged[: int(keep * len(damaged))]), "x").mode == "RGB"
    except ImageError as error:
        assert str(error).startswith("image 'x' ")


def test_a_file_is_read_by_path_by_uri_and_from_memory(tmp_path: Path) -> None:
    data = encoded(plain())
    path = tmp_path / "one picture.png"
    path.write_bytes(data)
    with fsspec.open("memory://vmem-test/a.png", "wb") as file:
        file.write(data)
    assert read_image(str(path)) == data
    assert read_image(path.as_uri()) == data  # its blank is written %20
    assert read_image(path.name, tmp_path) == data
    assert read_image(data_uri(data)) == data
    assert read_image("memory://vmem-test/a.png") == data


@pytest.mark.parametrize(
    "uri",
    [
        "http://169.254.169.254/latest/meta-data",
        "HTTPS://example.org/a.png",
        "ftp://example.org/a.png",
        "sftp://example.org/a.png",
        "simplecache::http://example.org/a.png",
        "memory://a::http://example.org/a.png",
        "github://owner:name@main/a.png",
    ],
)
def test_protocols_that_reach_out_are_refused(uri: str) -> None:
    with pytest.raises(ImageError, match=r"is not read over .*; allowed: data, file, gs, memory"):
        read_image(uri)


def test_allowed_protocols_can_be_narrowed(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(encoded(plain()))
    with pytest.raises(ImageError, match="is not read over 'file'; allowed: data"):
        read_image(str(path), allowed={"data"})


def test_no_path_leaves_its_folder(tmp_path: Path) -> None:
    root, outside = tmp_path / "data", tmp_path / "secret.png"
    root.mkdir()
    outside.write_bytes(encoded(plain()))
    (root / "link.png").symlink_to(outside)
    (root / "folder").symlink_to(tmp_path)
    ways_out = ["../secret.png", str(outside), outside.as_uri(), "link.png", "folder/secret.png"]
    for uri in [*ways_out, "../no-such.png"]:
        with pytest.raises(ImageError, match="lies outside its folder"):
            read_image(uri, root)
    (root / "inside.png").write_bytes(encoded(plain()))
    (root / "near.png").symlink_to(root / "inside.png")
    assert read_image("near.png", root) == encoded(plain())


def test_a_folder_that_only_starts_alike_is_outside(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data-private").mkdir()
    (tmp_path / "data-private" / "a.png").write_bytes(encoded(plain()))
    with pytest.raises(ImageError, match="lies outside"):
        read_image("../data-private/a.png", tmp_path / "data")


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for uri in ["pipe", ".", "missing.png", "loop", "a\0b", "x" * 5000, "file://host/a.png"]:
        with pytest.raises(ImageError, match=r"does not exist or is no ordinary|no usable path"):
            read_image(uri, tmp_path)


def test_sizes_are_limited_while_reading(tmp_path: Path) -> None:
    (tmp_path / "empty.png").touch()
    with (tmp_path / "huge.png").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(ImageError, match=r"'empty.png' is empty \(0 bytes\)"):
        read_image("empty.png", tmp_path)
    with pytest.raises(ImageError, match=r"'huge.png' is over 20 MiB"):
        read_image("huge.png", tmp_path)
    with pytest.raises(ImageError, match="is over 20 MiB") as caught:
        read_image(data_uri(bytes(MAX_BYTES + 1)))
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("uri", ["data:image/png;base64", "data:image/png;base64,A", "data:,"])
def test_broken_data_uris_get_one_sentence(uri: str) -> None:
    with pytest.raises(ImageError, match=r"cannot be read|is empty"):
        read_image(uri)


def test_locate_and_find_file_agree(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.touch()
    assert find_file("a.png", tmp_path) == path
    assert locate("a.png", tmp_path) == str(path)
    assert locate("s3://bucket/a.png", tmp_path) == "s3://bucket/a.png"
    assert find_file("b.png", tmp_path) is None
    with pytest.raises(ImageError, match=r"audio 'b.png' does not exist"):
        locate("b.png", tmp_path, what="audio")


def test_the_digest_is_sha256() -> None:
    assert image_digest(b"abc") == hashlib.sha256(b"abc").hexdigest()
