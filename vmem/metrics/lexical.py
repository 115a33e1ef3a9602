"""Token F1, BLEU and exact match as LoCoMo and Mem-Gallery define them (Appendix G).

Sources: `task_eval/evaluation.py` of snap-research/locomo (F1, exact match) and
`benchmark/memengine/evaluate/evaluation.py` of YuanchenBei/Mem-Gallery (all three). In both a text
becomes lower-case words without punctuation, without "a", "an", "the" and "and"; F1 counts stems.
They differ in these:

- LoCoMo deletes punctuation, so that "part-time" is one word; Mem-Gallery puts a blank in its
  place, and keeps underscores and the points within numbers (`IMG_002`, `3.5`).
- LoCoMo's exact match compares sets of words, Mem-Gallery's compares their order as well.
- LoCoMo's multi-hop F1 splits prediction and reference at commas, blank parts among them, and is
  the mean, over the reference's parts, of the best F1 of any part of the prediction. Its
  open-domain references end at the first semicolon.

BLEU is Mem-Gallery's: sentence BLEU of 1- to 4-grams with equal weights, words not stemmed, the
brevity penalty, and NLTK's smoothing method 1, which counts 0.1 of a match where an order has
none. LoCoMo's scorer has no BLEU; its questions get this one over LoCoMo's words.

A prediction or reference without a word left has an F1 and a BLEU of 0 in both.
"""

import math
import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from vmem.errors import ConfigError, DataError
from vmem.metrics.stems import stem

LOCOMO, MEM_GALLERY = "locomo", "mem-gallery"
SCORED_AS = {
    LOCOMO: LOCOMO,
    MEM_GALLERY: MEM_GALLERY,
    "photobench": MEM_GALLERY,
    "sample": MEM_GALLERY,
}
"""Whose definition scores a benchmark's questions, by the benchmark's name."""

DEFINITIONS = {
    LOCOMO: (
        "F1 of stems and exact match as LoCoMo's scorer defines them (task_eval/evaluation.py);"
        " it has no BLEU, so BLEU is Mem-Gallery's over LoCoMo's words"
    ),
    MEM_GALLERY: (
        "F1 of stems, smoothed sentence BLEU of 1- to 4-grams and exact match as Mem-Gallery's"
        " scorer defines them (memengine/evaluate/evaluation.py)"
    ),
}
"""What the scores are, for a reader of a table, by the values of `SCORED_AS`."""

ORDERS = 4
EPSILON = 0.1

_LOCOMO_CATEGORIES = ("multi-hop", "temporal", "open-domain", "single-hop")
_ARTICLES = re.compile(r"\b(?:a|an|the|and)\b")
_DELETED = str.maketrans("", "", string.punctuation)
_BLANKED = re.compile(
    rf"(?<!\d)\.|\.(?!\d)|[{re.escape(string.punctuation.replace('_', '').replace('.', ''))}]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LexicalScores:
    """One answer's overlap with its reference; each between 0 and 1."""

    f1: float
    bleu: float
    exact: float


def lexical_scores(prediction: str, reference: str, benchmark: str, category: str) -> LexicalScores:
    """All three scores of one answer.

    Args:
        prediction: What the system answered.
        reference: The gold answer.
        benchmark: The benchmark's name, a key of `SCORED_AS`.
        category: The question's category; only LoCoMo's matter.

    Raises:
        ConfigError: The benchmark has no definition, or LoCoMo has no such category.
        DataError: The question is adversarial: there is no reference to overlap with.
    """
    return LexicalScores(
        f1=token_f1(prediction, reference, benchmark, category),
        bleu=bleu(prediction, reference, benchmark, category),
        exact=exact_match(prediction, reference, benchmark, category),
    )


def token_f1(prediction: str, reference: str, benchmark: str, category: str) -> float:
    """F1 of the two multisets of stems; arguments and errors as in `lexical_scores`."""
    scored_as, reference = _prepared(reference, benchmark, category)
    if scored_as == LOCOMO and category == "multi-hop":
        parts = [_stems(part, scored_as) for part in prediction.split(",")]
        wanted = [_stems(part, scored_as) for part in reference.split(",")]
        return sum(max(_f1(part, gold) for part in parts) for gold in wanted) / len(wanted)
    return _f1(_stems(prediction, scored_as), _stems(reference, scored_as))


def bleu(prediction: str, reference: str, benchmark: str, category: str) -> float:
    """Smoothed sentence BLEU of up to 4-grams; arguments and errors as in `lexical_scores`."""
    scored_as, reference = _prepared(reference, benchmark, category)
    said, gold = words(prediction, scored_as), words(reference, scored_as)
    if not set(said) & set(gold):
        return 0.0
    logs = [math.log(_precision(said, gold, order)) for order in range(1, ORDERS + 1)]
    return math.exp(min(0.0, 1 - len(gold) / len(said)) + sum(logs) / ORDERS)


def exact_match(prediction: str, reference: str, benchmark: str, category: str) -> float:
    """1 where the words are the same, else 0; arguments and errors as in `lexical_scores`."""
    scored_as, reference = _prepared(reference, benchmark, category)
    said, gold = words(prediction, scored_as), words(reference, scored_as)
    return float(set(said) == set(gold) if scored_as == LOCOMO else said == gold)


def declines(prediction: str) -> bool:
    """Whether an answer to an adversarial question is right: LoCoMo's scorer looks for a phrase."""
    said = prediction.lower()
    return "no information available" in said or "not mentioned" in said


def words(text: str, scored_as: str) -> list[str]:
    """The words that count, in order, as LoCoMo or as Mem-Gallery normalises a text."""
    text = text.lower()
    if scored_as == LOCOMO:
        return _ARTICLES.sub(" ", text.translate(_DELETED)).split()
    return _BLANKED.sub(" ", _ARTICLES.sub(" ", text)).split()


def _prepared(reference: str, benchmark: str, category: str) -> tuple[str, str]:
    """Whose definition applies, and the part of the reference that it compares with."""
    if benchmark not in SCORED_AS:
        raise ConfigError(
            f"no lexical scores are defined for benchmark {benchmark!r}; use one of {[*SCORED_AS]}"
        )
    scored_as = SCORED_AS[benchmark]
    if scored_as != LOCOMO or category in _LOCOMO_CATEGORIES:
        open_domain = scored_as == LOCOMO and category == "open-domain"
        return scored_as, reference.partition(";")[0] if open_domain else reference
    if category == "adversarial":
        raise DataError(
            "an adversarial question has no reference to overlap with; score it with `declines`"
        )
    raise ConfigError(f"LoCoMo has no category {category!r}; use one of {[*_LOCOMO_CATEGORIES]}")


def _stems(text: str, scored_as: str) -> Counter[str]:
    return Counter(map(stem, words(text, scored_as)))


def _f1(said: Counter[str], gold: Counter[str]) -> float:
    shared = (said & gold).total()
    return 2 * shared / (said.total() + gold.total()) if shared else 0.0


def _precision(said: Sequence[str], gold: Sequence[str], order: int) -> float:
    """Share of the prediction's n-grams that the reference has too, smoothed where none is."""
    ours, theirs = _ngrams(said, order), _ngrams(gold, order)
    shared = (ours & theirs).total()
    return (shared or EPSILON) / max(1, ours.total())


def _ngrams(tokens: Sequence[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(tokens[start:] for start in range(order)), strict=False))
