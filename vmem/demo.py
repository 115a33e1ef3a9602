"""The main job on the sample conversation: build its memory with Ray, ask one question a case."""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from rich.rule import Rule
from rich.text import Text

from jobs.build_memory import build_bank
from vmem.bank import Bank
from vmem.cli_memory import build_progress
from vmem.config import Settings, load_settings, replace
from vmem.datasets.sample import SampleQuestion, read_questions, read_sample
from vmem.errors import VmemError
from vmem.show import console, errors, print_answer, print_counts

CONTEXT_TOKENS = 700
"""The embedded model has 135 million parameters: a longer context only slows it down."""


def main() -> None:
    """Run the demonstration in a folder that is removed afterwards."""
    start = time.perf_counter()
    try:
        with tempfile.TemporaryDirectory(prefix="vmem-demo-") as home:
            _demonstrate(_settings(Path(home)))
    except VmemError as error:
        errors.print(Text(f"error {type(error).__name__}: {error}", style="bold red"))
        sys.exit(1)
    console.print(Rule(f"done in {time.perf_counter() - start:.0f} s"))
    console.print(
        "The answers come from SmolLM2, a model of 135 million parameters: look at what was"
        " retrieved, and set llm.base_url to a model that reads well.\n"
        "Next: [bold].venv/bin/vmem --help[/]"
    )


def _settings(home: Path) -> Settings:
    settings = load_settings("embedded")
    return replace(
        settings,
        store={"home": home, "bank": "demo"},
        answer={"context_tokens": CONTEXT_TOKENS, "max_tokens": 64},
    )


def _demonstrate(settings: Settings) -> None:
    sample = read_sample()
    with Bank(settings) as bank:
        console.print(Rule("building the memory of the sample conversation"))
        with build_progress() as progress:
            report = build_bank(bank, sample.dialogues, progress)
        print_counts("built", report.as_dict())
        asyncio.run(_ask_all(bank, sample.dialogues[0].id))


async def _ask_all(bank: Bank, memory_id: str) -> None:
    rounds = bank.rounds(memory_id)
    try:
        for question in read_questions():
            if question.demo:
                console.print(Rule(f"{question.case.value}"))
                console.print(_asked(question))
                answer = await bank.ask(memory_id, question.query)
                print_answer(answer, rounds, explain=True, most=5)
                console.print(Text(f"the conversation says: {question.answer}", style="dim"))
    finally:
        await bank.close_chat()


def _asked(question: SampleQuestion) -> Text:
    shown = f"  (with {question.image})" if question.image else ""
    return Text.assemble(("? ", "bold"), (question.question, "bold"), shown)


if __name__ == "__main__":
    main()
