"""What tests of the other systems share: fake encoders, scripted models, the sample."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from vmem.config import Settings, replace
from vmem.datasets.sample import read_sample
from vmem.encoders.fake import FakeImageEncoder, FakeTextEncoder
from vmem.images import read_image
from vmem.llm.budget import SELF_HOSTED, Budget
from vmem.llm.cache import ReplyCache
from vmem.llm.ledger import Ledger
from vmem.llm.metered import MeteredChat
from vmem.pipeline import Parts
from vmem.ports import ChatModel
from vmem.prompts import Prompts
from vmem.types import Benchmark

RUNTIME = replace(
    Settings(),
    encoders={"text": {"kind": "fake"}, "image": {"kind": "fake"}},
    llm={"provider": "fake"},
)


@pytest.fixture(scope="session")
def runtime() -> Settings:
    return RUNTIME


@pytest.fixture(scope="session")
def sample() -> Benchmark:
    return read_sample()


@pytest.fixture(scope="session")
def parts_with() -> Callable[[ChatModel | None], Parts]:
    """Fake encoders and a given model."""

    def parts(chat: ChatModel | None) -> Parts:
        return Parts(
            text_encoder=FakeTextEncoder(),
            image_encoder=FakeImageEncoder(),
            chat=chat,
            prompts=Prompts(RUNTIME.prompts),
            read_image=read_image,
        )

    return parts


@pytest.fixture
def metered(tmp_path: Path) -> Iterator[Callable[[Any], MeteredChat]]:
    """Puts a model behind a run's cache and ledger, the same ones each time it is called."""
    cache, ledger = ReplyCache(tmp_path / "replies.db"), Ledger(tmp_path / "ledger.jsonl")

    def model(chat: Any) -> MeteredChat:
        return MeteredChat(
            chat,
            cache,
            server="scripted",
            concurrency=2,
            budget=Budget(),
            ledger=ledger,
            price=SELF_HOSTED,
        )

    yield model
    ledger.close()
    cache.close()
