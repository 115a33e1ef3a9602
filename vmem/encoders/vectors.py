"""From pictures or texts, batch by batch, to vectors of length 1 (section 3.2)."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch

from vmem.ports import Vectors

Item = TypeVar("Item")


def unit_length(features_ND: npt.ArrayLike) -> Vectors:
    """Rows scaled to length 1, (N, D) float32; a row of zeros stays one, and no store takes it."""
    vectors_ND = np.asarray(features_ND, dtype=np.float32)
    lengths_N1 = np.linalg.norm(vectors_ND, axis=1, keepdims=True)
    units_ND: Vectors = vectors_ND / np.maximum(lengths_N1, np.finfo(np.float32).tiny)
    return units_ND


def encode_batches(
    items: Sequence[Item],
    batch_size: int,
    width: int,
    features: Callable[[Sequence[Item]], torch.Tensor],
) -> Vectors:
    """Unit vectors (N, D) of pictures or texts; only one batch at a time is held as pixels.

    Args:
        items: N decoded pictures of any size, or texts.
        batch_size: Items a forward pass, B at most.
        width: D, the shape's second axis even where there is no item.
        features: A model's forward pass over one batch, to (B, D) on any device.
    """
    vectors_ND = np.empty((len(items), width), dtype=np.float32)
    with torch.inference_mode():
        for start in range(0, len(items), batch_size):
            batch = items[start : start + batch_size]
            vectors_ND[start : start + len(batch)] = features(batch).float().cpu().numpy()
    return unit_length(vectors_ND)
