"""Calls that come while an encoder is busy are encoded together, each with its own vectors."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest

from serve.gathered import MOST, Gathered
from vmem.errors import EncoderError
from vmem.ports import Vectors

WAIT_S = 10.0


class _Encoder:
    """Gives each number as a vector; the first call ends when it is told to."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.begun, self.go_on = threading.Event(), threading.Event()

    def __call__(self, numbers: Sequence[int]) -> Vectors:
        self.batches.append(list(numbers))
        if len(self.batches) == 1:
            self.begun.set()
            assert self.go_on.wait(WAIT_S)
        if any(number < 0 for number in numbers):
            raise EncoderError(f"{min(numbers)} is below nothing")
        return np.array([[number, number] for number in numbers], dtype=np.float32)


def _ask_while_busy(encoder: _Encoder, asked: Sequence[Sequence[int]]) -> list[Future[Vectors]]:
    """The first call holds the encoder until the others wait, in their order."""
    gathered = Gathered(encoder)
    with ThreadPoolExecutor(len(asked)) as pool:
        futures = [pool.submit(gathered, asked[0])]
        assert encoder.begun.wait(WAIT_S)
        for number, items in enumerate(asked[1:], start=1):
            futures.append(pool.submit(gathered, items))
            while len(gathered._waiting) < number:
                threading.Event().wait(0.001)
        encoder.go_on.set()
    return futures


def test_calls_that_wait_are_one_batch_and_each_gets_its_own() -> None:
    encoder = _Encoder()
    asked = [[1], [2, 3], [4], [5, 6, 7]]
    futures = _ask_while_busy(encoder, asked)
    assert encoder.batches == [[1], [2, 3, 4, 5, 6, 7]]
    for items, future in zip(asked, futures, strict=True):
        np.testing.assert_array_equal(future.result()[:, 0], items)


def test_a_batch_has_a_most() -> None:
    encoder = _Encoder()
    half = MOST // 2 + 1
    asked = [[1], [2] * half, [3] * half, [4]]
    futures = _ask_while_busy(encoder, asked)
    assert encoder.batches == [[1], [2] * half, [3] * half + [4]]
    assert [future.result().shape for future in futures] == [(len(a), 2) for a in asked]


def test_who_fails_fails_alone() -> None:
    encoder = _Encoder()
    futures = _ask_while_busy(encoder, [[1], [2], [-3], [4]])
    assert encoder.batches == [[1], [2, -3, 4], [2], [-3], [4]]
    with pytest.raises(EncoderError, match="-3 is below nothing"):
        futures[2].result()
    assert [futures[n].result()[0, 0] for n in (0, 1, 3)] == [1, 2, 4]


def test_who_brings_a_whole_batch_waits_for_nobody() -> None:
    encoder = _Encoder()
    encoder.go_on.set()
    gathered = Gathered(encoder)
    with gathered._busy:  # as while another call is encoded
        assert gathered([7] * MOST).shape == (MOST, 2)
    assert encoder.batches == [[7] * MOST]


def test_results_may_be_a_list() -> None:
    gathered = Gathered(lambda numbers: [f"<{number}>" for number in numbers])
    assert gathered([1, 2]) == ["<1>", "<2>"]


def test_one_after_the_other_nothing_gathers() -> None:
    encoder = _Encoder()
    encoder.go_on.set()
    gathered = Gathered(encoder)
    for number in range(3):
        assert gathered([number])[0, 0] == number
    assert encoder.batches == [[0], [1], [2]]
