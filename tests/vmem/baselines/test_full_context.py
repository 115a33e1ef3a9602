"""Full context, capped and with pictures; `tests/vmem/systems` tries it uncapped."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from vmem.config import Settings
from vmem.errors import ConfigError
from vmem.llm.fake import FakeChat
from vmem.ports import ChatModel
from vmem.rounds import show_round
from vmem.systems.registry import make_system
from vmem.systems.rows import read_rows, row_settings
from vmem.types import Benchmark, Query

ROWS = read_rows()
WHY = Query(text="Why?")


@pytest.fixture
def built(
    sample: Benchmark, runtime: Settings, parts_with: Callable[[ChatModel | None], Any]
) -> Callable[..., Any]:
    def build(name: str, chat: FakeChat, **options: Any) -> Any:
        row = ROWS[name].model_copy(update={"options": {**ROWS[name].options, **options}})
        system = make_system(row, row_settings(row, runtime), parts_with(chat))
        return asyncio.run(system.build(sample.dialogues[0]))

    return build


@pytest.mark.parametrize("tokens", [1, 300, 1_000, 1_000_000])
def test_the_last_rounds_that_fit_are_shown(sample: Benchmark, built: Any, tokens: int) -> None:
    chat = FakeChat(lambda _: "yes")
    memory = built("full-context-4096", chat, max_tokens=tokens)
    rounds = sample.dialogues[0].rounds
    lengths = [chat.count_tokens(show_round(round_)) for round_ in rounds]
    shown = memory.context.positions
    assert shown == tuple(range(len(rounds) - len(shown), len(rounds)))
    assert sum(lengths[len(rounds) - len(shown) :]) <= tokens
    assert len(shown) == len(rounds) or sum(lengths[len(rounds) - len(shown) - 1 :]) > tokens
    counts = memory.cost.counts
    assert (counts["rounds"], counts["rounds_not_shown"]) == (len(shown), len(rounds) - len(shown))
    asyncio.run(memory.answer(WHY))
    if shown:
        assert show_round(rounds[-1]) in chat.requests[0].prompt


def test_pictures_are_shown_in_time_order_the_last_ones_first_kept(
    sample: Benchmark, built: Any
) -> None:
    chat = FakeChat(lambda _: "yes", sees_images=True)
    total = sum(len(round_.images) for round_ in sample.dialogues[0].rounds)
    every = built("full-context-images", chat)
    assert len(every.pictures) == total == every.cost.counts["pictures"] > 2
    few = built("full-context-images", chat, max_images=2)
    assert few.pictures == every.pictures[-2:]
    asyncio.run(few.answer(WHY))
    assert chat.requests[0].images == few.pictures


def test_pictures_count_against_the_cap(built: Any) -> None:
    chat = FakeChat(lambda _: "yes", sees_images=True)
    light = built("full-context-images-4096", chat, max_tokens=1_500, image_tokens=1)
    heavy = built("full-context-images-4096", chat, max_tokens=1_500, image_tokens=700)
    assert len(heavy.context.positions) < len(light.context.positions)
    assert len(heavy.pictures) <= 1_500 / 700


def test_pictures_need_a_model_that_sees(built: Any) -> None:
    with pytest.raises(ConfigError, match="'full-context-images' shows pictures"):
        built("full-context-images", FakeChat())


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("full-context", {"colour": 1}, r"'full-context': there is no setting options\.colour"),
        ("full-context", {"max_tokens": 0}, r"'full-context': setting options\.max_tokens"),
        ("v-mem", {"top_k": 1}, r"'v-mem': there is no setting options\.top_k"),
    ],
)
def test_an_option_that_a_kind_does_not_have_is_refused(
    built: Any, name: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        built(name, FakeChat(), **options)
