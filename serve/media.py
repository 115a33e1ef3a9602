"""Pictures and voice messages of requests: checked early, and passed on as `data:` URIs."""

import base64
import binascii
import io
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio
import anyio.to_thread
from PIL import Image as Pillow

from serve.bodies import Files
from serve.errors import LimitError, RequestError, UnknownFileError
from serve.fetching import fetch_image
from serve.request_schemas import AudioIn, ImageIn
from serve.settings import ImageUrlSettings
from vmem import audio, images
from vmem.errors import AudioError, ImageError

PICTURES = {
    "JPEG": "image/jpeg",
    "PNG": "image/png",
    "WEBP": "image/webp",
    "GIF": "image/gif",
    "BMP": "image/bmp",
}
VOICES = {
    "wav": "audio/wav",
    "flac": "audio/flac",
    "ogg": "audio/ogg",
    "mp3": "audio/mpeg",
    "webm": "audio/webm",
    "m4a": "audio/mp4",
}
DECODING = 2
"""Pictures decoded at once: each may take 150 MB for a moment."""

_DECODING = anyio.CapacityLimiter(DECODING)
_DATA_URL = re.compile(r"data:image/[a-z0-9.+-]+;base64,", re.IGNORECASE)


@dataclass(slots=True, kw_only=True)
class Media:
    """Reads the files of one request.

    Attributes:
        urls: Whether pictures are fetched from the web.
        files: The request's file parts.
        by_digest: A picture of the memory by its digest; raises UnknownFileError.
    """

    urls: ImageUrlSettings
    files: Files
    by_digest: Callable[[str], Awaitable[bytes]]

    async def picture(self, given: ImageIn, where: str) -> str | None:
        """A picture as a `data:` URI, or None where only its caption is given.

        Args:
            given: The picture.
            where: The field, for errors.

        Raises:
            ImageError: It is damaged, too large or no picture.
            RequestError, LimitError: It cannot be read from the request.
        """
        data = await self._bytes(given, where)
        return None if data is None else await picture_uri(data, where)

    async def voice(self, given: AudioIn, where: str) -> str:
        """A voice message as a `data:` URI.

        Raises:
            AudioError: It does not begin like audio.
            RequestError, LimitError: It cannot be read from the request.
        """
        if given.file is not None:
            data = await self.files.read(given.file, where, audio.MAX_BYTES)
        else:
            data = decode_base64(given.base64 or "", where, audio.MAX_BYTES)
        return voice_uri(data, where)

    async def _bytes(self, given: ImageIn, where: str) -> bytes | None:
        if given.base64 is not None:
            return decode_base64(given.base64, where, images.MAX_BYTES)
        if given.file is not None:
            return await self.files.read(given.file, where, images.MAX_BYTES)
        if given.url is not None:
            return await fetch_image(given.url, self.urls)
        if given.digest is not None:
            try:
                return await self.by_digest(given.digest)
            except UnknownFileError as error:
                raise ImageError(f"{where}: this memory has no picture of this digest.") from error
        return None


async def picture_uri(data: bytes, where: str) -> str:
    """A picture's bytes as a `data:` URI, after it was decoded.

    Raises:
        ImageError: It is damaged, too large or no picture.
    """
    await anyio.to_thread.run_sync(images.decode_image, data, where, limiter=_DECODING)
    return _data_uri(picture_type(data), data)


def voice_uri(data: bytes, where: str) -> str:
    """A voice message's bytes as a `data:` URI.

    Raises:
        AudioError: It does not begin like audio.
    """
    suffix = audio.audio_suffix(data)
    if suffix is None:
        raise AudioError(f"{where} is no WAV, FLAC, MP3, AAC, OGG, WebM, MP4 or M4A file.")
    return _data_uri(VOICES[suffix], data)


def picture_type(data: bytes) -> str:
    """The content type that a picture's bytes have, whatever they were called.

    Raises:
        ImageError: They are no picture.
    """
    try:
        with Pillow.open(io.BytesIO(data), formats=images.FORMATS) as opened:
            return PICTURES[str(opened.format)]
    except (OSError, Pillow.DecompressionBombError) as error:
        raise ImageError("the file is no picture") from error


def data_url(url: str, where: str) -> str:
    """The base64 text of a `data:` URL of a picture.

    Raises:
        RequestError: It is none.
    """
    found = _DATA_URL.match(url[:100])
    if found is None:
        raise RequestError(f"{where} must be data:image/TYPE;base64,... or a web address.")
    return url[found.end() :]


def decode_base64(text: str, where: str, max_bytes: int) -> bytes:
    """Bytes of base64, measured before they are decoded.

    Raises:
        LimitError: They are more than allowed.
        RequestError: It is not base64.
    """
    if len(text) * 3 // 4 > max_bytes + 3:
        raise LimitError(f"{where} is over {max_bytes // 2**20} MiB.")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RequestError(f"{where} is not base64.") from error


def _data_uri(content_type: str, data: bytes) -> str:
    return f"data:{content_type};base64,{base64.b64encode(data).decode('ascii')}"
