import numpy as np
import pytest
from PIL import Image

from vmem.encoders.fake import FakeImageEncoder, FakeTextEncoder


@pytest.mark.parametrize("width", [8, 32])
def test_shapes_and_lengths(width: int) -> None:
    for vectors in (
        FakeTextEncoder(width).encode(["a dog", "", "?!"]),
        FakeImageEncoder(width).encode(
            [Image.new("RGB", (3, 9), c) for c in ("red", "blue", "tan")]
        ),
    ):
        assert vectors.shape == (3, width)
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert FakeTextEncoder(width).encode([]).shape == (0, width)
    assert FakeImageEncoder(width).encode([]).shape == (0, width)


def test_shared_words_mean_similarity() -> None:
    query, near, far = FakeTextEncoder().encode(
        ["Where did Luna sleep?", "luna slept; where did Luna SLEEP", "tax law of 1972"]
    )
    assert query @ near > 0.8 > 0.5 > query @ far


def test_order_of_words_and_companions_do_not_matter() -> None:
    encoder = FakeTextEncoder()
    first, second = encoder.encode(["red bike", "bike red"])
    np.testing.assert_allclose(first, second, rtol=0, atol=1e-6)
    assert encoder.encode(["red bike"])[0].tobytes() == first.tobytes()


def test_words_past_the_limit_are_counted_and_not_read() -> None:
    encoder = FakeTextEncoder()
    within, over = encoder.encode(["dog " * 256, "dog " * 256 + "cat"])
    assert encoder.count_tokens(["", "a dog", "dog " * 257]) == [0, 2, 257]
    assert within.tobytes() == over.tobytes()


def test_shared_colours_mean_similarity() -> None:
    half = Image.new("RGB", (100, 100), "red")
    half.paste("blue", (0, 0, 50, 100))
    red, half_red, green = FakeImageEncoder().encode(
        [Image.new("RGB", (7, 9), "red"), half, Image.new("RGB", (40, 40), "green")]
    )
    assert red @ half_red > 0.5 > red @ green
