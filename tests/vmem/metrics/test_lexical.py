import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from vmem.datasets.locomo import read_locomo
from vmem.datasets.mem_gallery import read_mem_gallery
from vmem.errors import ConfigError, DataError
from vmem.metrics.lexical import (
    LexicalScores,
    bleu,
    declines,
    exact_match,
    lexical_scores,
    token_f1,
    words,
)
from vmem.types import Benchmark

DATA = Path(__file__).parents[3].parent / "shared" / "data"


def f1(prediction: str, reference: str, category: str = "single-hop") -> float:
    return token_f1(prediction, reference, "locomo", category)


def gallery(prediction: str, reference: str) -> LexicalScores:
    return lexical_scores(prediction, reference, "mem-gallery", "FR")


@pytest.mark.parametrize(
    ("text", "locomo", "mem_gallery"),
    [
        ("The cat and a dog, an owl!", "cat dog owl", "cat dog owl"),
        ("part-time", "parttime", "part time"),
        ("D1:IMG_002", "d1img002", "d1 img_002"),
        ("3.5 km. 10.", "35 km 10", "3.5 km 10"),
        ("Caroline's", "carolines", "caroline s"),
        ("10 a.m.", "10 am", "10 m"),
        ("  two\n words\t", "two words", "two words"),
        ("Anders and Thea", "anders thea", "anders thea"),
        ("the, a. AND an?", "", ""),
    ],
)
def test_words_by_hand(text: str, locomo: str, mem_gallery: str) -> None:
    assert words(text, "locomo") == locomo.split()
    assert words(text, "mem-gallery") == mem_gallery.split()


def test_f1_counts_stems_as_often_as_they_occur() -> None:
    assert f1("She adopted two dogs.", "adopting a dog") == 2 * 2 / (4 + 2)
    assert f1("dog dog", "dog") == 2 * 1 / (2 + 1)
    assert f1("dog dog cat", "the dogs, dog") == 2 * 2 / (3 + 2)
    assert f1("cat", "dog") == 0
    assert f1("tries", "trying") == 1


def test_nothing_said_scores_nothing() -> None:
    assert f1("", "dog") == f1("dog", "") == f1("the", "a") == 0
    assert gallery("", "dog") == LexicalScores(f1=0, bleu=0, exact=0)
    assert gallery("the", "a") == LexicalScores(f1=0, bleu=0, exact=1)


def test_multi_hop_takes_the_best_part_for_each_part_of_the_reference() -> None:
    said, gold = "camping, a red kite", "kites, hiking, camping trip"
    # kites: red kite 2/3; hiking: 0; camping trip: camping 2/3.
    assert f1(said, gold, "multi-hop") == pytest.approx((2 / 3 + 0 + 2 / 3) / 3)
    assert f1(said, gold, "single-hop") == 2 * 2 / (3 + 4)


def test_multi_hop_counts_blank_parts_as_the_published_scorer_does() -> None:
    assert f1("camping", "camping,", "multi-hop") == (1 + 0) / 2
    assert f1("", "camping, hiking", "multi-hop") == 0


def test_open_domain_references_end_at_the_first_semicolon() -> None:
    gold = "Likely no; she prefers, it seems; cats"
    for score in (token_f1, exact_match):
        assert score("likely no", gold, "locomo", "open-domain") == 1
        assert score("likely no", gold, "locomo", "temporal") < 1
    assert f1("x; likely no", gold, "open-domain") == 2 * 2 / (3 + 2)
    assert bleu("likely no", gold, "locomo", "open-domain") > bleu(
        "likely no", gold, "locomo", "temporal"
    )


def test_exact_match_is_of_sets_in_locomo_and_of_texts_in_mem_gallery() -> None:
    assert exact_match("a Dog, cat cat", "cat and dog", "locomo", "single-hop") == 1
    assert exact_match("dog cat", "cat dog", "mem-gallery", "FR") == 0
    assert exact_match("The Cat-dog!", "cat dog", "mem-gallery", "FR") == 1
    assert exact_match("cats", "cat", "locomo", "single-hop") == 0


def test_bleu_by_hand() -> None:
    # 4 of 5 words are shared, 2 of 4 pairs, 1 of 3 triples and none of 2 longer ones.
    expected = (4 / 5 * 2 / 4 * 1 / 3 * 0.1 / 2) ** (1 / 4)
    assert gallery("b c d e f", "b c d x f").bleu == pytest.approx(expected)


def test_bleu_punishes_brevity_only() -> None:
    # One word said of two: no longer n-gram exists, each counts 0.1 of 1.
    short = (1 * 0.1**3) ** (1 / 4)
    assert gallery("dog", "dog").bleu == pytest.approx(short)
    assert gallery("dog", "dog cat").bleu == pytest.approx(short * math.exp(1 - 2 / 1))
    longer = (1 / 2 * 0.1 / 1 * 0.1 * 0.1) ** (1 / 4)
    assert gallery("dog cat", "dog").bleu == pytest.approx(longer)


def test_bleu_counts_a_word_no_more_often_than_the_reference() -> None:
    assert gallery("dog dog", "dog").bleu == pytest.approx((1 / 2 * 0.1**3) ** (1 / 4))
    assert gallery("dogs", "dog").bleu == 0
    assert gallery("b c d e", "b c d e").bleu == 1


@pytest.mark.parametrize("benchmark_name", ["photobench", "sample"])
def test_other_benchmarks_are_scored_as_mem_gallery(benchmark_name: str) -> None:
    said, gold = "IMG_002 part-time", "img_002, part time"
    assert lexical_scores(said, gold, benchmark_name, "any") == gallery(said, gold)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"'LoCoMo'.*'locomo'"):
        token_f1("a", "b", "LoCoMo", "single-hop")
    with pytest.raises(ConfigError, match=r"'FR'.*'multi-hop'"):
        bleu("a", "b", "locomo", "FR")


def test_adversarial_questions_are_scored_by_declining() -> None:
    with pytest.raises(DataError, match="declines"):
        lexical_scores("cat", "", "locomo", "adversarial")
    assert declines("That is Not mentioned in the conversation.")
    assert declines("No information available")
    assert not declines("No")


def answered(benchmark: Benchmark, questions: int) -> list[tuple[str, str, str]]:
    """Made-up answers with their references and categories: right, wrong, partial, reordered."""
    source = random.Random(2)
    said = [turn.text for d in benchmark.dialogues for r in d.rounds for turn in r.turns]
    asked = [question for question in benchmark.questions if question.category != "adversarial"]
    cases = []
    for question in source.sample(asked, questions):
        gold = question.reference.split()
        kept = " ".join(word for word in gold if source.random() < 0.7)
        for prediction in (
            question.reference,
            source.choice(said)[:100],
            f"{kept}, {source.choice(said)[:30]}",
            " ".join(reversed(gold)),
        ):
            cases.append((prediction, question.reference, question.category))
    return cases


def published_f1(nltk_stem: Callable[[str], str], said: list[str], gold: list[str]) -> float:
    """F1 as precision and recall over two lists, with NLTK's stemmer."""
    left = [nltk_stem(word) for word in gold]
    hits = 0
    for word in map(nltk_stem, said):
        if word in left:
            left.remove(word)
            hits += 1
    if not hits:
        return 0.0
    precision, recall = hits / len(said), hits / len(gold)
    return 2 * precision * recall / (precision + recall)


@pytest.mark.parametrize(
    ("name", "read"), [("locomo", read_locomo), ("mem-gallery", read_mem_gallery)]
)
def test_scores_of_the_benchmarks_questions_are_nltks(
    name: str, read: Callable[[Path], Benchmark]
) -> None:
    scorer = pytest.importorskip(
        "nltk.translate.bleu_score", reason="nltk comes with the dev extra"
    )
    stem = pytest.importorskip("nltk.stem.porter").PorterStemmer().stem
    if not (DATA / name).exists():
        pytest.skip("shared/data is missing")
    smoothing = scorer.SmoothingFunction().method1
    for prediction, reference, category in answered(read(DATA / name), questions=500):
        ours = lexical_scores(prediction, reference, name, category)
        cut = reference.split(";")[0] if category == "open-domain" else reference
        said, gold = words(prediction, name), words(cut, name)
        theirs = scorer.sentence_bleu([gold], said, smoothing_function=smoothing) if said else 0
        assert ours.bleu == pytest.approx(theirs), (prediction, reference)
        golds, parts = [gold], [said]
        if category == "multi-hop":
            golds = [words(part, name) for part in reference.split(",")]
            parts = [words(part, name) for part in prediction.split(",")]
        best = [max(published_f1(stem, part, gold) for part in parts) for gold in golds]
        assert ours.f1 == pytest.approx(sum(best) / len(best)), (prediction, reference)
