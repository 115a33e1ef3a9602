"""What was found goes between processes and stays what it was."""

import pickle
from dataclasses import replace
from typing import Any

import pytest

from serve.service import Found
from vmem.types import (
    Anchors,
    Block,
    Case,
    Context,
    Failure,
    Image,
    Query,
    RankedRound,
    Retrieval,
    Round,
    Route,
    Signal,
    Turn,
    Usage,
)

IMAGE = Image(id="attached", uri="data:image/png;base64,AAAA", caption="a tent")
ROUND = Round(
    id="r1",
    position=7,
    session="s",
    time="2024-05-08",
    turns=(Turn(source_id="t", speaker="Ana", text="Zoë’s", images=(IMAGE,)),),
)


def _found(text: str) -> Found:
    route = Route(
        case=Case.IMAGE_TEXT_TO_IMAGE,
        counts_images=False,
        aggregates=True,
        asks_conflict=False,
        reason="asked so",
    )
    anchors = Anchors(
        by_signal={Signal.VISUAL: IMAGE, Signal.TEXT_DENSE: "tent"},
        keywords=("tent",),
        usage=(Usage(role="keywords", prompt_tokens=3),),
        failures=(Failure(role="hypo_caption", error="ModelTimeoutError"),),
    )
    ranked = RankedRound(position=7, score=1 / 3, ranks={Signal.VISUAL: 1}, units=("u",))
    block = Block(session="s", time="2024-05-08", positions=(7,), text=text)
    retrieval = Retrieval(
        query=Query(text="Which tent?", image=IMAGE),
        route=route,
        anchors=anchors,
        ranked=(ranked,),
        context=Context(blocks=(block,), found=(7,), text=text, tokens=9),
        seconds={"encode": 0.1},
    )
    return Found(retrieval=retrieval, rounds={7: ROUND}, version=4)


@pytest.mark.parametrize("text", ["a tent", "half a pair: \ud83c"])
def test_it_comes_back_as_it_went(text: str) -> None:
    found = _found(text)
    back: Any = pickle.loads(pickle.dumps(found))
    assert back == found
    assert type(back.retrieval.anchors.by_signal[Signal.VISUAL]) is Image
    assert back != replace(found, version=5)
