"""SigLIP's code path on random weights of a tiny network.

Random weights carry no meaning: these tests show shapes, lengths, order and determinism, and
nothing about what is found.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from vmem.config import EncoderSettings
from vmem.encoders.siglip import SigLIP
from vmem.errors import EncoderError
from vmem.ports import TextTower

WIDTH = 24
TOWER = {"width": 32, "heads": 2, "layers": 2}
TINY = {
    "model_cfg": {
        "embed_dim": WIDTH,
        "init_logit_bias": -10,
        "custom_text": True,
        "vision_cfg": {"image_size": 32, "patch_size": 16, "head_width": 16}
        | {"width": 32, "layers": 2},
        "text_cfg": {"context_length": 16, "vocab_size": 49408, "no_causal_mask": True}
        | {"proj_bias": True, "pool_type": "last"}
        | TOWER,
    },
    "preprocess_cfg": {
        "mean": [0.5, 0.5, 0.5],
        "std": [0.5, 0.5, 0.5],
        "interpolation": "bicubic",
        "resize_mode": "squash",
    },
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny-siglip"
    folder.mkdir()
    (folder / "open_clip_config.json").write_text(json.dumps(TINY))
    return folder


@pytest.fixture(scope="module")
def encoder(folder: Path) -> SigLIP:
    torch.manual_seed(0)
    return SigLIP(EncoderSettings(kind="siglip", model=str(folder), pretrained="", batch_size=2))


def _pictures(count: int) -> list[Image.Image]:
    rng = np.random.default_rng(0)
    return [
        Image.fromarray(rng.integers(0, 256, (20 + 9 * n, 50, 3), dtype=np.uint8))
        for n in range(count)
    ]


def test_shape_length_and_type(encoder: SigLIP) -> None:
    texts = ["a dog", "", "a very long text " * 50]
    assert (encoder.name, encoder.width) == ("tiny-siglip/random", WIDTH)
    assert isinstance(encoder, TextTower)
    for vectors in (encoder.encode(_pictures(3)), encoder.encode_text(texts)):
        assert vectors.shape == (3, WIDTH)
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_no_item_gives_no_rows(encoder: SigLIP) -> None:
    assert encoder.encode([]).shape == encoder.encode_text([]).shape == (0, WIDTH)


def test_rows_stay_in_order_whatever_the_batches(encoder: SigLIP) -> None:
    pictures, texts = _pictures(5), ["one", "two dogs", "three"]
    by_picture = np.concatenate([encoder.encode([picture]) for picture in pictures])
    by_text = np.concatenate([encoder.encode_text([text]) for text in texts])
    np.testing.assert_allclose(encoder.encode(pictures), by_picture, rtol=0, atol=1e-6)
    np.testing.assert_allclose(encoder.encode_text(texts), by_text, rtol=0, atol=1e-6)
    assert np.unique(by_picture.round(4), axis=0).shape[0] == 5
    assert np.unique(by_text.round(4), axis=0).shape[0] == 3


def test_pictures_are_squashed_as_the_folder_says(encoder: SigLIP) -> None:
    # Cropped instead, the two halves that differ would be cut away.
    plain = Image.new("RGB", (96, 32), "white")
    edged = plain.copy()
    edged.paste("black", (0, 0, 16, 32))
    first, second = encoder.encode([plain, edged])
    assert np.abs(first - second).max() > 1e-3


def test_saved_weights_are_loaded(encoder: SigLIP, folder: Path) -> None:
    saved = folder / "open_clip_model.safetensors"
    save_file(encoder._model.state_dict(), saved)
    try:
        loaded = SigLIP(EncoderSettings(kind="siglip", model=str(folder)))
    finally:
        saved.unlink()
    assert loaded.name == "tiny-siglip"
    np.testing.assert_array_equal(loaded.encode(_pictures(1)), encoder.encode(_pictures(1)))


def test_a_folder_without_weights_is_one_sentence(folder: Path) -> None:
    with pytest.raises(EncoderError, match=r"tiny-siglip.*HF_HOME"):
        SigLIP(EncoderSettings(kind="siglip", model=str(folder)))


def test_weights_of_a_hub_out_of_reach_are_one_sentence(no_hub: None) -> None:
    with pytest.raises(EncoderError, match=r"'ViT-B-16-SigLIP2-384, webli'.*HF_HOME"):
        SigLIP(EncoderSettings(kind="siglip"))


def test_an_unknown_model_is_one_sentence(no_hub: None) -> None:
    with pytest.raises(EncoderError, match=r"'ViT-Z, webli' cannot be loaded"):
        SigLIP(EncoderSettings(kind="siglip", model="ViT-Z"))
