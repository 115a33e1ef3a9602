"""What Omni-SimpleMem's public code does with a question, flaws and leaks included.

It knows each question's gold category, which no user gives: it picks the search, the prompt and
corrections of the answer by it. Read off aiming-lab/SimpleMem at commit db80b6a, OmniSimpleMem/.

Two of its flaws are kept, because they decide what it finds: the number of units by meaning that
its benchmark code asks for (20 or 30 by category) is overruled by a rule about the question's
wording, and a word such as "see", "photo" or "said", or a date, filters by a kind or a day that no
unit has, so that nothing is found by meaning and BM25 is left alone.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

TASKS: Mapping[str, str] = {
    "AR": (
        "answer only what was said outright about this very thing; in any doubt reply exactly:"
        " Not mentioned."
    ),
    "CD": (
        "does the statement in it conflict with the conversation, in any detail, and going by the"
        " latest session? Reply Yes. or No. alone."
    ),
    "FR": (
        "give the facts in the conversation's own words and nothing else; asked for a list, give"
        " every item of all sessions, separated by commas."
    ),
    "KR": (
        "what was said changed over time; give the latest state, in the conversation's own words."
        " Asked yes or no, reply Yes. or No. alone; of a picture give the id."
    ),
    "MR": (
        "put several memories together; answer just what is asked, in the conversation's own words,"
        " with all items of a list and the names of people and animals."
    ),
    "TR": (
        "memories are in the order of time; compare session and turn to tell what came first. Give"
        " a date in the form asked for; asked yes or no, reply Yes. or No. alone."
    ),
    "TTL": (
        "match the attached picture's description with what was talked about, and answer with the"
        " name that the conversation gave to it, not with what the picture shows."
    ),
    "VR": (
        "asked how many pictures, go through the picture list, count those whose conversation"
        " names the thing, each id once, and reply with the numeral alone; else answer from"
        " captions and conversation, with Yes. or No. alone where that is asked."
    ),
    "VS": "reply with the ids of the pictures, in ascending order, separated by commas.",
}
"""How a gold category of Mem-Gallery is answered; in our words, after benchmarks/memgallery."""

_MODALITIES: Mapping[str, tuple[str, ...]] = {
    "visual": ("image", "picture", "photo", "look like", "see", "show", "visual"),
    "audio": ("audio", "sound", "hear", "said", "voice", "speech", "listen"),
    "video": ("video", "clip", "recording", "footage"),
    "text": ("text", "written", "document", "note", "message"),
}
_EVIDENCE = re.compile(r"\b(?:show me|prove|everify|exactly|specifically|details?)\b")
_TIMES = (
    ("yesterday", False), ("today", True), ("last week", False), ("this week", True),
    ("last month", False), ("this month", True), (r"\d{4}-\d{2}-\d{2}", False),
)  # fmt: skip
"""Words for a time, and whether the memory was built in it; the first that is there counts."""
_LIST = ("list all", "please list", "what are all", "name all", "what were all")

_CATEGORY_K: Mapping[str, int] = {
    "AR": 10, "CD": 15, "VS": 15, "VR": 15, "TR": 20, "FR": 30, "KR": 20, "MR": 25, "TTL": 15,
}  # fmt: skip
MOST_EXPANDED = 5
"""Units of BM25 that Mem-Gallery's adapter really gets: `max_expanded_items`."""
ASKS_DATE = " Answer with an approximate date, going by the dates in the conversation."
"""Behind LoCoMo's questions of the second category (run_locomo.py), in our words."""
VS_PICTURES, TTL_PICTURES, ALL_PICTURES = 30, 10, 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to look for.

    Attributes:
        top_k: Units by meaning.
        keyword_k: Units that BM25 may add.
        keyword_pool: Its best units among which those are.
        pictures: Entries of the picture list.
        in_time_order: Units are shown in time order.
        suffix: What is put behind the question, to search with and to answer.
        notes: What kept something from being found.
    """

    top_k: int
    keyword_k: int
    keyword_pool: int
    pictures: int = 0
    in_time_order: bool = False
    suffix: str = ""
    notes: tuple[str, ...] = ()


def wanted_by_released_code(text: str, category: str, from_windows: bool) -> Wanted:
    """What the public code looks for.

    Args:
        text: The question.
        category: Its gold category.
        from_windows: The memory is of statements, as on LoCoMo.
    """
    top_k, notes = _by_wording(text)
    if from_windows:
        suffix = ASKS_DATE if is_temporal(category) else ""
        return Wanted(top_k=top_k, keyword_k=10, keyword_pool=10, suffix=suffix, notes=notes)
    if category in {"VS", "VR"}:
        return Wanted(
            top_k=top_k,
            keyword_k=MOST_EXPANDED,
            keyword_pool=15,
            pictures=ALL_PICTURES if category == "VR" else VS_PICTURES,
            notes=notes,
        )
    return Wanted(
        top_k=top_k,
        keyword_k=MOST_EXPANDED,
        keyword_pool=_keyword_pool(text, category),
        pictures=TTL_PICTURES if category == "TTL" else 0,
        in_time_order=category in {"TR", "CD"},
        notes=notes,
    )


def is_temporal(category: str) -> bool:
    """Whether LoCoMo's gold category is the second, of dates."""
    return category == "temporal"


def _by_wording(text: str) -> tuple[int, tuple[str, ...]]:
    """Units by meaning, and why there are none (query_processor.py)."""
    lower = text.lower()
    hints = [name for name, words in _MODALITIES.items() if any(word in lower for word in words)]
    if len(hints) == 1 and hints != ["text"]:
        return 0, (
            f"released code: the wording asks for {hints[0]} units, of which there are none",
        )
    times = [is_now for words, is_now in _TIMES if re.search(rf"\b{words}\b", lower)]
    if times and not times[0]:
        return 0, ("released code: the wording asks for a day on which nothing was stored",)
    if _EVIDENCE.search(lower):
        return 5, ()
    return (20, ()) if times else (10, ())


def _keyword_pool(text: str, category: str) -> int:
    """BM25's best units among which new ones are looked for (adapter.py)."""
    lower = text.lower()
    pool = _CATEGORY_K.get(category, 20)
    lists = any(words in lower for words in _LIST)
    if lists:
        pool = max(pool, 35)
    if "how many" in lower:
        pool = max(pool, 30)
    if category == "FR" and (lists or "how many" in lower):
        pool = max(pool, 40)
    names = [
        word for word in text.split() if word[0].isupper() and f" {word.lower()} " not in _COMMON
    ]
    return max(pool, 25) if len(names) >= 3 else pool


_COMMON = (
    " a an the is was were are be did does do will would could should what which who whom how when"
    " where why if in on at for to of and or but i he she they it his her their my your our this"
    " that these those please based conversation user assistant question answer "
)
"""Words that are no names where they are written large; the public code has some more."""
