"""Planted answers are wrong by construction; the rate of false accepts has Wilson's interval."""

import re
from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmem.datasets.sample import read_sample
from vmem.errors import InputError
from vmem.metrics.judge import Verdict
from vmem.metrics.planted import false_accept_rate, planted_answers, shares_content
from vmem.types import Query, Question

SAMPLE = read_sample().questions
BY_ID = {question.id: question for question in SAMPLE}


def rng(seed: int = 7) -> np.random.Generator:
    return np.random.default_rng(seed)


def question(number: int, reference: str, category: str = "FR", text: str = "Who?") -> Question:
    return Question(
        id=f"d#{number}",
        dialogue_id="d",
        query=Query(text=text),
        reference=reference,
        category=category,
        evidence=frozenset(),
    )


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


@pytest.mark.parametrize("seed", range(5))
def test_a_specific_answer_is_the_reference_of_another_question_of_its_kind(seed: int) -> None:
    specific = [a for a in planted_answers(SAMPLE, rng(seed)).answers if a.kind == "specific"]
    assert len(specific) > 20
    for planted in specific:
        mine, other = BY_ID[planted.question_id], BY_ID[str(planted.taken_from)]
        assert planted.answer == other.reference != mine.reference
        assert (mine.dialogue_id, mine.category) == (other.dialogue_id, other.category)
        assert not words(mine.reference) <= words(planted.answer)


@pytest.mark.parametrize("seed", range(5))
def test_a_vague_answer_fits_the_topic_and_does_not_hold_the_reference(seed: int) -> None:
    vague = [a for a in planted_answers(SAMPLE, rng(seed)).answers if a.kind == "vague"]
    assert [planted.question_id for planted in vague] == [q.id for q in SAMPLE]
    on_topic = 0
    for planted in vague:
        asked = BY_ID[planted.question_id]
        assert not words(asked.reference) <= words(planted.answer)
        on_topic += bool({w for w in words(asked.query.text) & words(planted.answer) if len(w) > 3})
    assert on_topic == len(vague)


def test_questions_for_which_none_can_be_made_are_named() -> None:
    planted = planted_answers(SAMPLE, rng())
    made = {answer.question_id for answer in planted.answers if answer.kind == "specific"}
    refusals = {q.id for q in SAMPLE if q.reference == "Not mentioned"}
    assert refusals
    assert refusals <= set(planted.without["specific"]) == {q.id for q in SAMPLE} - made
    assert planted.without["vague"] == ()


def test_words_of_the_reference_are_kept_out_of_the_topic() -> None:
    asked = question(1, "The burst pipe", text="Which came first, the burst pipe or the auction?")
    (planted,) = planted_answers([asked], rng()).answers
    assert "auction" in planted.answer
    assert words(planted.answer).isdisjoint({"burst", "pipe"})


def test_a_question_whose_every_word_is_its_reference_still_gets_a_vague_answer() -> None:
    (planted,) = planted_answers([question(1, "Bram", text="Bram?")], rng()).answers
    assert "that" in words(planted.answer)


def test_a_reference_that_vague_talk_would_hold_gets_none() -> None:
    every = "it in of to was that and some said came mention about something various"
    more = " things with do up more than once were over time talked connection way or other there a"
    last = " went much as anybody would expect"
    planted = planted_answers([question(1, "was")], rng())
    assert all("was" not in words(answer.answer) for answer in planted.answers)
    assert planted_answers([question(1, every + more + last)], rng()).without["vague"] == ()
    nothing = planted_answers([question(1, "?!")], rng())
    assert (nothing.answers, nothing.without["vague"]) == ((), ("d#1",))


@pytest.mark.parametrize(
    ("one", "other", "asked"),
    [
        ("Clementine", "clementine.", ""),
        ("Clementine", "Clementine, the cat", ""),
        ("7 May 2023", "May 7, 2023", ""),
        ("Two", "2", ""),
        ("D1:IMG_002", "D1:IMG_002, D5:IMG_004", ""),
        ("painting, hiking", "hiking, running", ""),
        ("a red kite", "the red boat", ""),
    ],
)
def test_answers_that_might_earn_credit_are_not_planted(one: str, other: str, asked: str) -> None:
    assert shares_content(one, other, asked)
    assert shares_content(other, one, asked)
    pair = [question(1, one), question(2, other)]
    assert planted_answers(pair, rng()).without["specific"] == ("d#1", "d#2")


@pytest.mark.parametrize(
    ("one", "other", "asked"),
    [
        ("Yes.", "No.", ""),
        ("D1:IMG_002", "D1:IMG_003", ""),
        ("7 May 2023", "28 June 2023", ""),
        ("Bram paints the door", "Bram sells tea", "What does Bram do?"),
        ("the cat", "the kettle", ""),
    ],
)
def test_other_answers_are(one: str, other: str, asked: str) -> None:
    pair = [question(1, one, text=asked or "Who?"), question(2, other)]
    (planted,) = [
        answer
        for answer in planted_answers(pair, rng()).answers
        if answer.kind == "specific" and answer.question_id == "d#1"
    ]
    assert (planted.answer, planted.taken_from) == (other, "d#2")


def test_other_categories_and_dialogues_lend_no_answer() -> None:
    lent = [question(1, "cat"), question(2, "kettle", "TR"), question(3, "boat")]
    lent[2] = replace(lent[2], dialogue_id="e")
    assert planted_answers(lent, rng()).without["specific"] == ("d#1", "d#2", "d#3")


def test_a_sample_has_its_size_keeps_the_order_and_comes_again_with_its_seed() -> None:
    one, same, other = (planted_answers(SAMPLE, rng(seed), sample=9) for seed in (1, 1, 2))
    assert one == same != other
    ids = list(dict.fromkeys(answer.question_id for answer in one.answers))
    assert len(ids) == 9
    assert ids == [q.id for q in SAMPLE if q.id in ids]
    assert planted_answers(SAMPLE, rng(), sample=999) == planted_answers(SAMPLE, rng())


def test_questions_without_a_reference_are_not_sampled() -> None:
    assert planted_answers([question(1, " ")], rng()).answers == ()


@given(st.lists(st.text(max_size=30), min_size=2, max_size=6), st.integers(0, 99))
def test_no_planted_answer_equals_or_holds_the_reference(references: list[str], seed: int) -> None:
    asked = [question(n, reference) for n, reference in enumerate(references)]
    known = {q.id: q.reference for q in asked}
    for planted in planted_answers(asked, rng(seed)).answers:
        assert not shares_content(planted.answer, known[planted.question_id]) or (
            planted.kind == "vague"
        )
        assert planted.answer != known[planted.question_id]


def verdict(score: float) -> Verdict:
    return Verdict(
        kind="locomo",
        level=score,
        score=score,
        reason="",
        model="m",
        prompt_source="ours",
        prompt_sha256="0",
        repetition=0,
        asks=1,
        usage=(),
    )


@pytest.mark.parametrize(("accepted", "judged"), [(3, 20), (0, 10), (10, 10)])
def test_the_rate_has_wilsons_interval(accepted: int, judged: int) -> None:
    rate = accepted / judged
    z2 = 1.959963984540054**2
    centre = (rate + z2 / (2 * judged)) / (1 + z2 / judged)
    spread = z2 * (rate * (1 - rate) / judged + z2 / (4 * judged**2))
    half = sqrt(spread) / (1 + z2 / judged)
    found = false_accept_rate([verdict(1.0)] * accepted + [verdict(0.0)] * (judged - accepted))
    assert (found.rate, found.accepted, found.judged) == (rate, accepted, judged)
    assert found.low == pytest.approx(centre - half, abs=1e-12)
    assert found.high == pytest.approx(centre + half, abs=1e-12)


def test_half_the_credit_accepts_unless_told_otherwise() -> None:
    verdicts = [verdict(0.5), verdict(0.49), verdict(0.0), verdict(1.0)]
    assert false_accept_rate(verdicts).accepted == 2
    assert false_accept_rate(verdicts, accepted_from=1.0).accepted == 1
    assert false_accept_rate(verdicts).mean_score == pytest.approx((0.5 + 0.49 + 1) / 4)


def test_without_a_verdict_there_is_no_rate() -> None:
    with pytest.raises(InputError, match="no planted answer was judged"):
        false_accept_rate([])
