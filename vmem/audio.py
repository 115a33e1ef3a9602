"""Reading voice messages safely (section 3.4: a voice message becomes a text unit)."""

from pathlib import Path
from typing import cast

import fsspec

from vmem.errors import AudioError, ImageError
from vmem.images import locate, shown

MAX_BYTES = 20 * 2**20


def read_audio(uri: str, root: Path | None = None) -> bytes:
    """The bytes of a voice message, not yet decoded.

    Args:
        uri: A path, a file: URI or an fsspec URL.
        root: The folder that relative paths start from and that no path may leave.

    Raises:
        AudioError: It is missing, outside `root`, too long or no WAV, FLAC, MP3, AAC, OGG, WebM,
            MP4 or M4A file.
    """
    try:
        where = locate(uri, root, what="voice message")
        with fsspec.open(where, "rb") as file:
            data = cast(bytes, file.read(MAX_BYTES + 1))
    except ImageError as error:
        raise AudioError(str(error)) from error
    except (OSError, ValueError, ImportError) as error:
        raise AudioError(f"voice message {shown(uri)} cannot be read: {error}") from error
    if len(data) > MAX_BYTES:
        raise AudioError(
            f"voice message {shown(uri)} is longer than {MAX_BYTES // 2**20} MiB:"
            " cut or compress it"
        )
    if audio_suffix(data) is None:
        raise AudioError(
            f"voice message {shown(uri)} is no WAV, FLAC, MP3, AAC, OGG, WebM, MP4 or M4A file"
        )
    return data


def audio_suffix(data: bytes) -> str | None:
    """The suffix that fits the first bytes; None where they are no audio.

    A decoder also takes playlists, and would follow the paths and addresses they name: what does
    not begin like audio is never given to one.
    """
    for start, suffix in _SIGNATURES:
        if data.startswith(start):
            return suffix
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        return "wav"
    if data[4:8] == b"ftyp":
        return "m4a"
    if data[:1] == b"\xff" and data[1:2] >= b"\xe0":
        return "mp3"
    return None


_SIGNATURES = ((b"fLaC", "flac"), (b"OggS", "ogg"), (b"ID3", "mp3"), (b"\x1a\x45\xdf\xa3", "webm"))
