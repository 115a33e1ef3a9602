import re
from pathlib import Path

import pytest

from vmem.metrics.stems import IRREGULAR, stem

DATA = Path(__file__).parents[3].parent / "shared" / "data"

SUFFIXES = (
    *("", "s", "ies", "ied", "sses", "ed", "eed", "ing", "y", "e", "ll"),
    *("ational", "tional", "ization", "alli", "ally", "bly", "fully", "logy", "logies", "ability"),
    *("ative", "icate", "ical", "ness", "fulness", "ement", "ment", "ent", "ion", "ance", "ism"),
)
BEGINNINGS = (
    *("", "a", "b", "at", "be", "by", "tr", "try", "fl", "sky", "oil", "hop", "hopp", "fall"),
    *("miss", "fizz", "relat", "adopt", "pla", "play", "enjo", "cr", "bubb", "geo", "commun", "x"),
)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        # Porter's own rules, step by step.
        ("caresses", "caress"),
        ("agreed", "agre"),
        ("feed", "feed"),
        ("hopping", "hop"),
        ("hoping", "hope"),
        ("falling", "fall"),
        ("happy", "happi"),
        ("relational", "relat"),
        ("hopefulness", "hope"),
        ("adoption", "adopt"),
        ("controlling", "control"),
        ("rate", "rate"),
        # What NLTK adds.
        ("is", "is"),
        ("tries", "tri"),
        ("trying", "tri"),
        ("died", "die"),
        ("dying", "die"),
        ("skies", "sky"),
        ("news", "news"),
        ("enjoyed", "enjoy"),
        ("possibly", "possibl"),
        ("beautifully", "beauti"),
        ("biology", "biolog"),
        ("one", "one"),
        # What a tokenizer may leave.
        ("", ""),
        ("img_002", "img_002"),
        ("3.5", "3.5"),
    ],
)
def test_stems_by_hand(word: str, expected: str) -> None:
    assert stem(word) == expected


def vocabulary() -> set[str]:
    words = {beginning + suffix for beginning in BEGINNINGS for suffix in SUFFIXES}
    return words | {word + suffix for word in words for suffix in SUFFIXES} | set(IRREGULAR)


def differing(words: set[str]) -> dict[str, tuple[str, str]]:
    porter = pytest.importorskip("nltk.stem.porter", reason="nltk comes with the dev extra")
    theirs = porter.PorterStemmer().stem
    return {word: (stem(word), theirs(word)) for word in words if stem(word) != theirs(word)}


def test_stems_are_nltks() -> None:
    assert len(vocabulary()) > 20_000
    assert differing(vocabulary()) == {}


def test_stems_of_both_benchmarks_are_nltks() -> None:
    files = [*DATA.glob("*/dialog/*.json"), *DATA.glob("locomo/locomo10.json")]
    if not files:
        pytest.skip("shared/data is missing")
    words = {
        word
        for file in files
        for word in re.findall(r"\w+", file.read_text(encoding="utf-8").lower())
    }
    assert len(words) > 1_000
    assert differing(words) == {}
