"""Corrected gold answers that a plan lays over a benchmark: read, and described for a manifest."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from jobs.evaluation.plan import BenchmarkPlan, part_of, read_whole
from vmem.datasets.corrections import read_overlay


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrections:
    """What a file of corrections changes in the questions that are asked.

    Attributes:
        references: The corrected gold answer by question id; of questions that are asked only.
        in_file: Corrections of the whole file.
        sha256: The file's digest.
    """

    references: Mapping[str, str]
    in_file: int
    sha256: str

    def described(self) -> dict[str, Any]:
        """As a manifest holds it; `count` is the number of `references`."""
        return {
            "count": len(self.references),
            "in_file": self.in_file,
            "references": dict(self.references),
            "sha256": self.sha256,
        }


def read_corrections(plan: BenchmarkPlan) -> Corrections | None:
    """The corrections that a plan names for a benchmark; None where it names none.

    Raises:
        DataError: The file cannot be used (see `read_overlay`).
        ConfigError, InputError: The benchmark cannot be read.
    """
    if plan.corrections is None:
        return None
    whole = read_whole(plan)
    gold = read_overlay(plan.corrections, whole)
    asked = [question.id for question in part_of(whole, plan).questions]
    return Corrections(
        references={
            id_: gold.corrections[id_].reference for id_ in asked if id_ in gold.corrections
        },
        in_file=len(gold.corrections),
        sha256=hashlib.sha256(plan.corrections.read_bytes()).hexdigest(),
    )


def describe_corrections(plans: Iterable[BenchmarkPlan]) -> dict[str, Any]:
    """By benchmark what its corrections change, for a manifest; errors as `read_corrections`."""
    found = {plan.name: read_corrections(plan) for plan in plans}
    return {name: each.described() for name, each in found.items() if each}
