"""`vmem eval cost`: what building memories of whole benchmarks would take."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from vmem.cli_data import AsJson
from vmem.cli_runs import Data, existing_run
from vmem.datasets import named_folders
from vmem.show import console, print_json, print_line

if TYPE_CHECKING:
    from jobs.backbone_speeds import Speed
    from jobs.projected_costs import ProjectedBuild

T = TypeVar("T", bound=Hashable)
COLUMNS = ("build", "messages", "calls", "tokens", "paper", "ratio")


def cost(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run, of a few dialogues perhaps.")],
    data: Data = None,
    speed: Annotated[
        list[str] | None,
        typer.Option("--speed", help="NAME=PROMPT,COMPLETION tokens a second; may be repeated."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Project a run's builds by a language model to whole benchmarks, beside the paper's figures.

    Hours are those of the calls, one after another: as measured with the backbone that was asked,
    and by the speed of others.
    """
    # Ray takes seconds to import: only who looks at runs waits for it.
    from jobs.backbone_speeds import load_speeds, speeds_given
    from jobs.evaluation.run_folder import RunFolder
    from jobs.projected_costs import project_builds

    speeds = load_speeds() | speeds_given(speed or [])
    found = project_builds(RunFolder(existing_run(run)), named_folders(data or []))
    if as_json:
        print_json([_as_dict(each, speeds) for each in found])
        return
    table = Table(*COLUMNS, box=SIMPLE_HEAD)
    for each in found:
        table.add_row(*_cells(each))
    console.print(table)
    print_line("Ratios are of tokens: ours by the paper's.")
    console.print(_by_backbone(found, speeds))
    print_line("Hours of one call after another; USD by configs/prices.yaml. Speeds:")
    for source, names in _alike({name: one.source for name, one in speeds.items()}).items():
        print_line(f"{', '.join(names)}: {source}")
    if failed := sum(each.failed_steps for each in found):
        print_line(f"{failed:,} steps of these builds failed: what they would cost is unknown.")


def _cells(each: "ProjectedBuild") -> list[str]:
    said = [f"T{p.table} {_short(p.tokens)}, {p.hours:.1f} h" for p in each.published]
    ratios = [f"{each.tokens / p.tokens:.2f}" for p in each.published]
    return [
        f"{each.benchmark}\n{each.system}",
        f"{each.messages:,}\nof {each.whole:,}",
        f"{each.calls:,}",
        f"{_short(each.tokens)}\n{_short(each.completion_tokens)} written",
        "\n".join(said) or "–",
        "\n".join(ratios) or "–",
    ]


def _by_backbone(found: Sequence["ProjectedBuild"], speeds: Mapping[str, "Speed"]) -> Table:
    """Hours and money with the backbone that was asked, and with those of known speed or price."""
    names = dict.fromkeys([*speeds, *(name for each in found for name in each.usd())])
    cells = {name: tuple(_at(each, name, speeds) for each in found) for name in names}
    groups = _alike(cells)
    asked = [_measured(each) for each in found]
    table = Table("build", "as measured", *map("\n".join, groups.values()), box=SIMPLE_HEAD)
    for each, measured, *others in zip(found, asked, *groups, strict=True):
        table.add_row(f"{each.benchmark}\n{each.system}", measured, *others)
    return table


def _at(each: "ProjectedBuild", name: str, speeds: Mapping[str, "Speed"]) -> str:
    hours = f"{each.hours_at(speeds[name]):.1f} h" if name in speeds else ""
    usd = each.usd()
    return "\n".join(filter(None, (hours, f"{usd[name]:,.2f} USD" if name in usd else "")))


def _measured(each: "ProjectedBuild") -> str:
    if not each.hours:
        return "–"
    pace = f"{each.seconds_a_call:.1f} s a call\n{each.tokens_a_second:,.0f} tokens/s"
    return f"{each.backbone}\n{each.hours:,.1f} h\n{pace}"


def _alike(values: Mapping[str, T]) -> dict[T, list[str]]:
    """Names by value, each value once."""
    names: dict[T, list[str]] = {}
    for name, value in values.items():
        names.setdefault(value, []).append(name)
    return names


def _short(tokens: int) -> str:
    return f"{tokens / 1e6:,.2f}M"


def _as_dict(each: "ProjectedBuild", speeds: Mapping[str, "Speed"]) -> dict[str, Any]:
    projected = {
        "calls": each.calls,
        "prompt_tokens": each.prompt_tokens,
        "completion_tokens": each.completion_tokens,
        "tokens": each.tokens,
        "hours": each.hours,
        "hours_by_speed": {name: each.hours_at(speed) for name, speed in speeds.items()},
        "usd": each.usd(),
    }
    return {**asdict(each), "projected": projected}
