"""What builds take where a model's replies are of a usual length: its calls and tokens, no model.

A small model's replies say little of what a good one's would cost. Here one dialogue of each
benchmark is built with a script in the model's place, whose replies have the form asked for and the
length that models' replies have; a token is four characters. It writes a run that `vmem eval cost`
reads and projects to whole benchmarks, beside the paper's figures:

    python -m jobs.scripted_costs --data locomo=FOLDER --data mem-gallery=FOLDER --out runs/costs
    vmem eval cost runs/costs

What a message brings about is assumed: half of the messages make a statement; a new note is
compared with five others and rewrites them all; and M2A records every message, by a search and two
memories.
"""

import asyncio
import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from jobs.evaluation.plan import Plan, read_planned
from jobs.evaluation.records import Build, Cell, ModelCost
from jobs.evaluation.run_folder import RunFolder, write_json
from vmem.config import Settings, replace
from vmem.datasets import named_folders
from vmem.encoders.fake import FakeImageEncoder, FakeTextEncoder
from vmem.images import read_image
from vmem.llm.fake import FakeChat
from vmem.pipeline import Parts
from vmem.ports import ChatReply, ChatRequest
from vmem.prompts import Prompts
from vmem.show import print_line
from vmem.systems.registry import make_system
from vmem.systems.rows import row_named, row_settings
from vmem.types import Dialogue, Usage

SYSTEMS = ("omni", "omni-released", "a-mem", "m2a")
DIALOGUES = {"locomo": "conv-26", "mem-gallery": "Python_Botany_AI_Student_Life"}
SENTENCE = (
    "A sentence that says in about twenty five words what the text is about, naming the people and"
    " the things in it as they are."
)
TAGS = ["daily life", "friends", "plans"]
BACKBONE = "scripted"
SETTINGS = replace(
    Settings(),
    encoders={"text": {"kind": "fake"}, "image": {"kind": "fake"}},
    llm={"provider": "fake"},
)


class Scripted(FakeChat):
    """Replies of usual length; a token is four characters."""

    def __init__(self) -> None:
        super().__init__(reply, name=BACKBONE)

    async def complete(self, request: ChatRequest) -> ChatReply:
        """The script's reply, its tokens and those of the prompt."""
        text = reply(request)
        usage = Usage(
            role=request.role,
            prompt_tokens=self.count_tokens(request.prompt),
            completion_tokens=self.count_tokens(text),
        )
        return ChatReply(text=text, usage=usage)

    def count_tokens(self, text: str) -> int:
        """Four characters each."""
        return len(text) // 4 + 1


def reply(request: ChatRequest) -> str:
    """What a model would say, by its role."""
    prompt = request.prompt
    if request.role == "extract":
        said = [line for line in _told(prompt, "messages").split("\n") if line.startswith("[")]
        return json.dumps({"statements": [f"On 8 May 2023, {line[18:]}" for line in said[::2]]})
    if request.role == "entities":
        entity = {"name": "some thing", "type": "PERSON", "confidence": 0.9}
        tie = {"subject": "some thing", "predicate": "owns", "object": "other", "confidence": 0.8}
        return json.dumps({"entities": [entity] * 6, "relations": [tie] * 3})
    if request.role == "amem_note":
        words = ["adoption agency", "support group", "pride", "painting", "summer", "family"]
        return json.dumps({"keywords": words, "context": SENTENCE, "tags": [*TAGS, "health"]})
    if request.role == "amem_evolve":
        shown = [int(n) for n in re.findall(r"^\[(\d+)\]", _told(prompt, "earlier_notes"), re.M)]
        rewrites = [{"note": number, "context": SENTENCE, "tags": TAGS} for number in shown]
        return json.dumps(
            {"decision": "both", "links": shown[:2], "tags": TAGS, "rewrites": rewrites}
        )
    if request.role in {"m2a_take_in", "m2a_memory"}:
        return json.dumps(_call(request))
    return SENTENCE


def _call(request: ChatRequest) -> dict[str, Any]:
    """What an agent of M2A's does: record each message, by a search and two memories."""
    about = f"{SENTENCE} {hashlib.sha256(request.prompt.encode()).hexdigest()[:8]}"
    if request.role == "m2a_take_in":
        is_new = _told(request.prompt, "messages").split("\n")[-1].startswith("#")
        return {"tool": "update_memory", "text": about} if is_new else {"tool": "done"}
    done = _told(request.prompt, "done")
    if done.count("is added.") >= 2:
        return {"tool": "done"}
    if "You called" not in done:
        return {"tool": "search", "text": "what was said of it before"}
    return {"tool": "add", "text": about, "messages": [[1, 2]]}


def _told(prompt: str, tag: str) -> str:
    """What stands between two tags of a prompt, the last such pair."""
    return prompt.rpartition(f"<{tag}>")[2].partition(f"</{tag}>")[0].strip()


def built(system: str, dialogue: Dialogue) -> Build:
    """One system's build of one dialogue, as a run keeps it; it takes no seconds of a model."""
    chat, row = Scripted(), row_named(system)
    parts = Parts(
        text_encoder=FakeTextEncoder(),
        image_encoder=FakeImageEncoder(),
        chat=chat,
        prompts=Prompts(SETTINGS.prompts),
        read_image=read_image,
    )
    memory = asyncio.run(make_system(row, row_settings(row, SETTINGS), parts).build(dialogue))
    by_role: dict[str, list[Usage]] = defaultdict(list)
    for usage in memory.cost.usage:
        by_role[usage.role].append(usage)
    costs = {
        role: ModelCost(
            calls=sum(usage.calls for usage in usages),
            failed=0,
            prompt_tokens=sum(usage.prompt_tokens for usage in usages),
            completion_tokens=sum(usage.completion_tokens for usage in usages),
            seconds=0.0,
        )
        for role, usages in by_role.items()
    }
    return Build(dialogue_id=dialogue.id, counts=memory.cost.counts, cost=costs, seconds={})


def main(
    data: Annotated[list[str], typer.Option("--data", help="NAME=FOLDER, once a benchmark.")],
    out: Annotated[Path, typer.Option("--out", help="The run's folder, a new one.")],
    system: Annotated[list[str], typer.Option("--system")] = list(SYSTEMS),  # noqa: B006
) -> None:
    """Build a dialogue of each benchmark by script and write what it took."""
    write_run(named_folders(data), RunFolder(out), system, DIALOGUES)


def write_run(
    folders: Mapping[str, Path], run: RunFolder, systems: Sequence[str], only: Mapping[str, str]
) -> None:
    """Build with every system and keep what it took.

    Args:
        folders: Benchmarks.
        run: Where it goes.
        systems: Rows of `configs/systems/`.
        only: By benchmark, the one dialogue that is built; all of the others.
    """
    benchmarks = [
        {"name": name, "data": folder, "dialogues": [only[name]] if name in only else []}
        for name, folder in folders.items()
    ]
    backbone = {"name": BACKBONE, "llm": {"provider": "fake"}}
    plan = Plan.model_validate(
        {"name": "costs", "benchmarks": benchmarks, "systems": systems, "backbones": [backbone]}
    )
    write_json(run.path / "manifest.json", {"plan": plan.dump()})
    for benchmark in plan.benchmarks:
        dialogues = read_planned(benchmark).dialogues
        for system in systems:
            file = run.builds(Cell(benchmark=benchmark.name, system=system, backbone=BACKBONE))
            for dialogue in dialogues:
                file.append(built(system, dialogue))
            file.finish([dialogue.id for dialogue in dialogues])
            print_line(f"{benchmark.name} {system}: {len(dialogues)} built")


if __name__ == "__main__":
    typer.run(main)
