from vmem.config import UnitSettings
from vmem.rounds import SPLIT_WORDS, pair_turns, show_round, to_units
from vmem.types import Image, Modality, Round, Turn, UnitKind

PICTURE = Image(id="D1:IMG_001", uri="a.jpg", caption="a red kite over dunes")
BARE = Image(id="D1:IMG_002", uri="b.jpg")


def a_round(*turns: Turn) -> Round:
    return Round(id="D1:3", position=2, session="D1", time="2026-03-02", turns=turns)


def said(text: str, speaker: str = "user", **more: object) -> Turn:
    return Turn(source_id="D1:3", speaker=speaker, text=text, **more)  # type: ignore[arg-type]


def test_a_round_gives_one_unit_a_span_one_an_image_and_one_a_caption() -> None:
    units = to_units(
        a_round(said("Look!", images=(PICTURE, BARE)), said("Lovely.", "assistant")),
        UnitSettings(),
    )
    assert [(unit.id, unit.text) for unit in units] == [
        ("D1:3/text/1", "Look! [Image: a red kite over dunes]"),
        ("D1:3/text/2", "Lovely."),
        ("D1:3/caption/1", "a red kite over dunes"),
        ("D1:3/image/1", "a red kite over dunes"),
        ("D1:3/image/2", ""),
    ]
    assert [unit.modality for unit in units] == [Modality.TEXT] * 3 + [Modality.IMAGE] * 2
    assert {unit.position for unit in units} == {2}


def test_folding_can_be_switched_off_and_the_caption_unit_stays() -> None:
    units = to_units(a_round(said("Look!", images=(PICTURE,))), UnitSettings(fold_captions=False))
    assert [unit.text for unit in units] == ["Look!", PICTURE.caption, PICTURE.caption]


def test_names_are_written_before_the_text_and_roles_are_not() -> None:
    units = to_units(a_round(said("Hi", "Mia"), said("Hello", "assistant")), UnitSettings())
    assert [unit.text for unit in units] == ["Mia: Hi", "Hello"]


def test_a_voice_message_is_a_text_unit_of_its_round() -> None:
    units = to_units(a_round(said("", audio="v.wav", transcript=" call me ")), UnitSettings())
    assert [(unit.kind, unit.text) for unit in units] == [(UnitKind.AUDIO, "[Audio: call me]")]


def test_a_long_span_is_split_only_where_the_setting_says_so() -> None:
    words = [f"w{n}" for n in range(SPLIT_WORDS * 2 + 1)]
    turn = said(" ".join(words))
    assert len(to_units(a_round(turn), UnitSettings())) == 1
    parts = to_units(a_round(turn), UnitSettings(split_long_spans=True))
    assert [len(part.text.split()) for part in parts] == [SPLIT_WORDS, SPLIT_WORDS, 1]
    assert " ".join(part.text for part in parts).split() == words


def test_turns_pair_up_and_an_odd_last_one_stands_alone() -> None:
    turns = [said(str(n)) for n in range(5)]
    pairs = pair_turns(turns)
    assert [[turn.text for turn in pair] for pair in pairs] == [["0", "1"], ["2", "3"], ["4"]]


def test_a_context_shows_images_by_id_even_without_a_caption() -> None:
    shown = show_round(a_round(said("Look!", images=(PICTURE, BARE)), said("Lovely.", "assistant")))
    assert shown == (
        "User: Look! [Image D1:IMG_001: a red kite over dunes] [Image D1:IMG_002]\n"
        "Assistant: Lovely."
    )


def test_bare_units_show_only_themselves() -> None:
    round_ = a_round(said("Look!", images=(PICTURE,)), said("Lovely.", "assistant"))
    assert show_round(round_, ("D1:3/text/2",)) == "Lovely."
    assert show_round(round_, ("D1:3/image/1",)) == "[Image D1:IMG_001: a red kite over dunes]"


def test_bare_units_are_those_of_the_settings_that_made_them() -> None:
    words = " ".join(f"w{n}" for n in range(SPLIT_WORDS + 1))
    split = UnitSettings(split_long_spans=True)
    assert show_round(a_round(said(words)), ("D1:3/text/2",), split) == f"w{SPLIT_WORDS}"
    unfolded = UnitSettings(fold_captions=False)
    shown = show_round(a_round(said("Look!", images=(PICTURE,))), ("D1:3/text/1",), unfolded)
    assert shown == "Look!"
