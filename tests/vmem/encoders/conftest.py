import socket
from pathlib import Path

import huggingface_hub.constants
import pytest

from vmem.config import EncoderSettings
from vmem.encoders.minilm import MiniLM

PHOTOS = Path(__file__).parents[3].parent / "shared" / "data" / "photos"


@pytest.fixture(scope="session")
def minilm() -> MiniLM:
    return MiniLM(EncoderSettings(kind="minilm", batch_size=8))


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub's own offline switch, so that a missing model is missing at once."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any attempt to reach a host fails the test; the hub's offline switch stays off."""

    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError(f"a network attempt: {arguments}")

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture
def photos() -> Path:
    if not PHOTOS.is_dir():
        pytest.skip("the photo set is not beside the repository (shared/data/photos)")
    return PHOTOS
