"""The image encoder of Table 14: DINOv2, through transformers; it knows no texts."""

from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image
from transformers import AutoImageProcessor, AutoModel

from vmem.config import EncoderSettings
from vmem.encoders.vectors import encode_batches
from vmem.encoders.weights import loading, torch_device
from vmem.ports import Vectors

MODEL = "facebook/dinov2-base"


class DINOv2:
    """Pictures to unit vectors by the class token of the last layer; 768-d unless `model` is set.

    Args:
        settings: `model` is a hub name, or a folder with a model and its image processor.

    Raises:
        EncoderError: The weights or the device are not there.
    """

    def __init__(self, settings: EncoderSettings) -> None:
        model = settings.model or MODEL
        self.name = Path(model).resolve().name if Path(model).is_dir() else model
        self._batch_size = settings.batch_size
        self._device = torch_device(settings)
        with loading(model):
            self._processor = AutoImageProcessor.from_pretrained(model)  # type: ignore[no-untyped-call]
            self._model = AutoModel.from_pretrained(model).to(self._device).eval()
        self.width = int(self._model.config.hidden_size)

    def encode(self, images: Sequence[Image.Image]) -> Vectors:
        """Vectors (N, D), float32, of length 1."""
        return encode_batches(images, self._batch_size, self.width, self._features)

    def _features(self, batch: Sequence[Image.Image]) -> torch.Tensor:
        planes_BCHW = self._processor(images=list(batch), return_tensors="pt")["pixel_values"]
        planes_BCHW = planes_BCHW.to(self._device, self._model.dtype)
        states_BLD: torch.Tensor = self._model(pixel_values=planes_BCHW).last_hidden_state
        return states_BLD[:, 0]
