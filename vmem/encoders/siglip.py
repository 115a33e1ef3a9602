"""The paper's image encoder ψ: SigLIP2 (Table 5), through open_clip, with its text tower."""

from collections.abc import Sequence
from pathlib import Path

import open_clip
import torch
from open_clip.transform import PreprocessCfg, image_transform_v2
from PIL import Image

from vmem.config import EncoderSettings
from vmem.encoders.vectors import encode_batches
from vmem.encoders.weights import loading, torch_device
from vmem.ports import Vectors

MODEL = "ViT-B-16-SigLIP2-384"
PRETRAINED = "webli"


class SigLIP:
    """Pictures, and texts among them, to unit vectors; 768-d unless `model` is set.

    Args:
        settings: `model` is one of open_clip's names, `hf-hub:` and a hub name, or a folder with
            an open_clip_config.json; `pretrained` is the tag of the weights of one of open_clip's
            names. An empty tag means random weights: they carry no meaning, and show shapes and
            speed only.

    Raises:
        EncoderError: The weights, the tokenizer or the device are not there.
    """

    def __init__(self, settings: EncoderSettings) -> None:
        model = settings.model or MODEL
        tag = PRETRAINED if settings.pretrained is None else settings.pretrained
        is_folder = Path(model).is_dir()
        source = f"local-dir:{model}" if is_folder else model
        has_tags = not is_folder and not model.startswith("hf-hub:")
        self.name = _name(model, tag, has_tags)
        self._batch_size = settings.batch_size
        self._device = torch_device(settings)
        with loading(f"{model}, {tag}" if has_tags else model):
            self._model = open_clip.create_model(
                source,
                tag if has_tags else None,
                load_weights=bool(tag),
                require_pretrained=bool(tag),
                device=self._device,
            ).eval()
            self._tokenize = open_clip.get_tokenizer(source)
        shape = PreprocessCfg(**self._model.visual.preprocess_cfg)
        self._preprocess = image_transform_v2(shape, is_train=False)
        self.width = int(self._text_features([""]).shape[1])

    def encode(self, images: Sequence[Image.Image]) -> Vectors:
        """Vectors (N, D), float32, of length 1."""
        return encode_batches(images, self._batch_size, self.width, self._image_features)

    def encode_text(self, texts: Sequence[str]) -> Vectors:
        """Vectors (N, D), float32, of length 1, comparable with those of pictures."""
        return encode_batches(texts, self._batch_size, self.width, self._text_features)

    def _image_features(self, batch: Sequence[Image.Image]) -> torch.Tensor:
        planes_BCHW = torch.stack([self._preprocess(image) for image in batch])
        features: torch.Tensor = self._model.encode_image(planes_BCHW.to(self._device))
        return features

    def _text_features(self, batch: Sequence[str]) -> torch.Tensor:
        tokens_BL = self._tokenize(list(batch)).to(self._device)
        features: torch.Tensor = self._model.encode_text(tokens_BL)
        return features


def _name(model: str, tag: str, has_tags: bool) -> str:
    label = model if has_tags or not Path(model).is_dir() else Path(model).resolve().name
    weights = "random" if not tag else tag if has_tags else None
    return f"{label}/{weights}" if weights else label
