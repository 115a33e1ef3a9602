"""Means with two intervals: single questions resampled, as in Appendix I, and whole dialogues."""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from jobs.evaluation.records import Record
from vmem.metrics.significance import RESAMPLES, cluster_bootstrap_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Resampling:
    """How a run's intervals and tests are drawn.

    Attributes:
        seed: The run's seed.
        draws: Resamples, and sign flips, of each figure.
    """

    seed: int
    draws: int = RESAMPLES

    def rng(self, key: str) -> np.random.Generator:
        """A source of its own for each figure: one figure more changes none of the others."""
        return np.random.default_rng([self.seed, zlib.crc32(key.encode())])


def mean_of(
    values: Mapping[str, float], dialogue_of: Mapping[str, str], key: str, draw: Resampling
) -> dict[str, Any]:
    """A mean with 95% intervals by question and by dialogue, as `statistics.json` holds it.

    Args:
        values: A score by question.
        dialogue_of: The dialogue of each question.
        key: The figure's name, for its source of randomness.
        draw: Seed and number of resamples.

    Returns:
        `mean`, `questions`, `by_question` and `by_dialogue`, each `[low, high]`; None where there
        is no value, and `by_dialogue` also where all questions are about one dialogue.
    """
    found: dict[str, Any] = plain_mean(values) | {"by_question": None, "by_dialogue": None}
    if values:
        ids = sorted(values)
        found["by_question"] = _by_question([values[id_] for id_ in ids], draw.rng(key), draw.draws)
        dialogues = [dialogue_of[id_] for id_ in ids]
        if len(set(dialogues)) > 1:
            rng = draw.rng(f"{key}|dialogues")
            scores = [values[id_] for id_ in ids]
            interval = cluster_bootstrap_mean(scores, dialogues, rng, draw.draws)
            found["by_dialogue"] = [interval.low, interval.high]
    return found


def plain_mean(values: Mapping[str, float]) -> dict[str, Any]:
    """A mean and what it is over; None over nothing."""
    scores = [values[id_] for id_ in sorted(values)]
    return {"mean": float(np.mean(scores)) if scores else None, "questions": len(scores)}


def groups_of(
    values: Mapping[str, float],
    records: Mapping[str, Record],
    key: str,
    draw: Resampling,
    *,
    sure: bool = True,
) -> dict[str, Any]:
    """A score overall, by category, by case, by both, and by dialogue.

    Args:
        values: The score by question.
        records: Every question's record; questions without the score are in no mean.
        key: The figure's name.
        draw: Seed and number of resamples.
        sure: Whether all groups have intervals, and not the overall score alone.
    """
    dialogue_of = {id_: records[id_].dialogue_id for id_ in values}

    def parted(by: Callable[[Record], str]) -> dict[str, dict[str, float]]:
        parts: dict[str, dict[str, float]] = {}
        for id_, value in values.items():
            parts.setdefault(by(records[id_]), {})[id_] = value
        return dict(sorted(parts.items()))

    def mean(what: str, name: str, part: Mapping[str, float]) -> dict[str, Any]:
        named = f"{key}|{name}" if what == "category" else f"{key}|{what}|{name}"
        found = mean_of(part, dialogue_of, named, draw) if sure else plain_mean(part)
        return found | lacking(part, records)

    return {
        "overall": mean_of(values, dialogue_of, key, draw) | lacking(values, records),
        **{
            what: {name: mean(what, name, part) for name, part in parted(by).items()}
            for what, by in {
                "category": lambda record: record.category,
                "case": case_of,
                "case_and_category": lambda record: f"{case_of(record)}|{record.category}",
                "dialogue": lambda record: record.dialogue_id,
            }.items()
        },
    }


def case_of(record: Record) -> str:
    """The routed case by name."""
    return record.case or "unrouted"


def lacking(ids: Mapping[str, object], records: Mapping[str, Record]) -> dict[str, Any]:
    """How many of the questions were searched without a picture or a model that they call for.

    A question lacks a picture where the attached one has no file, and a model where its notes say
    that a caption or keywords were not generated for want of one.
    """
    lacks: dict[str, int] = {}
    for id_ in ids:
        record = records[id_]
        no_model = any("no language model" in n or "cannot see" in n for n in record.notes)
        if record.image is not None and record.image_uri is None:
            lacks["picture"] = lacks.get("picture", 0) + 1
        if no_model:
            lacks["model"] = lacks.get("model", 0) + 1
    return {"lacks": lacks} if lacks else {}


def _by_question(scores: list[float], rng: np.random.Generator, draws: int) -> list[float]:
    """The percentile bootstrap over questions, as counts of the distinct scores that are drawn.

    Questions with one score are exchangeable, so the counts of a resample are multinomial: the
    same distribution as drawing questions, many times faster for scores of few levels.
    """
    level_K, count_K = np.unique(np.asarray(scores, dtype=np.float64), return_counts=True)
    drawn_SK = rng.multinomial(len(scores), count_K / len(scores), draws)
    low, high = np.percentile(drawn_SK @ level_K / len(scores), [2.5, 97.5])
    return [float(low), float(high)]
