"""What a judge is asked, and what its reply says (section 4, Appendix C).

Three kinds: `gallery` asks for five levels, which Mem-Gallery's own scorer collapses to 0, 0.5 and
1; `locomo` asks for any number from 0 to 1; `binary` asks whether the answer is correct.

A benchmark's own prompt is a file `llm_judge.txt`, the name that Mem-Gallery's repository gives it,
in the data folder. It holds `{{question}}`, `{{ground_truth}}` and `{{model_output}}`, each at
least once (single braces do too), and asks for JSON with a `score` and a `reasoning`. It is sent as
it is, and without a JSON schema, so that nothing is added to the benchmark's protocol.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any, Literal

from vmem.config import PromptSettings
from vmem.errors import DataError, ModelFormatError
from vmem.prompts import load_prompt

JudgeKind = Literal["gallery", "locomo", "binary"]
Source = Literal["ours", "prompts.dir", "benchmark"]
"""Whose wording a judge uses: ours, a user's, or the benchmark's own."""

LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0)
OWN_PROMPTS: Mapping[JudgeKind, tuple[str, ...]] = {
    # The second is where Mem-Gallery's repository keeps it, seen from its data folder.
    "gallery": ("llm_judge.txt", "../memengine/evaluate/llm_judge.txt"),
    "locomo": ("llm_judge.txt",),
    "binary": (),
}
"""Where a benchmark's own prompt may be, from its data folder."""

_PLACEHOLDERS = frozenset({"question", "reference", "answer"})
_TAG = re.compile(r"<(/?(?:question|reference|answer)>)", re.IGNORECASE)
_OWN_NAMES = {"question": "question", "ground_truth": "reference", "model_output": "answer"}
_OWN = re.compile(rf"\{{\{{({'|'.join(_OWN_NAMES)})\}}\}}|\{{({'|'.join(_OWN_NAMES)})\}}")
_DOUBLE = re.compile(r"\{\{(\w+)\}\}")

# As a quoted key, or first on its line: a score that is only talked about is none.
_NAMED = r"(?:[\"']score[\"']|^[^\w\n]*(?:final\s+)?score\b[^\w\n:=]*)\s*[:=]"
_NUMBER = _NAMED + r"[\"'*\s]*(-?\d+(?:\.\d+)?)[\"'*]*"
_LABELS = {"correct": 1.0, "wrong": 0.0, "incorrect": 0.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgePrompt:
    """The text with which one kind of judge is asked.

    Attributes:
        kind: What it asks for.
        source: Whose wording it is.
        text: The text with its placeholders.
    """

    kind: JudgeKind
    source: Source
    text: str

    @property
    def sha256(self) -> str:
        """SHA-256 of the text in hex, for a run's records."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def json_schema(self) -> dict[str, Any] | None:
        """The form that the reply is held to; None where the benchmark's own protocol has none."""
        return None if self.source == "benchmark" else _schema(self.kind)

    def fill(self, question: str, reference: str, answer: str) -> str:
        """The prompt about one answer."""
        values = {"question": question, "reference": reference, "answer": answer}
        if self.source == "benchmark":
            return _OWN.sub(lambda found: values[_OWN_NAMES[found[1] or found[2]]], self.text)
        fenced = {key: _TAG.sub(r"&lt;\1", value) for key, value in values.items()}
        return Template(self.text).substitute(fenced)


class JudgePrompts:
    """The judges' prompts of a run.

    A file of the same name in `prompts.dir` comes first, then the benchmark's own, then ours.

    Args:
        settings: `dir` names a folder whose files replace ours of the same name.
        data: The benchmark's data folder, where its own prompt is looked for; None is nowhere.
    """

    def __init__(self, settings: PromptSettings, data: Path | None = None) -> None:
        self._folder = settings.dir
        self._data = data

    def prompt(self, kind: JudgeKind) -> JudgePrompt:
        """The prompt of one kind of judge.

        Raises:
            ConfigError: A replaced prompt cannot be used.
            DataError: The benchmark's own prompt cannot be used.
        """
        name = f"judge_{kind}"
        replaced = self._folder is not None and (self._folder / f"{name}.txt").is_file()
        if not replaced and self._data is not None:
            for place in OWN_PROMPTS[kind]:
                if (path := self._data / place).is_file():
                    return JudgePrompt(kind=kind, source="benchmark", text=_read_own(path))
        source: Source = "prompts.dir" if replaced else "ours"
        text = load_prompt(name, self._folder, _PLACEHOLDERS)
        return JudgePrompt(kind=kind, source=source, text=text)


def parse_judgement(text: str, kind: JudgeKind, *, cut: bool = False) -> tuple[float, str]:
    """The level, between 0 and 1, and the reason out of a judge's reply.

    Read as, in turn: the JSON objects in it that hold the level, which must agree; a level in JSON
    that is broken, or in words of the form "score: 0.5"; of a binary judge a single bare label.

    Args:
        text: The reply.
        kind: What was asked for.
        cut: The reply ended at its limit of tokens, perhaps in the middle of a number.

    Raises:
        ModelFormatError: There is no level, several that differ, or one outside the scale.
    """
    key = "label" if kind == "binary" else "score"
    objects = _objects(text, key)
    if objects:
        found, reason = [each[key] for each in objects], objects[0].get("reasoning")
    else:
        found, reason = _in_words(text, kind, cut), text
    levels = {_level(value, kind) for value in found}
    level = levels.pop() if len(levels) == 1 else None
    if level is None:
        wrong = "more than one" if levels else "no usable"
        raise ModelFormatError(f"the judge's reply holds {wrong} {key}: {_shown(text)}")
    return level, " ".join(reason.split()) if isinstance(reason, str) else ""


def collapse(level: float, kind: JudgeKind) -> float:
    """The score that a benchmark makes of a level; Mem-Gallery's scorer knows 0, 0.5 and 1."""
    if kind != "gallery":
        return level
    return 0.0 if level < 0.25 else 0.5 if level < 0.75 else 1.0


def _schema(kind: JudgeKind) -> dict[str, Any]:
    score: dict[str, Any] = {"type": "number", "minimum": 0, "maximum": 1}
    if kind == "gallery":
        score = {"type": "number", "enum": [0, 0.25, 0.5, 0.75, 1]}
    said = {"label": {"type": "string", "enum": ["CORRECT", "WRONG"]}}
    level = said if kind == "binary" else {"score": score}
    # The level comes first, as the benchmarks ask for it: a reply that rambles on still has one.
    return {
        "type": "object",
        "properties": {**level, "reasoning": {"type": "string"}},
        "required": [*level, "reasoning"],
        "additionalProperties": False,
    }


def _read_own(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"judge prompt {path} cannot be read as UTF-8 text: {error}") from error
    found = {one or other for one, other in _OWN.findall(text)}
    if missing := [name for name in _OWN_NAMES if name not in found]:
        raise DataError(f"judge prompt {path} lacks the placeholder {{{{{missing[0]}}}}}")
    if unknown := [name for name in _DOUBLE.findall(text) if name not in _OWN_NAMES]:
        names = ", ".join(f"{{{{{name}}}}}" for name in _OWN_NAMES)
        raise DataError(
            f"judge prompt {path} has the unknown placeholder {{{{{unknown[0]}}}}}; use {names}"
        )
    return text


def _objects(text: str, key: str) -> list[dict[str, Any]]:
    """The JSON objects in a text that have the key, outermost first."""
    decoder, found, end = json.JSONDecoder(), [], 0
    for brace in re.finditer(r"\{", text):
        if brace.start() < end:
            continue
        try:
            value, stop = decoder.raw_decode(text, brace.start())
        except (json.JSONDecodeError, RecursionError):
            continue
        if isinstance(value, dict) and key in value:
            found.append(value)
            end = stop
    return found


def _in_words(text: str, kind: JudgeKind, cut: bool) -> list[str]:
    if kind == "binary":
        named = re.findall(r"\blabel\b[\"'*]*\s*[:=]\s*[\"'*]*([a-z]+)\b", text, re.IGNORECASE)
        bare = re.fullmatch(r"\W*([a-z]+)\W*", text, re.IGNORECASE)
        return named or ([bare[1]] if bare else [])
    end = r"(?=\s*[,;}\n])" if cut else r"(?=\.?\s*(?:[,;}\n]|$))"
    return re.findall(_NUMBER + end, text, re.IGNORECASE | re.MULTILINE)


def _level(value: object, kind: JudgeKind) -> float | None:
    """A level as a number between 0 and 1; None where it is none."""
    if kind == "binary":
        return _LABELS.get(value.strip().lower()) if isinstance(value, str) else None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        level = float(value)
    except (ValueError, OverflowError):
        return None
    return level if math.isfinite(level) and 0 <= level <= 1 else None


def _shown(text: str) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= 120 else f"{line[:117]}...")
