import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vmem.config import EncoderSettings
from vmem.encoders.efficientnet import EfficientNetLite0
from vmem.errors import EncoderError

THINGS = ("backpack", "teapot", "dog6", "robot_toy", "vase", "cat2")
EACH = 3


@pytest.fixture(scope="module")
def encoder() -> EfficientNetLite0:
    return EfficientNetLite0(EncoderSettings(kind="efficientnet", batch_size=4))


def _noise(seed: int, size: tuple[int, int] = (90, 60)) -> Image.Image:
    width, height = size
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def test_shape_length_and_type(encoder: EfficientNetLite0) -> None:
    pictures = [_noise(0), _noise(1, (600, 20)), Image.new("L", (5, 500)), Image.new("RGB", (1, 1))]
    vectors = encoder.encode(pictures)
    assert (encoder.name, encoder.width) == ("efficientnet-lite0", 1280)
    assert vectors.shape == (4, 1280)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_no_picture_gives_no_rows(encoder: EfficientNetLite0) -> None:
    assert encoder.encode([]).shape == (0, 1280)


def test_one_picture_twice_is_bit_identical(encoder: EfficientNetLite0) -> None:
    assert encoder.encode([_noise(0)]).tobytes() == encoder.encode([_noise(0)]).tobytes()


def test_companions_move_a_vector_by_rounding_only(encoder: EfficientNetLite0) -> None:
    # In training mode, BatchNorm would let every picture of a batch move the others.
    pictures = [_noise(seed) for seed in range(7)]
    one_by_one = np.concatenate([encoder.encode([picture]) for picture in pictures])
    np.testing.assert_allclose(encoder.encode(pictures), one_by_one, rtol=0, atol=1e-5)


def test_colours_are_read_in_the_order_red_green_blue(encoder: EfficientNetLite0) -> None:
    picture = Image.merge("RGB", [_noise(seed).convert("L") for seed in range(3)])
    swapped = Image.merge("RGB", picture.split()[::-1])
    straight, reversed_ = encoder.encode([picture, swapped])
    assert np.abs(straight - reversed_).max() > 1e-3


def test_another_photo_of_the_same_thing_is_nearest(
    encoder: EfficientNetLite0, photos: Path
) -> None:
    rows = [json.loads(line) for line in (photos / "metadata.jsonl").read_text().splitlines()]
    chosen = [
        row for thing in THINGS for row in [r for r in rows if r.get("instance") == thing][:EACH]
    ]
    assert len(chosen) == len(THINGS) * EACH
    pictures = [Image.open(photos / row["file"]).convert("RGB") for row in chosen]
    similarity = encoder.encode(pictures) @ encoder.encode(pictures).T
    np.fill_diagonal(similarity, -1)
    nearest = [chosen[index]["instance"] for index in similarity.argmax(axis=1)]
    same = sum(found == row["instance"] for found, row in zip(nearest, chosen, strict=True))
    assert same >= len(chosen) - 1


def test_weights_that_are_not_there_are_one_sentence(tmp_path: Path) -> None:
    settings = EncoderSettings(kind="efficientnet", model=str(tmp_path / "none.pth"))
    with pytest.raises(EncoderError, match=r"none\.pth.*No such file"):
        EfficientNetLite0(settings)


def test_weights_of_another_network_are_one_sentence(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"a.weight": torch.zeros(2)}, tmp_path / "other.pth")
    settings = EncoderSettings(kind="efficientnet", model=str(tmp_path / "other.pth"))
    with pytest.raises(EncoderError, match=r"other\.pth"):
        EfficientNetLite0(settings)
