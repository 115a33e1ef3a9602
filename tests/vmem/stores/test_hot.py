import numpy as np
import pytest

from vmem.config import LexicalSettings
from vmem.errors import StoreError
from vmem.stores.hot import HotMemory, UnitTable, spelled_date
from vmem.types import Image, Round, Signal, Turn, Unit, UnitKind

AXIS = np.eye(4, dtype=np.float32)


def unit(position: int, kind: UnitKind, number: int, text: str) -> Unit:
    return Unit(
        id=f"r{position}/{kind.value}/{number}",
        round_id=f"r{position}",
        position=position,
        kind=kind,
        text=text,
    )


TEXT = (
    unit(0, UnitKind.TEXT, 1, "the harbour at dawn"),
    unit(0, UnitKind.TEXT, 2, "gulls and nets"),
    unit(1, UnitKind.TEXT, 1, "a violin lesson"),
    unit(1, UnitKind.CAPTION, 1, "a violin on a harbour bench"),
)
IMAGE = (unit(1, UnitKind.IMAGE, 1, "a violin on a harbour bench"),)


def memory(**lexical: object) -> HotMemory:
    image = Image(id="IMG", uri="x.jpg", caption=IMAGE[0].text)
    rounds = [
        Round(
            id=f"r{n}",
            position=n,
            session="D1",
            time=f"2026-05-0{n + 1}",
            turns=(Turn(source_id=f"r{n}", speaker="user", images=(image,) if n else ()),),
        )
        for n in range(2)
    ]
    return HotMemory(
        rounds,
        UnitTable(units=TEXT, vectors_UD=AXIS),
        UnitTable(units=IMAGE, vectors_UD=AXIS[:1]),
        LexicalSettings.model_validate(lexical),
    )


def found(signal: Signal, anchor: object, **options: object) -> dict[str, float]:
    lexical = options.pop("lexical", {})
    candidates = options.pop("candidates", None)
    scores = memory(**lexical).score(  # type: ignore[arg-type]
        signal,
        anchor,  # type: ignore[arg-type]
        candidates,  # type: ignore[arg-type]
        pool=None,
        with_captions=bool(options.pop("with_captions", True)),
    )
    return dict(zip(scores.unit_ids, scores.score_U.tolist(), strict=True))


def test_dense_scores_are_cosines_of_every_text_unit() -> None:
    anchor = np.array([0.6, 0.0, 0.8, 0.0], dtype=np.float32)
    assert found(Signal.TEXT_DENSE, anchor) == {
        "r0/text/1": pytest.approx(0.6),
        "r0/text/2": 0.0,
        "r1/text/1": pytest.approx(0.8),
        "r1/caption/1": 0.0,
    }


def test_captions_leave_the_text_lane_where_the_image_lane_searches_them() -> None:
    assert set(found(Signal.TEXT_DENSE, AXIS[0], with_captions=False)) == {
        "r0/text/1",
        "r0/text/2",
        "r1/text/1",
    }
    assert set(found(Signal.CAPTION_DENSE, AXIS[0])) == {"r1/caption/1"}
    assert set(found(Signal.CAPTION_SPARSE, "harbour")) == {"r1/caption/1"}


def test_sparse_scores_of_nothing_shared_never_rank() -> None:
    assert set(found(Signal.TEXT_SPARSE, "Harbour?")) == {"r0/text/1", "r1/caption/1"}
    assert found(Signal.TEXT_SPARSE, "zebra") == {}
    assert found(Signal.TEXT_SPARSE, "?!") == {}


def test_only_candidate_rounds_are_scored() -> None:
    only_first = np.array([True, False])
    assert set(found(Signal.TEXT_SPARSE, "harbour", candidates=only_first)) == {"r0/text/1"}
    assert found(Signal.VISUAL, AXIS[0], candidates=only_first) == {}
    assert found(Signal.VISUAL, AXIS[0]) == {"r1/image/1": 1.0}


def test_bm25_over_rounds_joins_what_stands_in_different_spans() -> None:
    scores = found(Signal.TEXT_SPARSE, "harbour nets", lexical={"level": "round"})
    assert set(scores) == {"r0"}


def test_session_dates_can_be_searched() -> None:
    dated = {"level": "round", "session_date": True}
    assert set(found(Signal.TEXT_SPARSE, "2 May 2026", lexical=dated)) == {"r0", "r1"}
    scores = found(Signal.TEXT_SPARSE, "2026-05-02", lexical=dated)
    assert scores["r1"] > scores["r0"]
    assert found(Signal.TEXT_SPARSE, "May", lexical={"level": "round"}) == {}
    assert spelled_date("2026-05-02T10:00") == " 2 May 2026 2026-05-02"


def test_stemming_finds_other_forms_and_drops_stop_words() -> None:
    assert set(found(Signal.TEXT_SPARSE, "lessons", lexical={"stem": True})) == {"r1/text/1"}
    assert found(Signal.TEXT_SPARSE, "the", lexical={"stem": True}) == {}
    assert found(Signal.TEXT_SPARSE, "lessons") == {}


def test_a_signal_refuses_the_wrong_kind_of_anchor() -> None:
    with pytest.raises(StoreError, match="takes a vector"):
        found(Signal.TEXT_DENSE, "harbour")
    with pytest.raises(StoreError, match="takes a text"):
        found(Signal.TEXT_SPARSE, AXIS[0])


def test_a_table_needs_one_vector_a_unit() -> None:
    with pytest.raises(StoreError, match="1 units but 4 vectors"):
        UnitTable(units=IMAGE, vectors_UD=AXIS)


def test_an_empty_memory_finds_nothing() -> None:
    empty = UnitTable(units=(), vectors_UD=np.zeros((0, 4), dtype=np.float32))
    hot = HotMemory([], empty, empty, LexicalSettings())
    for signal, anchor in [(Signal.TEXT_SPARSE, "harbour"), (Signal.TEXT_DENSE, AXIS[0])]:
        scores = hot.score(signal, anchor, None, pool=20, with_captions=True)
        assert len(scores.score_U) == 0


LEVELS = [{"level": "unit"}, {"level": "round", "session_date": True}]


@pytest.mark.parametrize("lexical", LEVELS, ids=["unit", "round"])
def test_a_memory_that_grew_between_searches_scores_as_one_made_at_once(
    lexical: dict[str, object],
) -> None:
    whole = memory(**lexical)
    first = HotMemory(
        whole.rounds[:1],
        UnitTable(units=TEXT[:2], vectors_UD=AXIS[:2]),
        UnitTable(units=(), vectors_UD=AXIS[:0]),
        LexicalSettings.model_validate(lexical),
    )
    asked = [
        (Signal.TEXT_DENSE, AXIS[2]),
        (Signal.TEXT_SPARSE, "harbour violin 2 May"),
        (Signal.CAPTION_SPARSE, "harbour violin"),
        (Signal.VISUAL, AXIS[0]),
    ]
    for searched_before in (False, True):
        if searched_before:
            first.score(Signal.TEXT_SPARSE, "harbour", None, pool=None, with_captions=True)
            first.score(Signal.CAPTION_SPARSE, "harbour", None, pool=None, with_captions=True)
        grown = first.extended(
            whole.rounds[1:],
            UnitTable(units=TEXT[2:], vectors_UD=AXIS[2:]),
            UnitTable(units=IMAGE, vectors_UD=AXIS[:1]),
        )
        assert grown.has_image_R.tolist() == whole.has_image_R.tolist() == [False, True]
        for signal, anchor in asked:
            one, other = (
                each.score(signal, anchor, None, pool=None, with_captions=False)
                for each in (grown, whole)
            )
            assert one.unit_ids.tolist() == other.unit_ids.tolist()
            assert one.position_U.tolist() == other.position_U.tolist()
            assert one.score_U.tolist() == other.score_U.tolist()
