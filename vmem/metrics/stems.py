"""Porter's stems (1980) as NLTK extends them: what token F1 counts as the same word (Appendix G).

The scorers of LoCoMo and Mem-Gallery both stem with NLTK's default stemmer. The Porter stemmer of
the Snowball package tells apart what that one joins ("try" and "tries") and joins what that one
tells apart ("as" and "a"), so the extended rules are kept here: short words stay whole, the words
of `IRREGULAR` have a stem of their own, and a few suffixes (`-fully`, `-logy`, `-bly`) are added.
"""

from collections.abc import Callable
from functools import lru_cache

IRREGULAR = {
    "skies": "sky",
    "sky": "sky",
    "dying": "die",
    "lying": "lie",
    "tying": "tie",
    "news": "news",
    "innings": "inning",
    "inning": "inning",
    "outings": "outing",
    "outing": "outing",
    "cannings": "canning",
    "canning": "canning",
    "howe": "howe",
    "proceed": "proceed",
    "exceed": "exceed",
    "succeed": "succeed",
}

Rule = tuple[str, str]

_PLURALS: tuple[Rule, ...] = (("sses", "ss"), ("ies", "i"), ("ss", "ss"), ("s", ""))
_RESTORED_E: tuple[Rule, ...] = (("at", "ate"), ("bl", "ble"), ("iz", "ize"))
_DOUBLE_SUFFIXES: tuple[Rule, ...] = (
    *(("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance")),
    *(("izer", "ize"), ("bli", "ble"), ("alli", "al"), ("entli", "ent"), ("eli", "e")),
    *(("ousli", "ous"), ("ization", "ize"), ("ation", "ate"), ("ator", "ate"), ("alism", "al")),
    *(("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous"), ("aliti", "al")),
    *(("iviti", "ive"), ("biliti", "ble"), ("fulli", "ful")),
)
_MIDDLE_SUFFIXES: tuple[Rule, ...] = (
    *(("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic")),
    *(("ical", "ic"), ("ful", ""), ("ness", "")),
)
_LAST_SUFFIXES = (
    *("al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent"),
    *("sion", "tion", "ou", "ism", "ate", "iti", "ous", "ive", "ize"),
)


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """The stem of a lower-case word; words of one or two letters are their own."""
    if word in IRREGULAR:
        return IRREGULAR[word]
    if len(word) <= 2:
        return word
    for step in _STEPS:
        word = step(word)
    return word


def _shape(word: str) -> str:
    """A `c` or `v` for each letter; y is a vowel after a consonant."""
    shape = ""
    for letter in word:
        vowel = letter in "aeiou" or (letter == "y" and shape.endswith("c"))
        shape += "v" if vowel else "c"
    return shape


def _measure(word: str) -> int:
    """How often a vowel is followed by a consonant: the number of syllables that a rule needs."""
    return _shape(word).count("vc")


def _ends_short(word: str) -> bool:
    """Whether it ends like "hop" or is like "at", so that a final e was part of the word."""
    shape = _shape(word)
    return (shape.endswith("cvc") and word[-1] not in "wxy") or shape == "vc"


def _replaced(word: str, rules: tuple[Rule, ...], least: int) -> str:
    """Apply the first rule whose suffix fits; it alone decides, even where its stem is short."""
    for suffix, replacement in rules:
        if word.endswith(suffix):
            kept = word.removesuffix(suffix)
            return kept + replacement if _measure(kept) >= least else word
    return word


def _plural(word: str) -> str:
    if len(word) == 4 and word.endswith("ies"):
        return word[:-1]
    return _replaced(word, _PLURALS, least=0)


def _past_and_gerund(word: str) -> str:
    if word.endswith("ied"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return _replaced(word, (("eed", "ee"),), least=1)
    for suffix in ("ed", "ing"):
        kept = word.removesuffix(suffix)
        if kept != word and "v" in _shape(kept):
            return _mended(kept)
    return word


def _mended(kept: str) -> str:
    """Give back the e or take away the doubled consonant that -ed and -ing bring."""
    if (restored := _replaced(kept, _RESTORED_E, least=0)) != kept:
        return restored
    if kept[-2:-1] == kept[-1] and _shape(kept).endswith("c"):
        return kept if kept[-1] in "lsz" else kept[:-1]
    return kept + "e" if _measure(kept) == 1 and _ends_short(kept) else kept


def _final_y(word: str) -> str:
    kept = word.removesuffix("y")
    return kept + "i" if kept != word and len(kept) > 1 and _shape(kept)[-1] == "c" else word


def _double_suffix(word: str) -> str:
    if word.endswith("alli") and _measure(word[:-4]):
        return _double_suffix(word[:-2])
    if word.endswith("logi"):
        return word[:-1] if _measure(word[:-3]) else word
    return _replaced(word, _DOUBLE_SUFFIXES, least=1)


def _middle_suffix(word: str) -> str:
    return _replaced(word, _MIDDLE_SUFFIXES, least=1)


def _last_suffix(word: str) -> str:
    for suffix in _LAST_SUFFIXES:
        if word.endswith(suffix):
            kept = word[:-3] if suffix in ("sion", "tion") else word.removesuffix(suffix)
            return kept if _measure(kept) > 1 else word
    return word


def _final_e(word: str) -> str:
    kept = word.removesuffix("e")
    if kept == word:
        return word
    measure = _measure(kept)
    return kept if measure > 1 or (measure == 1 and not _ends_short(kept)) else word


def _final_l(word: str) -> str:
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word


_STEPS: tuple[Callable[[str], str], ...] = (
    *(_plural, _past_and_gerund, _final_y, _double_suffix),
    *(_middle_suffix, _last_suffix, _final_e, _final_l),
)
