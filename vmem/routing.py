"""Query to route: keyword rules on the query alone, no model (section 3.3, Appendix B).

Every rule is total on any text. The narrow rule is the paper's: a query asks for an image when it
asks which image, photo or picture, or how many of them. The wide rule also takes requests to find
or show images, and questions for an image's id.
"""

import re

from vmem.config import RetrievalSettings
from vmem.types import Case, Modality, Query, Route

_IMAGE = r"(?:images?|photos?|pictures?)"
_WORD = r"[\w'’-]+"

# Between the question word and the noun at most four words, none of which starts a phrase of its
# own: "which of the three photos" asks for photos, "which animal is in the picture" does not.
_LINKS = (
    "of|in|on|at|to|from|with|about|for|by|into|onto|over|under|between|during|through|as|after"
    "|before|without|near|inside|behind|is|are|was|were|be|been|am|do|does|did|has|have|had|can"
    "|could|will|would|shall|should|may|might|must|the|this|that"
)
_NARROW = re.compile(
    rf"\b(?P<ask>which|how\s+many)(?:\s+of)?(?:\s+(?:the|these|those|my|all))*"
    rf"(?:\s+(?!(?:{_LINKS})\b){_WORD}){{0,4}}?\s+{_IMAGE}\b",
    re.IGNORECASE,
)
_REQUEST = re.compile(
    rf"\b(?:find|search|show|retrieve|return|send|bring\s+up|look\s+up|pull\s+up)\b"
    rf"(?:\W+{_WORD}){{0,6}}?\W+{_IMAGE}\b",
    re.IGNORECASE,
)
_IMAGE_ID = re.compile(
    rf"\b(?:{_IMAGE}[\s_-]*ids?|ids?\s+of\s+(?:the\s+)?{_IMAGE})\b", re.IGNORECASE
)

_CONFLICT = re.compile(r"\b(?:conflict|contradict|inconsisten|at\s+odds\b)", re.IGNORECASE)

# Counting cues, enumeration cues, and "what <plural> has/have/does ..." (a set of items).
_AGGREGATION = re.compile(
    r"\bhow\s+many\b"
    r"|^\W*list\b|\blist\s+(?:of|all|every|the)\b|\bin\s+(?:what|which)\s+ways\b"
    r"|\b(?:what|which)\s+(?:\w+\s+){0,2}?(?!(?:is|was|has|does|his|its|this|yes|us)\b)\w{2,}s"
    r"\s+(?:has|have|had|does|do|did)\b",
    re.IGNORECASE,
)


def route_query(query: Query, settings: RetrievalSettings) -> Route:
    """Recognise the case of a query and the gates that its wording opens.

    Args:
        query: The query; its modality is whether a picture is attached.
        settings: `routing` picks the rule, `target` may force the target.
    """
    target, reason = _target(query.text, settings)
    return Route(
        case=_case(query.modality, target),
        counts_images=_counts_images(query.text),
        aggregates=bool(_AGGREGATION.search(query.text)),
        asks_conflict=bool(_CONFLICT.search(query.text)),
        reason=f"{'a picture' if query.image else 'no picture'} is attached; {reason}",
    )


def _target(text: str, settings: RetrievalSettings) -> tuple[Modality, str]:
    if settings.target != "auto":
        return Modality(settings.target), f"the request forces the target {settings.target}"
    if match := _NARROW.search(text):
        return Modality.IMAGE, f"{_quoted(match)} asks for an image"
    if settings.routing == "wide" and (match := _REQUEST.search(text) or _IMAGE_ID.search(text)):
        return Modality.IMAGE, f"{_quoted(match)} requests an image"
    return Modality.TEXT, "nothing in the wording asks for an image"


def _quoted(match: re.Match[str]) -> str:
    return f"“{' '.join(match.group(0).split())}”"


def _counts_images(text: str) -> bool:
    return any(match["ask"].lower() != "which" for match in _NARROW.finditer(text))


def _case(query: Modality, target: Modality) -> Case:
    if query is Modality.TEXT:
        return Case.TEXT_TO_TEXT if target is Modality.TEXT else Case.TEXT_TO_IMAGE
    return Case.IMAGE_TEXT_TO_TEXT if target is Modality.TEXT else Case.IMAGE_TEXT_TO_IMAGE
