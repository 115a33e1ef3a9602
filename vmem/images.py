"""Reading and decoding images safely (section 3.2: a unit may be one image).

Images come from users, so nothing about one is trusted: where it lies, how long it is, how many
pixels its header promises, what format it claims to have.
"""

import hashlib
import io
import re
import struct
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import BinaryIO, cast
from urllib.parse import unquote, urlsplit

import fsspec
from PIL import ExifTags, Image, UnidentifiedImageError

from vmem.errors import ImageError

MAX_BYTES = 20 * 2**20
MAX_PIXELS = 50_000_000
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")
PROTOCOLS = frozenset({"file", "data", "s3", "gs", "memory"})
"""Where an image may be read from. A URL of the web, or of a host, could reach inside addresses."""

_PROTOCOL = re.compile(r"([a-z][a-z0-9+.-]*)(?:://|::)|(data):", re.IGNORECASE)
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
# What Pillow's parsers raise on damaged data, besides their own UnidentifiedImageError (OSError).
_DAMAGE = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    LookupError,
    EOFError,
    OverflowError,
    MemoryError,
    struct.error,
    zlib.error,
)


def read_image(
    uri: str, root: Path | None = None, *, allowed: Collection[str] = PROTOCOLS
) -> bytes:
    """The bytes of an image, not yet decoded.

    Args:
        uri: A local path, a file: or data: URI, or an fsspec URL.
        root: The folder that relative paths start from and that no path may leave.
        allowed: The protocols that may be read; `file` covers local paths.

    Raises:
        ImageError: The protocol is not allowed, the path leaves `root`, or the image is missing,
            empty, over 20 MiB or cannot be read.
    """
    where = locate(uri, root, allowed=allowed)
    name = shown(uri)
    try:
        # One byte over the limit tells a file that is too long without reading all of it.
        with _open(where) as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise ImageError(f"image {name} does not exist") from error
    except (OSError, ValueError, ImportError) as error:
        raise ImageError(f"image {name} cannot be read: {_reason(error)}") from error
    _check_bytes(len(data), name)
    return data


def decode_image(data: bytes, name: str) -> Image.Image:
    """The picture as RGB, turned as its EXIF orientation says; transparent parts become white.

    Args:
        data: An encoded JPEG, PNG, WEBP, GIF (its first frame) or BMP.
        name: What errors call it.

    Raises:
        ImageError: It is empty, over 20 MiB or 50 million pixels, truncated, damaged or no image.
    """
    name = shown(name)
    _check_bytes(len(data), name)
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as opened:
            _check_pixels(opened.size, name)
            opened.load()
            picture = _to_rgb(opened)
            turn = _turn_upright(opened)
    except UnidentifiedImageError as error:
        raise ImageError(f"image {name} is not a {', '.join(FORMATS)} file") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ImageError(_too_many_pixels(name)) from error
    except _DAMAGE as error:
        raise ImageError(f"image {name} is damaged or truncated: {error}") from error
    return picture if turn is None else picture.transpose(turn)


def image_digest(data: bytes) -> str:
    """SHA-256 of the encoded bytes, in hex."""
    return hashlib.sha256(data).hexdigest()


def locate(
    uri: str,
    root: Path | None = None,
    *,
    allowed: Collection[str] = PROTOCOLS,
    what: str = "image",
) -> str:
    """Where a file is: an absolute local path with its links resolved, or an allowed URL as given.

    Args:
        uri: A local path, a file: or data: URI, or an fsspec URL.
        root: The folder that relative paths start from and that no path may leave.
        allowed: The protocols that may be read; `file` covers local paths.
        what: What errors call it.

    Raises:
        ImageError: The protocol is not allowed, the path leaves `root` or is no existing file.
    """
    protocol = protocol_of(uri)
    # "::" chains fsspec protocols, which would let an allowed one carry one that is not.
    if protocol not in allowed or ("::" in uri and protocol != "file"):
        known = ", ".join(sorted(allowed))
        raise ImageError(f"{what} {shown(uri)} is not read over {protocol!r}; allowed: {known}")
    if protocol != "file":
        return uri
    path = find_file(uri, root, what=what)
    if path is None:
        raise ImageError(f"{what} {shown(uri)} does not exist or is no ordinary file")
    return str(path)


def find_file(uri: str, root: Path | None, *, what: str = "image") -> Path | None:
    """The absolute path of a local file with its links resolved, or None where there is none.

    Args:
        uri: A local path or file: URI.
        root: The folder that relative paths start from and that no path may leave.
        what: What errors call it.

    Raises:
        ImageError: It leaves `root`, or cannot be a path.
    """
    try:
        folder = (root or Path()).resolve()
        path = (folder / _local_path(uri)).resolve()
        # Checked before looking, so that nobody learns what lies outside.
        if root is not None and not path.is_relative_to(folder):
            raise ImageError(f"{what} {shown(uri)} lies outside its folder {root}")
        return path if path.is_file() else None
    except (OSError, ValueError, RuntimeError) as error:
        raise ImageError(f"{what} {shown(uri)} is no usable path: {_reason(error)}") from error


def protocol_of(uri: str) -> str:
    """The protocol of a URI in lower case; `file` for a plain path."""
    found = _PROTOCOL.match(uri)
    return (found[1] or found[2]).lower() if found else "file"


def shown(uri: str) -> str:
    """A name as errors show it: quoted, and short even where it holds the picture itself."""
    return repr(uri if len(uri) <= 200 else f"{uri[:60]}...")


def _open(where: str) -> BinaryIO:
    if protocol_of(where) == "file":
        return Path(where).open("rb")
    if protocol_of(where) == "data" and "," not in where:
        raise ValueError("a data URI needs a comma before its content")
    return cast(BinaryIO, fsspec.open(where, "rb").open())


def _reason(error: Exception) -> str:
    # The text of an operating system's error also holds the path as the server sees it.
    return (error.strerror if isinstance(error, OSError) else str(error)) or type(error).__name__


def _local_path(uri: str) -> str:
    if not uri.lower().startswith("file://"):
        return uri
    parts = urlsplit(uri)
    if parts.netloc not in {"", "localhost"}:
        raise ValueError("a file URI must not name a host")
    return unquote(parts.path)


def _to_rgb(picture: Image.Image) -> Image.Image:
    if picture.mode.startswith("I;16"):
        # Pillow would clip 16-bit greys at 255 and leave a white picture.
        return picture.point(lambda grey: grey / 256).convert("L").convert("RGB")
    if not picture.has_transparency_data:
        return picture.convert("RGB")
    layer = picture.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")


def _turn_upright(picture: Image.Image) -> Image.Transpose | None:
    # ImageOps.exif_transpose would also rewrite the EXIF block, and fails on many a broken one.
    try:
        return _TURNS.get(picture.getexif().get(ExifTags.Base.Orientation, 1))
    except _DAMAGE:
        return None  # the pixels are good; only their note is not


def _check_bytes(size: int, name: str) -> None:
    if size == 0:
        raise ImageError(f"image {name} is empty (0 bytes)")
    if size > MAX_BYTES:
        raise ImageError(f"image {name} is over {MAX_BYTES // 2**20} MiB; make it smaller")


def _check_pixels(size: tuple[int, int], name: str) -> None:
    if size[0] * size[1] > MAX_PIXELS:
        raise ImageError(_too_many_pixels(name))


def _too_many_pixels(name: str) -> str:
    return f"image {name} has over {MAX_PIXELS // 10**6} million pixels; make it smaller"
