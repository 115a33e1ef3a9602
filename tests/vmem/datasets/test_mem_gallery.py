import json
from pathlib import Path
from typing import Any

import pytest

from vmem.datasets.check import check
from vmem.datasets.mem_gallery import SUFFIXES, read_mem_gallery
from vmem.errors import DataError
from vmem.types import Benchmark, Issue

NAME = "Pets"


def write(folder: Path, rounds: list[dict[str, Any]], questions: list[dict[str, Any]]) -> Benchmark:
    sessions = [
        {"session_id": "D1", "date": "2024-06-17", "dialogues": rounds},
        {"session_id": "D2", "date": "2024-06-18", "dialogues": [spoken("D2:1")]},
    ]
    (folder / "dialog").mkdir(exist_ok=True)
    (folder / "image" / NAME).mkdir(parents=True, exist_ok=True)
    content = {"multi_session_dialogues": sessions, "human-annotated QAs": questions}
    (folder / "dialog" / f"{NAME}.json").write_text(json.dumps(content))
    return read_mem_gallery(folder)


def spoken(id_: str, **more: Any) -> dict[str, Any]:
    return {"round": id_, "user": f"user {id_}", "assistant": f"assistant {id_}", **more}


def shared_image(path: str = f"../image/{NAME}/D1_IMG_001.jpg") -> dict[str, Any]:
    return spoken("D1:1", image_id=["D1:IMG_001"], input_image=[path], image_caption=["a corgi"])


def asked(**more: Any) -> dict[str, Any]:
    return {"point": "FR", "question": "Who?", "answer": "Pickle", "clue": ["D1:1"], **more}


def kinds(benchmark: Benchmark) -> list[str]:
    return [issue.kind for issue in benchmark.issues]


def test_a_round_holds_what_user_and_assistant_said(tmp_path: Path) -> None:
    (dialogue,) = write(tmp_path, [spoken("D1:1")], []).dialogues
    assert dialogue.id == NAME
    assert [(r.id, r.position, r.session, r.time) for r in dialogue.rounds] == [
        ("D1:1", 0, "D1", "2024-06-17"),
        ("D2:1", 1, "D2", "2024-06-18"),
    ]
    assert [(t.speaker, t.text, t.source_id) for t in dialogue.rounds[0].turns] == [
        ("user", "user D1:1", "D1:1"),
        ("assistant", "assistant D1:1", "D1:1"),
    ]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_picture_is_found_under_any_suffix(tmp_path: Path, suffix: str) -> None:
    write(tmp_path, [], [])
    picture = tmp_path / "image" / NAME / f"D1_IMG_001{suffix}"
    picture.touch()
    benchmark = write(tmp_path, [shared_image()], [])
    user, assistant = benchmark.dialogues[0].rounds[0].turns
    (image,) = user.images
    assert (image.id, image.caption, image.uri) == ("D1:IMG_001", "a corgi", str(picture))
    assert assistant.images == ()
    assert benchmark.issues == ()


def test_nothing_stands_in_for_a_missing_picture(tmp_path: Path) -> None:
    question = asked(
        question_image=f"../image/{NAME}/QA_IMG_001.jpg", image_caption="another corgi"
    )
    benchmark = write(tmp_path, [shared_image()], [question])
    (image,) = benchmark.dialogues[0].rounds[0].images
    assert (image.uri, image.caption) == (None, "a corgi")
    asked_image = benchmark.questions[0].query.image
    assert asked_image is not None
    assert (asked_image.id, asked_image.uri) == ("QA_IMG_001", None)
    assert asked_image.caption == "another corgi"
    where = [f"{NAME} D1:1", f"{NAME}#0"]
    assert [(i.kind, i.where) for i in benchmark.issues] == [
        ("missing image file", place) for place in where
    ]


def test_a_question_picture_is_found_from_the_dialog_folder(tmp_path: Path) -> None:
    write(tmp_path, [], [])
    picture = tmp_path / "image" / NAME / "QA_IMG_001.png"
    picture.touch()
    question = asked(question_image=f"../image/{NAME}/QA_IMG_001.jpg")
    benchmark = write(tmp_path, [spoken("D1:1")], [question])
    image = benchmark.questions[0].query.image
    assert image is not None
    assert image.uri == str(picture)
    assert image.caption == ""
    assert benchmark.issues == ()


@pytest.mark.parametrize("path", ["../../secret.jpg", f"../image/{NAME}/link.jpg"])
def test_no_path_leaves_the_folder(tmp_path: Path, path: str) -> None:
    folder = tmp_path / "gallery"
    folder.mkdir()
    write(folder, [], [])
    (tmp_path / "secret.jpg").touch()
    (folder / "image" / NAME / "link.jpg").symlink_to(tmp_path / "secret.jpg")
    with pytest.raises(DataError, match=rf"{NAME} D1:1: image .* lies outside its folder"):
        write(folder, [shared_image(path)], [])
    with pytest.raises(DataError, match=rf"{NAME}#0: image .* lies outside its folder"):
        write(folder, [], [asked(question_image=path)])


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        (asked(clue=["D1:1", "D9:9"]), "evidence not in dialogue"),
        (asked(clue=["D1:1", "D1:1"]), "evidence repeated"),
        (asked(point="AR", clue=[]), "evidence empty"),
        (asked(answer="D1:IMG_009"), "gold image not in dialogue"),
        (asked(point="TTL"), "TTL question without image"),
        (asked(question="Who? Answer with a name."), "instruction after the question mark"),
    ],
)
def test_oddities_are_reported(tmp_path: Path, question: dict[str, Any], kind: str) -> None:
    benchmark = write(tmp_path, [spoken("D1:1")], [question])
    assert kinds(benchmark) == [kind]
    assert benchmark.issues[0].where == benchmark.questions[0].id == f"{NAME}#0"
    assert benchmark.questions[0].evidence == set(question["clue"]) & {"D1:1"}


def test_pictures_in_questions_that_rarely_have_one_are_reported(tmp_path: Path) -> None:
    write(tmp_path, [], [])
    (tmp_path / "image" / NAME / "QA_IMG_001.jpg").touch()
    path = f"../image/{NAME}/QA_IMG_001.jpg"
    questions = [asked(point=point, question_image=path) for point in ("CD", "KR", "VS")]
    benchmark = write(tmp_path, [spoken("D1:1")], questions)
    assert benchmark.issues == tuple(
        Issue(kind="CD or KR question with image", where=f"{NAME}#{index}", detail=path)
        for index in (0, 1)
    )


def test_fields_meant_for_scoring_are_not_kept(tmp_path: Path) -> None:
    extra = {"retrieval_case": "text->text", "query_image_kind": "other-view"}
    plain = write(tmp_path, [spoken("D1:1")], [asked()])
    assert write(tmp_path, [spoken("D1:1")], [asked(**extra)]) == plain


@pytest.mark.parametrize(
    ("rounds", "complaint"),
    [
        ([spoken("D1:1"), spoken("D1:1")], "round id 'D1:1' is used twice"),
        ([{"round": "D1:1", "user": "hi"}], "dialogues.0.assistant is missing"),
        ([spoken("D1:1", image_caption=["a cat"])], "round D1:1 has more images than image ids"),
    ],
)
def test_what_cannot_be_read_is_named(
    tmp_path: Path, rounds: list[dict[str, Any]], complaint: str
) -> None:
    with pytest.raises(DataError, match=complaint):
        write(tmp_path, rounds, [])


def test_a_date_that_is_none_is_named(tmp_path: Path) -> None:
    write(tmp_path, [], [])
    path = tmp_path / "dialog" / f"{NAME}.json"
    path.write_text(path.read_text().replace("2024-06-18", "18 June 2024"))
    with pytest.raises(DataError, match=r"Pets\.json.*'18 June 2024' is no date like"):
        read_mem_gallery(tmp_path)


def test_the_released_files_have_the_counts_of_table_6(shared_data: Path) -> None:
    report = check(read_mem_gallery(shared_data / "mem-gallery"))
    assert (report.dialogues, report.sessions, report.rounds) == (20, 240, 3_962)
    assert report.turns == 2 * report.rounds
    assert (report.images, report.query_images) == (1_003, 487)
    assert report.by_category == {
        "TTL": 337,
        "VS": 306,
        "VR": 174,
        "FR": 219,
        "MR": 206,
        "AR": 184,
        "TR": 123,
        "KR": 81,
        "CD": 81,
    }
    assert report.questions == 1_711
    missing = report.images_missing + report.query_images_missing
    assert report.issues.get("missing image file", 0) == missing
    assert {kind: n for kind, n in report.issues.items() if kind != "missing image file"} == {
        "CD or KR question with image": 12,
        "TTL question without image": 4,
        "evidence empty": 184,
        "gold image not in dialogue": 1,
        "instruction after the question mark": 191,
    }


def test_photobench_reads_as_the_same_format_with_all_its_pictures(shared_data: Path) -> None:
    report = check(read_mem_gallery(shared_data / "photobench", name="photobench"))
    assert report.name == "photobench"
    assert (report.dialogues, report.sessions, report.rounds) == (4, 20, 229)
    assert (report.images, report.images_missing) == (79, 0)
    assert (report.questions, report.query_images, report.query_images_missing) == (140, 66, 0)
