"""DINOv2's code path on random weights of a tiny network.

Random weights carry no meaning: these tests show shapes, lengths, order and determinism, and
nothing about what is found.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import BitImageProcessor, Dinov2Config, Dinov2Model

from vmem.config import EncoderSettings
from vmem.encoders.dinov2 import DINOv2
from vmem.errors import EncoderError

WIDTH = 32


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny-dinov2"
    torch.manual_seed(0)
    network = Dinov2Model(
        Dinov2Config(
            hidden_size=WIDTH,
            num_hidden_layers=2,
            num_attention_heads=2,
            image_size=28,
            patch_size=14,
        )
    )
    network.save_pretrained(folder)
    BitImageProcessor(
        size={"shortest_edge": 32}, crop_size={"height": 28, "width": 28}
    ).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def encoder(folder: Path) -> DINOv2:
    return DINOv2(EncoderSettings(kind="dinov2", model=str(folder), batch_size=2))


def _pictures(count: int) -> list[Image.Image]:
    rng = np.random.default_rng(0)
    return [
        Image.fromarray(rng.integers(0, 256, (20 + 9 * n, 50, 3), dtype=np.uint8))
        for n in range(count)
    ]


def test_shape_length_and_type(encoder: DINOv2) -> None:
    vectors = encoder.encode([*_pictures(3), Image.new("L", (40, 9))])
    assert (encoder.name, encoder.width) == ("tiny-dinov2", WIDTH)
    assert vectors.shape == (4, WIDTH)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_no_picture_gives_no_rows(encoder: DINOv2) -> None:
    assert encoder.encode([]).shape == (0, WIDTH)


def test_rows_stay_in_order_whatever_the_batches(encoder: DINOv2) -> None:
    pictures = _pictures(5)
    one_by_one = np.concatenate([encoder.encode([picture]) for picture in pictures])
    np.testing.assert_allclose(encoder.encode(pictures), one_by_one, rtol=0, atol=1e-6)
    assert np.unique(one_by_one.round(4), axis=0).shape[0] == 5


def test_the_class_token_is_the_vector(encoder: DINOv2, folder: Path) -> None:
    picture = _pictures(1)[0]
    processor = BitImageProcessor.from_pretrained(folder)
    network = Dinov2Model.from_pretrained(folder).eval()
    with torch.no_grad():
        pooled = network(**processor(picture, return_tensors="pt")).pooler_output[0].numpy()
    expected = pooled / np.linalg.norm(pooled)
    np.testing.assert_allclose(encoder.encode([picture])[0], expected, rtol=0, atol=1e-6)


def test_loading_prints_nothing(folder: Path, capfd: pytest.CaptureFixture) -> None:
    DINOv2(EncoderSettings(kind="dinov2", model=str(folder)))
    assert capfd.readouterr() == ("", "")


def test_weights_of_a_hub_out_of_reach_are_one_sentence(no_hub: None) -> None:
    with pytest.raises(EncoderError, match=r"'facebook/dinov2-base'.*HF_HOME"):
        DINOv2(EncoderSettings(kind="dinov2"))
