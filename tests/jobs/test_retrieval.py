"""Evaluation of retrieval: the same record whatever the order of work; failures are counted."""

import json
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace as with_
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image as Pillow

from jobs.retrieval import Outcome, evaluate
from vmem.config import Settings, replace
from vmem.errors import ImageError
from vmem.metrics.retrieval import CUTOFFS
from vmem.rounds import exchange
from vmem.types import Benchmark, Dialogue, Image, Query, Question, Round

FAKES = {"text": {"kind": "fake"}, "image": {"kind": "fake"}}
WORDS = ("harbour", "lantern", "orchard", "violin", "granite", "pepper", "saddle", "thimble")
KEYS = ["question_id", "case", "ranked_rounds", "context_rounds", "context_words", "error"]


@pytest.fixture
def settings() -> Settings:
    return replace(Settings(), encoders=FAKES, retrieval={"top_k": 3})


def a_round(folder: Path, dialogue: str, position: int, rng: random.Random) -> Round:
    images = []
    if position % 3 == 1:
        path = folder / f"{dialogue}-{position}.png"
        Pillow.new("RGB", (12, 12), tuple(rng.randrange(256) for _ in range(3))).save(path)
        images = [Image(id=f"IMG_{position}", uri=str(path), caption=rng.choice(WORDS))]
    text = " ".join(rng.choices(WORDS, k=6))
    day = f"2026-03-{position + 1:02}"
    made = exchange(f"D1:{position}", session="D1", time=day, user=text, images=images)
    return with_(made, position=position)


def questions_of(dialogue: Dialogue, rng: random.Random) -> list[Question]:
    first = next(image for round_ in dialogue.rounds for image in round_.images)
    queries = [
        Query(text=f"what about the {rng.choice(WORDS)}?"),
        Query(text=f"Which photo shows a {rng.choice(WORDS)}?"),
        Query(text="what is this?", image=with_(first, id="asked", caption="")),
        Query(text="Which photo is like this one?", image=with_(first, id="asked")),
    ]
    return [
        Question(
            id=f"{dialogue.id}#{number}",
            dialogue_id=dialogue.id,
            query=query,
            reference="",
            category="FR",
            evidence=frozenset({"D1:1", "D1:2"}) if number else frozenset(),
        )
        for number, query in enumerate(queries)
    ]


@pytest.fixture
def benchmark(tmp_path: Path) -> Benchmark:
    """Three dialogues of nine rounds, and a question of each case for each."""
    rng = random.Random(7)
    dialogues = tuple(
        Dialogue(id=name, rounds=tuple(a_round(tmp_path, name, n, rng) for n in range(9)))
        for name in ("a", "b", "c")
    )
    questions = tuple(q for dialogue in dialogues for q in questions_of(dialogue, rng))
    return Benchmark(name="made", dialogues=dialogues, questions=questions, issues=())


def by_id(outcomes: Sequence[Outcome]) -> dict[str, tuple[dict[str, Any], Any]]:
    return {outcome.question.id: (outcome.record, outcome.scores) for outcome in outcomes}


def test_a_record_a_question_in_their_order(benchmark: Benchmark, settings: Settings) -> None:
    done: list[int] = []
    outcomes = evaluate(benchmark, settings, progress=done.append)
    assert [outcome.question for outcome in outcomes] == list(benchmark.questions)
    assert sum(done) == len(benchmark.questions)
    assert [list(outcome.record) for outcome in outcomes] == [KEYS] * len(outcomes)
    cases = ["text->text", "text->image", "image+text->text", "image+text->image"]
    assert [outcome.record["case"] for outcome in outcomes] == cases * 3
    assert {outcome.record["error"] for outcome in outcomes} == {None}


def test_scores_agree_with_the_record(benchmark: Benchmark, settings: Settings) -> None:
    for outcome in evaluate(benchmark, settings):
        gold = outcome.question.evidence
        if not gold:
            assert outcome.scores is None
            continue
        ranked = [set(ids) for ids in outcome.record["ranked_rounds"]]
        shown = [set(ids) for ids in outcome.record["context_rounds"]]
        assert outcome.scores is not None
        for k in CUTOFFS:
            assert outcome.scores[f"recall@{k}"] == len(gold & set().union(*ranked[:k])) / len(gold)
        assert outcome.scores["recall+neighbours"] == len(gold & set().union(*shown)) / len(gold)
        first = next((n for n, ids in enumerate(ranked, 1) if ids & gold), None)
        assert outcome.scores["mrr"] == (1 / first if first else 0)


def test_the_number_of_workers_changes_nothing(benchmark: Benchmark, settings: Settings) -> None:
    done: list[int] = []
    alone = evaluate(benchmark, settings)
    shared = evaluate(benchmark, settings, workers=2, progress=done.append)
    assert [outcome.question for outcome in shared] == list(benchmark.questions)
    assert by_id(shared) == by_id(alone)
    assert sum(done) == len(benchmark.questions)


def test_the_order_of_dialogues_and_questions_changes_nothing(
    benchmark: Benchmark, settings: Settings
) -> None:
    wanted = by_id(evaluate(benchmark, settings))
    rng = random.Random(3)
    for _ in range(3):
        dialogues, questions = list(benchmark.dialogues), list(benchmark.questions)
        rng.shuffle(dialogues)
        rng.shuffle(questions)
        shuffled = with_(benchmark, dialogues=tuple(dialogues), questions=tuple(questions))
        outcomes = evaluate(shuffled, settings)
        assert [outcome.question for outcome in outcomes] == questions
        assert by_id(outcomes) == wanted


def test_a_dialogue_is_searched_as_if_it_were_alone(
    benchmark: Benchmark, settings: Settings
) -> None:
    wanted = by_id(evaluate(benchmark, settings))
    for dialogue in benchmark.dialogues:
        own = tuple(q for q in benchmark.questions if q.dialogue_id == dialogue.id)
        alone = with_(benchmark, dialogues=(dialogue,), questions=own)
        assert by_id(evaluate(alone, settings)).items() <= wanted.items()


def test_no_model_is_asked(benchmark: Benchmark, settings: Settings) -> None:
    unreachable = {"provider": "openai", "base_url": "http://127.0.0.1:1/v1", "model": "m"}
    outcomes = evaluate(benchmark, replace(settings, llm=unreachable))
    assert {outcome.record["error"] for outcome in outcomes} == {None}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_failed_question_is_a_record_beside_the_others(
    benchmark: Benchmark, settings: Settings, tmp_path: Path, workers: int
) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no picture")
    bad = {
        "a#1": Query(text=" "),
        "b#2": Query(text="what is this?", image=Image(id="broken.png", uri=str(broken))),
    }
    questions = tuple(with_(q, query=bad[q.id]) if q.id in bad else q for q in benchmark.questions)
    outcomes = by_id(evaluate(with_(benchmark, questions=questions), settings, workers=workers))
    failed = {id_: record for id_, (record, _) in outcomes.items() if record["error"]}
    assert failed.keys() == bad.keys()
    assert failed["a#1"] == {
        "question_id": "a#1",
        "case": None,
        "ranked_rounds": [],
        "context_rounds": [],
        "context_words": 0,
        "error": "QueryError: the query is empty: write a question",
    }
    assert failed["b#2"]["error"].startswith("ImageError: image 'broken.png' is not a JPEG")
    assert [outcomes[id_][1] for id_ in bad] == [None, None]
    wanted = by_id(evaluate(benchmark, settings))
    assert {i: o for i, o in outcomes.items() if i not in bad} == {
        i: o for i, o in wanted.items() if i not in bad
    }


def test_a_dialogue_that_cannot_be_encoded_stops_the_run(
    benchmark: Benchmark, settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "b-1.png").write_bytes(b"no picture")
    with pytest.raises(ImageError, match="D1:1/image/1"):
        evaluate(benchmark, settings)


def test_the_command_fails_on_a_failed_question(tmp_path: Path) -> None:
    asked = [
        {"point": "FR", "question": text, "answer": "it", "clue": ["D1:1"]}
        for text in ("what about the harbour?", " ")
    ]
    spoken = [{"round": "D1:1", "user": "the harbour", "assistant": "noted"}]
    session = {"session_id": "D1", "date": "2024-06-17", "dialogues": spoken}
    (tmp_path / "dialog").mkdir()
    content = {"multi_session_dialogues": [session], "human-annotated QAs": asked}
    (tmp_path / "dialog/Town.json").write_text(json.dumps(content))
    (tmp_path / "fakes.yaml").write_text(yaml.safe_dump({"name": "fakes", "encoders": FAKES}))
    words = ["--benchmark", "mem-gallery", "--data", ".", "--out", "run.jsonl", "--json"]
    fake = ["--settings", "fakes.yaml", "--encoders", "settings"]
    done = subprocess.run(
        [sys.executable, "-m", "vmem.cli", "eval", "retrieval", *words, *fake],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert json.loads(done.stdout)["failed"] == 1
    assert "1 questions failed: these scores are invalid" in done.stderr
    assert "Traceback" not in done.stderr
    records = [json.loads(each) for each in (tmp_path / "run.jsonl").read_text().splitlines()]
    assert [bool(record["error"]) for record in records] == [False, True]
