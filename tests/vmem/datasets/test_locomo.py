import json
from pathlib import Path
from typing import Any

import pytest

from vmem.datasets.check import check
from vmem.datasets.locomo import ADVERSARIAL, read_locomo
from vmem.errors import DataError
from vmem.types import Benchmark


def turn(id_: str, speaker: str = "Ann", **more: Any) -> dict[str, Any]:
    return {"speaker": speaker, "dia_id": id_, "text": f"text of {id_}", **more}


def sample(**changes: Any) -> dict[str, Any]:
    conversation = {
        "speaker_a": "Ann",
        "speaker_b": "Bob",
        "session_10_date_time": "12:13 am on 15 September, 2023",
        "session_10": [turn("D10:1"), turn("D10:2", "Bob")],
        "session_2_date_time": "8 May, 2023",
        "session_2": [
            turn("D2:1"),
            turn("D2:2", "Bob", img_url=["https://example.org/a.jpg"], blip_caption="a cat"),
            turn("D2:3", blip_caption="a dog"),
        ],
    }
    return {"sample_id": "conv-1", "conversation": conversation | changes, "qa": []}


def question(**changes: Any) -> dict[str, Any]:
    return {"question": "When?", "answer": "May", "category": 2, "evidence": ["D2:1"]} | changes


def read(tmp_path: Path, *questions: dict[str, Any], **changes: Any) -> Benchmark:
    path = tmp_path / "locomo10.json"
    path.write_text(json.dumps([sample(**changes) | {"qa": list(questions)}]))
    return read_locomo(tmp_path)


def issues(benchmark: Benchmark) -> list[tuple[str, str]]:
    return [(issue.kind, issue.where) for issue in benchmark.issues]


def test_rounds_are_pairs_of_turns_in_numeric_session_order(tmp_path: Path) -> None:
    (dialogue,) = read(tmp_path).dialogues
    assert dialogue.id == "conv-1"
    assert [(r.id, r.position, r.session, r.source_ids) for r in dialogue.rounds] == [
        ("D2:1", 0, "session_2", ("D2:1", "D2:2")),
        ("D2:3", 1, "session_2", ("D2:3",)),
        ("D10:1", 2, "session_10", ("D10:1", "D10:2")),
    ]
    speakers = [[turn.speaker for turn in round_.turns] for round_ in dialogue.rounds]
    assert speakers == [["Ann", "Bob"], ["Ann"], ["Ann", "Bob"]]


def test_dates_become_iso_with_or_without_a_clock(tmp_path: Path) -> None:
    (dialogue,) = read(tmp_path, session_10_date_time="1:56 pm on 8 May, 2023").dialogues
    assert [r.time for r in dialogue.rounds] == ["2023-05-08"] * 2 + ["2023-05-08T13:56"]
    (dialogue,) = read(tmp_path).dialogues
    assert dialogue.rounds[-1].time == "2023-09-15T00:13"


def test_images_have_a_caption_and_no_place(tmp_path: Path) -> None:
    benchmark = read(tmp_path)
    images = [image for r in benchmark.dialogues[0].rounds for image in r.images]
    assert [(i.id, i.uri, i.caption) for i in images] == [
        ("D2:2:IMG", None, "a cat"),
        ("D2:3:IMG", None, "a dog"),
    ]
    assert issues(benchmark) == [("caption without address", "conv-1 D2:3")]


def test_a_session_without_turns_is_left_out_and_reported(tmp_path: Path) -> None:
    benchmark = read(tmp_path, session_11_date_time="9 May, 2023", session_12=[])
    assert check(benchmark).sessions == 2
    assert issues(benchmark)[1:] == [
        ("session without turns", "conv-1 session_11"),
        ("session without turns", "conv-1 session_12"),
    ]


@pytest.mark.parametrize(
    ("raw", "kept", "kinds"),
    [
        (["D2:1", "D10:2"], {"D2:1", "D10:2"}, []),
        (["D2:1; D10:1"], {"D2:1", "D10:1"}, ["misspelt"]),
        (["D2:1 D2:2 D10:1"], {"D2:1", "D2:2", "D10:1"}, ["misspelt"]),
        (["D02:03"], {"D2:3"}, ["misspelt"]),
        (["D:10:2"], {"D10:2"}, ["misspelt"]),
        (["D", "D2:1"], {"D2:1"}, ["unreadable"]),
        (["D2:9"], set(), ["not in dialogue"]),
        (["D2:1", "D2:1"], {"D2:1"}, ["repeated"]),
        ([], set(), ["empty"]),
    ],
)
def test_evidence_is_read_as_far_as_it_can_be(
    tmp_path: Path, raw: list[str], kept: set[str], kinds: list[str]
) -> None:
    benchmark = read(tmp_path, question(evidence=raw))
    assert benchmark.questions[0].evidence == kept
    assert issues(benchmark)[1:] == [(f"evidence {kind}", "conv-1#0") for kind in kinds]


def test_answers_that_are_numbers_or_missing_are_reported(tmp_path: Path) -> None:
    unanswerable = {"question": "Why?", "category": 5, "evidence": ["D2:1"]}
    benchmark = read(tmp_path, question(answer=2022), question(), unanswerable)
    assert [(q.id, q.reference, q.category) for q in benchmark.questions] == [
        ("conv-1#0", "2022", "temporal"),
        ("conv-1#1", "May", "temporal"),
        ("conv-1#2", "", ADVERSARIAL),
    ]
    assert issues(benchmark)[1:] == [
        ("answer is a number", "conv-1#0"),
        ("answer missing", "conv-1#2"),
    ]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"session_2_date_time": "yesterday"}, "session_2_date_time: the date 'yesterday' is not"),
        ({"session_3": [turn("D3:1")]}, "session_3 has no date"),
        ({"session_2": [turn("D2:1"), turn("D2:1")]}, "turn id D2:1 is used twice"),
        (
            {"session_2": [{"speaker": "Ann", "text": "hi"}]},
            "conversation.session_2.0.dia_id is missing",
        ),
    ],
)
def test_what_cannot_be_read_is_named(
    tmp_path: Path, changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(DataError, match=complaint):
        read(tmp_path, **changes)


def test_an_unknown_category_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="conv-1#1: category 6"):
        read(tmp_path, question(), question(category=6))


def test_the_released_file_has_the_published_counts(shared_data: Path) -> None:
    report = check(read_locomo(shared_data / "locomo"))
    assert (report.dialogues, report.sessions, report.turns) == (10, 272, 5_882)
    # 140 of the 272 sessions have an odd number of turns.
    assert report.rounds == (5_882 + 140) // 2 == 3_011
    assert report.by_category == {
        "single-hop": 841,
        "multi-hop": 282,
        "temporal": 321,
        "open-domain": 96,
        "adversarial": 446,
    }
    assert report.questions == 1_986
    assert report.images == report.images_missing == 1_226
    assert report.without_evidence == 4
    assert report.issues == {
        "answer is a number": 6,
        "answer missing": 444,
        "caption without address": 316,
        "evidence empty": 4,
        "evidence misspelt": 6,
        "evidence not in dialogue": 2,
        "evidence repeated": 1,
        "evidence unreadable": 1,
        "session without turns": 16,
    }


def test_the_released_oddities_are_where_they_are_known(shared_data: Path) -> None:
    benchmark = read_locomo(shared_data / "locomo" / "locomo10.json")
    where = {issue.where for issue in benchmark.issues if issue.kind == "evidence not in dialogue"}
    assert where == {"conv-42#58", "conv-47#38"}
    evidence = {q.id: q.evidence for q in benchmark.questions}
    assert evidence["conv-26#37"] == {"D8:6", "D9:17"}
    assert evidence["conv-42#88"] == {"D1:18", "D1:20"}
    assert evidence["conv-50#69"] == {"D30:5"}
