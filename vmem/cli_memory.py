"""The commands on memories: build, append, search, ask, list, delete, export, import."""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import typer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from vmem.bank import Bank
from vmem.config import Settings, load_settings, replace
from vmem.datasets import read_benchmark
from vmem.datasets.jsonl import parse_round, read_rounds
from vmem.errors import DataError, InputError, StoreError
from vmem.export import export_memory, import_memory
from vmem.show import (
    answer_as_dict,
    errors,
    print_answer,
    print_counts,
    print_json,
    print_line,
    print_memories,
    print_retrieval,
    retrieval_as_dict,
)
from vmem.types import Dialogue, Image, Query, Round

SettingsName = Annotated[
    str, typer.Option("--settings", "-s", help="embedded, paper, tuned, or a YAML file.")
]
BankName = Annotated[str | None, typer.Option("--bank", help="The bank; else the settings' own.")]
Home = Annotated[Path | None, typer.Option("--home", help="Folder of the embedded store.")]
MemoryName = Annotated[str, typer.Argument(metavar="MEMORY", help="The memory's name.")]
Question = Annotated[str, typer.Argument(metavar="QUESTION", help="What to look for.")]
Picture = Annotated[Path | None, typer.Option("--image", help="A picture shown with it.")]
Target = Annotated[
    Literal["auto", "text", "image"] | None,
    typer.Option("--target", help="Force what is sought, for wordings that no rule knows."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    for command in (build, append, search, ask, memories, delete, export):
        app.command()(command)
    app.command("import")(import_)


def build(
    benchmark: Annotated[
        str | None, typer.Option("--benchmark", help="locomo, mem-gallery or photobench.")
    ] = None,
    data: Annotated[Path | None, typer.Option("--data", help="The benchmark's folder.")] = None,
    rounds: Annotated[
        Path | None, typer.Option("--rounds", help="Your own dialogues, as JSON Lines.")
    ] = None,
    address: Annotated[
        str | None, typer.Option("--address", help="A Ray cluster; else a local one.")
    ] = None,
    settings: SettingsName = "embedded",
    bank: BankName = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Build a bank of memories with Ray Data; run twice, nothing changes."""
    from jobs.build_memory import build_bank  # brings Ray, which other commands do without

    dialogues = _dialogues(benchmark, data, rounds)
    chosen = _settings(settings, bank or (benchmark or "").replace("-", "_") or None, home)
    if address:
        chosen = replace(chosen, build={"address": address})
    with Bank(chosen) as opened, build_progress() as progress:
        report = build_bank(opened, dialogues, progress)
    if as_json:
        print_json(report.as_dict())
    else:
        print_counts(f"bank {report.bank}", report.as_dict())


def append(
    memory: MemoryName,
    source: Annotated[
        str, typer.Argument(metavar="FILE", help="JSON Lines, or - for standard input.")
    ],
    settings: SettingsName = "embedded",
    bank: BankName = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Add rounds to a memory; the same round again is no change."""
    rounds = _read_rounds(source)
    with Bank(_settings(settings, bank, home)) as opened:
        appended = opened.append(memory, rounds)
    counts = {
        "memory": memory,
        "added": len(appended.added),
        "unchanged": appended.unchanged,
        "version": appended.version,
    }
    if as_json:
        print_json(counts)
    else:
        print_counts("appended", counts)


def search(
    memory: MemoryName,
    question: Question,
    image: Picture = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show route, anchors and ranks by signal.")
    ] = False,
    target: Target = None,
    llm: Annotated[
        bool, typer.Option("--llm/--no-llm", help="Let the backbone write anchors.")
    ] = False,
    settings: SettingsName = "embedded",
    bank: BankName = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Find rounds, without answering."""
    chosen = _settings(settings, bank, home, target)
    if not llm:
        chosen = replace(chosen, llm={"provider": "none"})
    with Bank(chosen) as opened:
        found = asyncio.run(_closing(opened, opened.search(memory, _query(question, image))))
        rounds = opened.rounds(memory)
    if as_json:
        print_json(retrieval_as_dict(found, rounds))
    else:
        print_retrieval(found, rounds, explain=explain)


def ask(
    memory: MemoryName,
    question: Question,
    image: Picture = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show route, anchors and ranks by signal.")
    ] = False,
    target: Target = None,
    settings: SettingsName = "embedded",
    bank: BankName = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Answer a question from a memory."""
    with Bank(_settings(settings, bank, home, target)) as opened:
        answer = asyncio.run(_closing(opened, opened.ask(memory, _query(question, image))))
        rounds = opened.rounds(memory)
    if as_json:
        print_json(answer_as_dict(answer, rounds))
    else:
        print_answer(answer, rounds, explain=explain)


def memories(
    settings: SettingsName = "embedded",
    bank: BankName = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """List banks and their memories, with counts and encoders."""
    with Bank(_settings(settings, bank, home)) as opened:
        banks = {record.name: record for record in opened.catalogue.banks()}
        if bank is not None and bank not in banks:
            raise StoreError(f"there is no bank {bank}; known: {', '.join(banks) or 'none'}")
        shown = banks if bank is None else [bank]
        listed = [(banks[name], opened.catalogue.memories(name)) for name in shown]
    print_memories(listed, as_json=as_json)


def delete(
    memory: MemoryName,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    settings: SettingsName = "embedded",
    bank: BankName = None,
    home: Home = None,
) -> None:
    """Erase a memory: its rounds, vectors and pictures."""
    with Bank(_settings(settings, bank, home)) as opened:
        count = len(opened.rounds(memory))
        if not yes:
            typer.confirm(f"Erase memory {memory} with its {count} rounds?", abort=True)
        opened.delete(memory)
    print_line(f"Memory {memory} and its {count} rounds are erased.")


def export(
    memory: MemoryName,
    out: Annotated[Path, typer.Option("--out", help="A folder; it gets rounds.jsonl and images/.")],
    settings: SettingsName = "embedded",
    bank: BankName = None,
    home: Home = None,
) -> None:
    """Write a memory to a folder that `vmem import` reads."""
    with Bank(_settings(settings, bank, home)) as opened:
        count = export_memory(opened, memory, out)
    print_line(f"{count} rounds of {memory} are in {out}.")


def import_(
    memory: MemoryName,
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A folder that `vmem export` wrote.")
    ],
    settings: SettingsName = "embedded",
    bank: BankName = None,
    home: Home = None,
) -> None:
    """Read a memory from a folder; rounds that are there already are no change."""
    with Bank(_settings(settings, bank, home)) as opened:
        appended = import_memory(opened, memory, folder)
    print_line(f"{len(appended.added)} rounds added to {memory}, {appended.unchanged} were there.")


def _dialogues(
    benchmark: str | None, data: Path | None, rounds: Path | None
) -> tuple[Dialogue, ...]:
    if rounds and not benchmark:
        return read_rounds(rounds)
    if benchmark and data and not rounds:
        return read_benchmark(benchmark, data).dialogues
    raise InputError("give either --benchmark with --data, or --rounds")


def _settings(
    name: str, bank: str | None, home: Path | None, target: str | None = None
) -> Settings:
    chosen = load_settings(name)
    store = {key: value for key, value in (("bank", bank), ("home", home)) if value}
    chosen = replace(chosen, store=store) if store else chosen
    return replace(chosen, retrieval={"target": target}) if target else chosen


def _query(question: str, image: Path | None) -> Query:
    picture = Image(id=image.name, uri=str(image)) if image else None
    return Query(text=question, image=picture)


def _read_rounds(source: str) -> list[Round]:
    """The rounds of one dialogue.

    Raises:
        DataError: A line is no round, or a round id is used twice.
        InputError: There are several dialogues, whose rounds must not mix.
    """
    if source == "-":
        dialogues = _read_stdin()
    else:
        dialogues = {d.id: list(d.rounds) for d in read_rounds(Path(source))}
    if len(dialogues) > 1:
        raise InputError(
            f"{'standard input' if source == '-' else source} holds {len(dialogues)} dialogues,"
            f" {' and '.join(list(dialogues)[:2])} among them: append each to a memory of its own,"
            " or build them all with `vmem build --rounds`"
        )
    return next(iter(dialogues.values()))


def _read_stdin() -> dict[str, list[Round]]:
    try:
        text = sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError("standard input is not UTF-8 text; send it as UTF-8") from error
    dialogues: dict[str, dict[str, Round]] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            where = f"standard input line {number}"
            name, round_ = parse_round(line, where)
            held = dialogues.setdefault(name or "one without a name", {})
            if round_.id in held:
                raise DataError(f"{where}: round id {round_.id!r} is used twice; give each its own")
            held[round_.id] = round_
    if not dialogues:
        raise DataError("standard input holds no round")
    return {name: list(held.values()) for name, held in dialogues.items()}


T = TypeVar("T")


async def _closing(bank: Bank, work: Coroutine[object, object, T]) -> T:
    """Run one piece of work, then stop the backbone."""
    try:
        return await work
    finally:
        await bank.close_chat()


@contextmanager
def build_progress() -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar a stage, on standard error."""
    columns = (
        TextColumn("{task.description:<14}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=errors) as progress:
        tasks: dict[str, TaskID] = {}

        def advance(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = progress.add_task(stage, total=total)
            progress.update(tasks[stage], completed=done, total=total)

        yield advance
