"""Units to vectors on pools of encoder actors, by Ray Data."""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import ray.data
from ray.data import ActorPoolStrategy

from vmem.build import make_image_encoder, make_text_encoder
from vmem.config import BuildSettings, EncoderSettings
from vmem.errors import EncoderError, ImageError
from vmem.images import decode_image, read_image
from vmem.memory import count_truncated
from vmem.ports import Vectors
from vmem.types import Modality

PICTURES = 4
"""Forward passes a batch of pictures makes: decoded pictures are large."""

KEPT = ["key", "vector", "error", "truncated"]
"""What comes back of each row; the rest of it is in the manifest."""


class EncodeTexts:
    """Actor that adds φ's vectors to rows of the text index."""

    def __init__(self, settings: EncoderSettings, actors: int) -> None:
        self._encoder = make_text_encoder(_with_threads(settings, actors))

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Rows (N) to `KEPT` columns; the count of truncated texts stands in the first row."""
        texts = batch["text"].to_pylist()
        truncated = [0] * len(texts)
        truncated[0] = count_truncated(self._encoder, texts)
        return _encoded(batch, self._encoder.encode(texts), [""] * len(texts), truncated)


class EncodeImages:
    """Actor that adds ψ's vectors to rows of the image index.

    Pictures are decoded here, so that one that cannot be used is a row with an error.
    """

    def __init__(self, settings: EncoderSettings, actors: int) -> None:
        encoder = make_image_encoder(_with_threads(settings, actors))
        if encoder is None:
            raise EncoderError("encoders.image.kind is none: no picture can be encoded")
        self._encoder = encoder

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Rows (N) to `KEPT` columns; a row with an error has a zero vector."""
        names, uris = batch["id"].to_pylist(), batch["image_uri"].to_pylist()
        errors, pictures = [""] * len(uris), {}
        for index, (name, uri) in enumerate(zip(names, uris, strict=True)):
            try:
                pictures[index] = decode_image(read_image(uri), name)
            except ImageError as error:
                errors[index] = str(error)
        vectors_ND = np.zeros((len(uris), self._encoder.width), dtype=np.float32)
        if pictures:
            vectors_ND[list(pictures)] = self._encoder.encode(list(pictures.values()))
        return _encoded(batch, vectors_ND, errors, [0] * len(uris))


def encode_rows(
    rows: pa.Table, modality: Modality, settings: EncoderSettings, build: BuildSettings
) -> Iterator[pa.Table]:
    """Encode manifest rows on a pool of actors.

    Args:
        rows: Rows of one modality, of the manifest's schema.
        modality: Which encoder.
        settings: The encoder.
        build: Pool size, CPUs and GPUs an actor, rows a batch.

    Yields:
        Tables of `KEPT` columns, in no fixed order, until every row came back once.
    """
    actor: Any = EncodeTexts if modality is Modality.TEXT else EncodeImages
    size = build.text_actors if modality is Modality.TEXT else build.image_actors
    most = build.batch_rows if modality is Modality.TEXT else PICTURES * settings.batch_size
    batch_rows = max(1, min(most, -(-rows.num_rows // size)))
    blocks = [rows.slice(start, batch_rows) for start in range(0, rows.num_rows, batch_rows)]
    encoded = ray.data.from_arrow(blocks).map_batches(
        actor,
        fn_constructor_args=(settings, size),
        batch_size=None,  # a block is a batch
        batch_format="pyarrow",
        compute=ActorPoolStrategy(size=size),
        num_cpus=build.cpus,
        num_gpus=build.gpus or None,
    )
    yield from encoded.iter_batches(batch_size=None, batch_format="pyarrow")


def _with_threads(settings: EncoderSettings, actors: int) -> EncoderSettings:
    """The cores shared out where no number is set: Ray gives an actor of one CPU one thread."""
    threads = settings.threads or max(1, (os.cpu_count() or 1) // actors)
    return settings.model_copy(update={"threads": threads})


def vectors_of(batch: pa.Table) -> Vectors:
    """The vectors (N, D) of an encoded batch."""
    column = batch["vector"].combine_chunks()
    flat = column.flatten().to_numpy(zero_copy_only=False)
    return np.asarray(flat, dtype=np.float32).reshape(len(column), -1)


def _encoded(
    batch: pa.Table, vectors_ND: Vectors, errors: list[str], truncated: list[int]
) -> pa.Table:
    width = vectors_ND.shape[1]
    flat: Any = pa.array(vectors_ND.reshape(-1), type=pa.float32())
    columns = [
        batch["key"].combine_chunks(),
        pa.FixedSizeListArray.from_arrays(flat, width),
        pa.array(errors, type=pa.string()),
        pa.array(truncated, type=pa.int64()),
    ]
    return pa.table(columns, names=KEPT)
