"""The write path: rounds become units, and units vectors (section 3.4). No model is called."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from vmem.config import UnitSettings
from vmem.errors import VectorError
from vmem.images import decode_image
from vmem.ports import ImageEncoder, TextEncoder, Vectors
from vmem.rounds import to_units
from vmem.types import Modality, Round, Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedUnits:
    """Units with their vectors.

    Attributes:
        text: Text, audio and caption units (U), and their vectors (U, D) in the same order.
        image: Image units that have pixels (I), and their vectors (I, E) in the same order.
        truncated: Text units longer than the encoder reads.
        without_pixels: Image units of which only the caption is there.
    """

    text: tuple[Unit, ...]
    text_vectors_UD: Vectors
    image: tuple[Unit, ...]
    image_vectors_IE: Vectors
    truncated: int
    without_pixels: int


def encode_rounds(
    rounds: Sequence[Round],
    settings: UnitSettings,
    text_encoder: TextEncoder,
    image_encoder: ImageEncoder | None,
    read_image: Callable[[str], bytes],
) -> EncodedUnits:
    """Encode every unit of some rounds.

    Args:
        rounds: The rounds.
        settings: How rounds become units.
        text_encoder: φ.
        image_encoder: ψ; None encodes no picture.
        read_image: An image's bytes by its URI, checked.

    Raises:
        ImageError: A picture cannot be used.
        VectorError: An encoder made a vector that is not finite or is zero.
    """
    units = [unit for round_ in rounds for unit in to_units(round_, settings)]
    text = tuple(unit for unit in units if unit.modality is Modality.TEXT)
    images = [unit for unit in units if unit.modality is Modality.IMAGE]
    pixels = tuple(unit for unit in images if image_encoder and _uri(unit))
    texts = [unit.text for unit in text]
    return EncodedUnits(
        text=text,
        text_vectors_UD=checked(text_encoder.encode(texts), text),
        image=pixels,
        image_vectors_IE=_encode_images(pixels, image_encoder, read_image),
        truncated=count_truncated(text_encoder, texts),
        without_pixels=sum(not _uri(unit) for unit in images),
    )


def count_truncated(encoder: TextEncoder, texts: Sequence[str]) -> int:
    """How many texts are longer than the encoder reads."""
    # A token has at least one character: shorter texts need no count.
    long = [text for text in texts if len(text) > encoder.max_tokens]
    return sum(count > encoder.max_tokens for count in encoder.count_tokens(long)) if long else 0


def checked(vectors_UD: Vectors, units: Sequence[Unit]) -> Vectors:
    """The vectors, each finite and of length above 0.

    Raises:
        VectorError: One is not; the message names its unit.
    """
    if not len(vectors_UD):
        return vectors_UD
    good_U = np.isfinite(vectors_UD).all(axis=1) & (np.abs(vectors_UD).max(axis=1) > 0)
    if not good_U.all():
        unit = units[int(np.argmin(good_U))]
        raise VectorError(
            f"the encoder made an unusable vector (zero or not finite) of unit {unit.id}:"
            " check the encoder's weights and device"
        )
    return vectors_UD


def _encode_images(
    units: Sequence[Unit], encoder: ImageEncoder | None, read_image: Callable[[str], bytes]
) -> Vectors:
    if encoder is None or not units:
        width = encoder.width if encoder else 0
        return np.zeros((0, width), dtype=np.float32)
    pictures = [decode_image(read_image(_uri(unit)), unit.id) for unit in units]
    return checked(encoder.encode(pictures), units)


def _uri(unit: Unit) -> str:
    return (unit.image.uri or "") if unit.image else ""
