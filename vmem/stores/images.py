"""Pictures kept by what they are (section 3.2's image units): a folder, a volume or a bucket.

An object is named by the SHA-256 of its bytes, so the same picture is kept once, and a picture
whose bytes have changed is told from one whose bytes have not.
"""

import io
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import fsspec
from PIL import Image

from vmem.audio import audio_suffix
from vmem.errors import AudioError, ConfigError, ImageError, StoreError
from vmem.images import FORMATS, decode_image, image_digest

_DIGEST = re.compile(r"[0-9a-f]{64}")
_OBJECT = re.compile(r"(?:^|/)([0-9a-f]{2})/([0-9a-f]{62})\.[a-z0-9]+$")


class ImageStore:
    """A folder of pictures and voice messages, named by their digests.

    Each is at `<first 2 digits>/<other 62>.<format>`.

    Args:
        url: A local folder or any fsspec URL, such as `s3://bucket/folder`.

    Raises:
        ConfigError: The URL's protocol is unknown, or its driver is not installed.
    """

    def __init__(self, url: str) -> None:
        try:
            # Listings that are kept would hide what other processes put there.
            self._files, root = fsspec.url_to_fs(url, use_listings_cache=False)
        except (ValueError, ImportError) as error:
            raise ConfigError(f"store.images_url {url} cannot be used: {error}") from error
        self._root = str(root).rstrip("/")

    def put(self, data: bytes, name: str | None = None) -> tuple[str, str]:
        """Keep a picture, whole or not at all; one that is there already is left alone.

        Args:
            data: An encoded picture.
            name: What errors call it; None is its digest.

        Returns:
            Its digest, and the URI it can be read from.

        Raises:
            ImageError: It does not decode.
            StoreError: The store cannot be written, or is full.
        """
        digest = image_digest(data)
        decode_image(data, name or digest)
        return digest, self._keep(data, digest, _extension(data), f"image {name or digest}")

    def put_audio(self, data: bytes, name: str) -> str:
        """Keep a voice message as `put` keeps a picture; returns its URI.

        Raises:
            AudioError: It does not begin like audio.
            StoreError: The store cannot be written, or is full.
        """
        suffix = audio_suffix(data)
        if suffix is None:
            raise AudioError(f"voice message {name} is no audio file")
        return self._keep(data, image_digest(data), suffix, f"voice message {name}")

    def _keep(self, data: bytes, digest: str, suffix: str, what: str) -> str:
        folder = f"{self._root}/{digest[:2]}"
        path = f"{folder}/{digest[2:]}.{suffix}"
        with self._told(f"keep {what}"):
            if self._size(path) != len(data):
                self._files.makedirs(folder, exist_ok=True)
                self._write(path, data)
        return self._uri(path)

    def get(self, name: str) -> bytes:
        """A picture's bytes, by its digest or by its URI.

        Raises:
            ImageError: It is not there, or its bytes are not those that were put there.
            StoreError: The store cannot be read.
        """
        digest = _digest_of(name)
        path = self._find(digest)
        if path is None:
            raise ImageError(f"image {digest} is not in {self._root}; put it there again")
        with self._told(f"read image {digest}"):
            data: bytes = self._files.cat_file(path)
        if image_digest(data) != digest:
            raise ImageError(f"image {path} is damaged; delete it and put it there again")
        return data

    def delete(self, name: str) -> bool:
        """Remove a picture by its digest or URI; returns whether it was there.

        What a write of it that was cut off left is removed as well.

        Raises:
            ImageError: The name is neither.
            StoreError: The store cannot be written.
        """
        digest = _digest_of(name)
        paths = self._listed(digest)
        with self._told(f"delete image {digest}"):
            for path in paths:
                self._files.rm_file(path)
        return any(_OBJECT.search(path) for path in paths)

    def holds(self, name: str) -> bool:
        """Whether a picture or voice message is there, by its digest or URI.

        Raises:
            ImageError: The name is neither.
            StoreError: The store cannot be read.
        """
        return self._find(_digest_of(name)) is not None

    def count(self) -> int:
        """Number of pictures."""
        with self._told("count images"):
            return sum(_OBJECT.search(path) is not None for path in self._files.find(self._root))

    def _write(self, path: str, data: bytes) -> None:
        partial = f"{path.rpartition('.')[0]}-{uuid.uuid4().hex}.partial"
        try:
            self._files.pipe_file(partial, data)
            self._files.mv(partial, path)
        except OSError:
            with suppress(OSError):
                self._files.rm_file(partial)
            raise

    def _size(self, path: str) -> int | None:
        try:
            return int(self._files.size(path))
        except FileNotFoundError:
            return None

    def _find(self, digest: str) -> str | None:
        start = f"{digest[:2]}/{digest[2:]}."
        return next((path for path in self._listed(digest) if start in path), None)

    def _listed(self, digest: str) -> list[str]:
        """What is there of a picture: its object, and writes of it that do not end any more."""
        with self._told(f"look for image {digest}"):
            try:
                paths = self._files.ls(f"{self._root}/{digest[:2]}", detail=False)
            except FileNotFoundError:
                return []
        return [path for path in paths if f"{digest[:2]}/{digest[2:]}" in path]

    def _uri(self, path: str) -> str:
        # A file: URI would need the odd characters of a folder's name encoded; a path does not.
        return path if "file" in self._files.protocol else str(self._files.unstrip_protocol(path))

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error) or type(error).__name__
            raise StoreError(f"{self._root} could not {what}: {reason}") from error


def stored_digest(uri: str) -> str | None:
    """The digest in a stored object's URI, wherever the store has moved since; else None."""
    found = _OBJECT.search(uri)
    return found[1] + found[2] if found else None


def _extension(data: bytes) -> str:
    with Image.open(io.BytesIO(data), formats=FORMATS) as opened:
        return str(opened.format).lower().replace("jpeg", "jpg")


def _digest_of(name: str) -> str:
    """The digest in a name; nothing else of a URI is used, so none leads out of the store."""
    digest = stored_digest(name) or name
    if not _DIGEST.fullmatch(digest):
        raise ImageError(f"{name[:200]!r} is neither the digest nor the URI of a stored image")
    return digest
