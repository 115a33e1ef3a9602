"""What a reader must know first: which scores are invalid and why, and what was counted beside."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobs.report.merged_runs import MergedRuns
from jobs.report.score_entries import invalid_mark

WARNINGS = {
    "anchors_fell_back": "questions searched as they are, because an anchor failed",
    "contexts_truncated": "contexts cut to their budget or to the model's window",
    "query_images_missing": "attached pictures without a file",
    "without_reference": "questions without a reference",
    "images_without_pixels": "pictures of the memories not searched by their pixels",
    "truncated_texts": "texts of the memories cut to the encoder's length",
    "steps_failed": "steps of builds in which the model's reply was of no use",
    "steps_truncated": "steps of builds in which something was cut off",
    "steps_skipped": "steps of builds of which nothing is in the memory",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Validity:
    """What makes scores invalid, and what must be known to read them.

    Attributes:
        head: How many cells are invalid, as a sentence.
        sound: Whether there are cells and all of them are valid.
        invalid: Invalid cells with the reason, a line each.
        twice: Cells of later runs that are not shown, a line each.
        warned: What does not make a score invalid, a line for each cell.
    """

    head: str
    sound: bool
    invalid: tuple[str, ...]
    twice: tuple[str, ...]
    warned: tuple[str, ...]

    def as_markdown(self) -> str:
        """A heading, and what there is to say."""
        lines = ["# Tables", "", self.head, ""]
        lines += [f"- {line}" for line in (*self.invalid, *self.twice)]
        if self.warned:
            lines += ["", "To be known when reading them:", "", *(f"- {w}" for w in self.warned)]
        return "\n".join(lines).rstrip() + "\n"


def validity_of(merged: MergedRuns) -> Validity:
    """The validity of all cells."""
    invalid = [
        f"{'.'.join(name)}: {invalid_mark(cell['invalid'])}"
        for name, cell in merged.cells.items()
        if not cell["valid"]
    ]
    warned = [
        f"{'.'.join(name)}: {', '.join(said)}"
        for name, cell in merged.cells.items()
        if (said := _warnings(cell["warnings"]))
    ]
    count = len(merged.cells)
    head = (
        f"{len(invalid):,} of {count:,} cells are invalid." if invalid else "All cells are valid."
    )
    return Validity(
        head=head if count else "No cell was run.",
        sound=bool(count) and not invalid,
        invalid=tuple(invalid),
        twice=tuple(f"{name} is in an earlier run too; that one is shown" for name in merged.twice),
        warned=(*_lenient_judges(merged), *warned),
    )


def _lenient_judges(merged: MergedRuns) -> list[str]:
    """Judges that, surely, accept more than half of the answers that are wrong by construction."""
    return [
        f"judge {one['judge']} ({one['kind']}, {one['benchmark']}) accepted {rate['accepted']:,} of"
        f" {rate['judged']:,} {kind} answers that are wrong: its scores tell little"
        for honesty in merged.honesty
        for one in honesty["planted"]
        for kind in ("specific", "vague")
        if (rate := one[kind]) and rate["low"] > 0.5
    ]


def _warnings(warnings: Mapping[str, Any]) -> list[str]:
    return [f"{warnings[name]:,} {said}" for name, said in WARNINGS.items() if warnings.get(name)]
