"""What the keywords call gives back, read whatever shape it is in."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

LONGEST_KEYWORD = 60
"""Characters; what is longer is a sentence."""
LONGEST_LIST = 600
"""Characters of a reply that may be taken for a bare list of keywords."""

_QUOTED = r'"((?:[^"\\]|\\.)*)"'


def parse_keywords(text: str) -> tuple[list[str], str | None]:
    """Search terms and the description out of a reply that ought to be JSON, however broken.

    Read as, in turn: the first JSON object in it, the quoted texts of the first list (a reply cut
    short still has some), a short reply's lines and commas.
    """
    answer = first_object(text)
    if answer is not None:
        found, caption = answer.get("keywords"), answer.get("caption")
        terms = (
            found if isinstance(found, list) else _split(found if isinstance(found, str) else "")
        )
        return (
            _tidy(str(term) for term in terms if isinstance(term, str | int | float)),
            (one_line(caption) or None) if isinstance(caption, str) else None,
        )
    match = re.search(r'"caption"\s*:\s*' + _QUOTED, text)
    said = (one_line(_unquote(match[1])) or None) if match else None
    if (start := text.find("[")) >= 0:
        inside = text[start + 1 :].split("]", 1)[0]
        return _tidy(_unquote(quoted) for quoted in re.findall(_QUOTED, inside)), said
    if len(text) <= LONGEST_LIST and "{" not in text:
        return _tidy(_split(re.sub(r"```\w*", "", text))), said
    return [], said


def first_object(text: str) -> dict[str, Any] | None:
    """The first JSON object in a text, or None."""
    decoder = json.JSONDecoder()
    for brace in re.finditer(r"\{", text):
        try:
            answer, _ = decoder.raw_decode(text, brace.start())
        except (json.JSONDecodeError, RecursionError):
            continue
        if isinstance(answer, dict):
            return answer
    return None


def _unquote(inside: str) -> str:
    try:
        return str(json.loads(f'"{inside}"'))
    except json.JSONDecodeError:
        return inside


def _split(text: str) -> list[str]:
    return re.split(r"[\n,;]", text)


def _tidy(terms: Iterable[str]) -> list[str]:
    """Terms without bullets, quotes and surplus blanks; empty ones go."""
    bare = (one_line(re.sub(r"^\s*(?:[-*•]|\d+[.)])\s+", "", term)) for term in terms)
    return [term for term in bare if term]


def choose_keywords(terms: Sequence[str], most: int) -> tuple[str, ...]:
    """The first `most` terms that are short enough, each once whatever its case."""
    first: dict[str, str] = {}
    for term in terms:
        if len(term) <= LONGEST_KEYWORD:
            first.setdefault(term.casefold(), term)
    return tuple(first.values())[:most]


def one_line(text: str) -> str:
    """A text without line breaks, surplus blanks and quotes around it."""
    return " ".join(text.split()).strip("\"'` ")


def keywords_schema(most: int) -> dict[str, Any]:
    """The JSON schema of the reply: `keywords`, at most `most` of them, and `caption`."""
    terms = {"type": "array", "items": {"type": "string"}, "maxItems": most}
    return {
        "type": "object",
        "properties": {"keywords": terms, "caption": {"type": "string"}},
        "required": ["keywords", "caption"],
        "additionalProperties": False,
    }
