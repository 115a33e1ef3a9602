"""The sample conversation is whole, agrees with itself and is asked along every case."""

import re
import wave
from collections import Counter
from pathlib import Path

import PIL.Image
import pytest

from vmem.config import RetrievalSettings
from vmem.datasets.sample import SAMPLE, SampleQuestion, read_questions, read_sample
from vmem.datasets.sample.draw import PICTURES, SIDE, board, lit, part
from vmem.routing import route_query
from vmem.types import Benchmark, Case, Round

CATEGORIES = {"TTL", "VS", "VR", "FR", "TR", "MR", "KR", "CD", "AR"}
QUESTIONS = read_questions()
BY_ID = [pytest.param(question, id=question.id) for question in QUESTIONS]


@pytest.fixture(scope="module")
def sample() -> Benchmark:
    return read_sample()


@pytest.fixture(scope="module")
def rounds(sample: Benchmark) -> dict[str, Round]:
    (dialogue,) = sample.dialogues
    return {round_.id: round_ for round_ in dialogue.rounds}


def test_it_has_the_rounds_sessions_pictures_and_voice_message_promised(
    rounds: dict[str, Round],
) -> None:
    assert len(rounds) >= 40
    assert len({round_.session for round_ in rounds.values()}) == 5
    images = [image for round_ in rounds.values() for image in round_.images]
    assert len({image.uri for image in images}) == len(images) >= 12
    assert sum(not image.caption for image in images) == 2
    spoken = [turn for round_ in rounds.values() for turn in round_.turns if turn.audio]
    assert len(spoken) == 1
    assert "unlocked" in spoken[0].transcript


def test_rounds_are_numbered_within_their_session_and_stand_in_time_order(
    rounds: dict[str, Round],
) -> None:
    times = [round_.time for round_ in rounds.values()]
    assert times == sorted(times)
    assert all(time.startswith("2026-") for time in times)
    seen: Counter[str] = Counter()
    for round_ in rounds.values():
        seen[round_.session] += 1
        assert round_.id == f"{round_.session}:{seen[round_.session]}"
        assert len({image.id for image in round_.images}) == len(round_.images)
        assert all(image.id.startswith(f"{round_.session}:IMG_") for image in round_.images)


def test_image_ids_are_used_once(rounds: dict[str, Round]) -> None:
    ids = Counter(image.id for round_ in rounds.values() for image in round_.images)
    assert set(ids.values()) == {1}


def test_the_voice_message_is_16_khz_mono_of_six_to_ten_seconds(rounds: dict[str, Round]) -> None:
    (place,) = [turn.audio for round_ in rounds.values() for turn in round_.turns if turn.audio]
    with wave.open(place) as audio:
        assert (audio.getframerate(), audio.getnchannels()) == (16_000, 1)
        assert 6 <= audio.getnframes() / audio.getframerate() <= 10
    assert Path(place).stat().st_size < 400_000


def test_every_picture_opens_is_small_and_has_its_licence() -> None:
    named = set(re.findall(r"`([\w]+\.jpg)`", (SAMPLE / "LICENSES.md").read_text("utf-8")))
    paths = sorted((SAMPLE / "images").iterdir())
    own = {path.name for path in paths}
    carried = {"rocket.jpg", "flower.jpg", "china.jpg", "hubble_deep_field.jpg"}
    assert named - carried == own - carried
    for path in paths:
        with PIL.Image.open(path) as picture:
            picture.load()
            assert picture.format == "JPEG"
            assert max(picture.size) <= 512
    assert (
        sum(
            path.stat().st_size
            for path in SAMPLE.rglob("*")
            if path.suffix != ".pyc" and path.is_file()
        )
        < 1_000_000
    )


def test_every_picture_is_drawn_and_used(rounds: dict[str, Round]) -> None:
    shared = {Path(image.uri or "").name for r in rounds.values() for image in r.images}
    asked = {Path(question.image).name for question in QUESTIONS if question.image}
    assert not shared & asked
    assert shared | asked == PICTURES.keys() == {p.name for p in (SAMPLE / "images").iterdir()}


@pytest.mark.parametrize(
    "name", ["floor_plan.jpg", "chart.jpg", "order.jpg", "menu.jpg", "flyer_may_9.jpg"]
)
def test_drawings_are_what_the_script_draws(name: str) -> None:
    drawn = PICTURES[name]()
    with PIL.Image.open(SAMPLE / "images" / name) as shipped:
        assert shipped.size == drawn.size
        pairs = zip(drawn.convert("L").tobytes(), shipped.convert("L").tobytes(), strict=True)
        # JPEG and another FreeType move pixels a little, another drawing moves many a lot.
        assert sum(abs(a - b) for a, b in pairs) / (drawn.width * drawn.height) < 2


def test_parts_and_light_change_what_they_say() -> None:
    picture, pen = board(SIDE, 100, "#404040")
    pen.rectangle((0, 0, SIDE // 2, 100), fill="#ffffff")
    right = part(picture, (0.75, 0, 1, 1))
    assert right.size == (SIDE - int(0.75 * SIDE), 100)
    assert right.getpixel((5, 5)) == (0x40, 0x40, 0x40)
    assert lit(right, 0.5, 1).getpixel((5, 5)) == (0x20, 0x20, 0x20)


def test_questions_cover_every_case_and_category() -> None:
    assert [question.id for question in QUESTIONS] == [
        f"sample#{index}" for index in range(len(QUESTIONS))
    ]
    assert len(QUESTIONS) >= 24
    assert min(Counter(question.case for question in QUESTIONS).values()) >= 4
    assert {question.category for question in QUESTIONS} == CATEGORIES
    assert sorted(question.case for question in QUESTIONS if question.demo) == sorted(Case)


@pytest.mark.parametrize("question", BY_ID)
def test_the_narrow_rule_finds_the_case_that_the_writer_meant(question: SampleQuestion) -> None:
    route = route_query(question.query, RetrievalSettings(routing="narrow"))
    assert route.case is question.case
    assert route.asks_conflict == (question.category == "CD")


@pytest.mark.parametrize("question", BY_ID)
def test_evidence_exists_and_holds_the_images_of_the_answer(
    question: SampleQuestion, rounds: dict[str, Round]
) -> None:
    assert set(question.evidence) <= rounds.keys()
    assert bool(question.evidence) == (question.category != "AR")
    wanted = set(re.findall(r"D\d:IMG_\d{3}", question.answer))
    held = {image.id for id_ in question.evidence for image in rounds[id_].images}
    assert wanted <= held


def test_a_benchmark_question_carries_the_picture_and_not_the_case(sample: Benchmark) -> None:
    for raw, question in zip(QUESTIONS, sample.questions, strict=True):
        assert (question.id, question.dialogue_id) == (raw.id, sample.dialogues[0].id)
        assert question.evidence == frozenset(raw.evidence)
        assert (question.query.image is None) == (raw.image is None)
        if question.query.image and raw.image:
            assert question.query.image.uri == str((SAMPLE / raw.image).resolve())
            assert question.query.image.caption == ""


def test_how_many_photos_of_the_cat_counts_the_photos_of_the_cat(rounds: dict[str, Round]) -> None:
    (question,) = [question for question in QUESTIONS if "How many photos" in question.question]
    assert question.answer == str(sum(len(rounds[id_].images) for id_ in question.evidence))
