"""`vmem cluster`: size a cluster, and check what is to run on it."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml
from rich.table import Table
from rich.text import Text

from vmem.errors import ConfigError, InputError
from vmem.show import console, errors, print_json, print_line

if TYPE_CHECKING:
    from vmem.cluster.sizing import Sizing

cluster_app = typer.Typer(help="Size and check a Kubernetes cluster.", no_args_is_help=True)


@cluster_app.callback()
def _commands() -> None:
    """Size and check a Kubernetes cluster."""


@cluster_app.command("plan")
def plan(
    config: Annotated[
        str,
        typer.Option(
            "--config", "-c", help="A name in configs/serve, settings, or an overlay's serve.yaml."
        ),
    ],
    memories: Annotated[int, typer.Option(min=1, help="Memories.")] = 1_000,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each.")] = 500,
    units: Annotated[float, typer.Option(min=0, help="Text units of a round.")] = 2.0,
    pictures: Annotated[float, typer.Option(min=0, help="Pictures of a round.")] = 0.1,
    hot_share: Annotated[
        float, typer.Option(min=0, max=1, help="Memories asked often, of all.")
    ] = 1.0,
    answers_per_s: Annotated[float, typer.Option(min=0, help="Answers at the busiest.")] = 1.0,
    context_tokens: Annotated[int, typer.Option(min=1, help="Of a usual prompt.")] = 8_000,
    answer_tokens: Annotated[int, typer.Option(min=1, help="Of a usual answer.")] = 256,
    gpu_tokens_per_s: Annotated[
        float | None,
        typer.Option(
            min=1, help="Tokens that one replica of the backbone writes, as you measured."
        ),
    ] = None,
    gpu_gb: Annotated[float, typer.Option(min=1, help="Memory of a GPU.")] = 80.0,
    gpus_per_node: Annotated[int, typer.Option(min=1, help="GPUs of a node.")] = 8,
    model_config: Annotated[
        Path | None, typer.Option(help="config.json of a backbone not known here.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """GPUs, memory and disk, with the arithmetic; exit status 1 where something does not fit."""
    from serve.settings import load_serve_settings  # Ray Serve takes seconds to import
    from vmem.cluster.plan import plan_cluster
    from vmem.cluster.shapes import read_shape
    from vmem.cluster.sizing import Load

    load = Load(
        memories=memories,
        rounds=rounds,
        units=units,
        pictures=pictures,
        hot_share=hot_share,
        answers_per_s=answers_per_s,
        context_tokens=context_tokens,
        answer_tokens=answer_tokens,
        gpu_tokens_per_s=gpu_tokens_per_s,
        gpu_gb=gpu_gb,
        gpus_per_node=gpus_per_node,
    )
    shape = read_shape(model_config) if model_config else None
    sizing = plan_cluster(load_serve_settings(_settings_in(config)), load, shape)
    if as_json:
        print_json(asdict(sizing))
    else:
        _print_plan(sizing)
    if sizing.warnings:
        raise typer.Exit(1)


@cluster_app.command("check")
def check(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE", help="Rendered objects or Serve configs; - is standard input."
        ),
    ],
) -> None:
    """Refuse what Ray would drop in silence or KubeRay would not start."""
    from vmem.cluster.rules import operator_faults
    from vmem.cluster.serve_config import read_serve_config

    faults, seen = [], 0
    for name in files:
        text = _text(name)
        for obj in _objects(text, name):
            seen += 1
            if "applications" in obj:
                read_serve_config(text, name)
                continue
            faults += operator_faults(obj)
            if config := obj.get("spec", {}).get("serveConfigV2"):
                where = f"serveConfigV2 of RayService {obj['metadata']['name']}"
                read_serve_config(config, where)
    for fault in faults:
        errors.print(fault, style="red", markup=False)
    if faults:
        raise typer.Exit(1)
    print_line(f"{seen} objects, nothing to mend")


def _print_plan(sizing: "Sizing") -> None:
    table = Table("", "arithmetic", "result", "from", box=None, pad_edge=False)
    for section, lines in sizing.lines.items():
        table.add_row(Text(section, style="bold"))
        for line in lines:
            table.add_row(*(Text(part) for part in asdict(line).values()))
    console.print(table)
    print_line(f"GPUs in all: {sizing.gpus}")
    for warning in sizing.warnings:
        errors.print(Text(f"does not fit: {warning}", style="yellow"), soft_wrap=True)


def _settings_in(config: str) -> str | dict[str, Any]:
    """The settings that a Serve config gives its one application, or the name as it is."""
    path = Path(config)
    if path.suffix not in {".yaml", ".yml"} or not path.is_file():
        return config
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(values, dict) or "applications" not in values:
        return config
    from vmem.cluster.serve_config import read_serve_config

    read_serve_config(path.read_text(encoding="utf-8"), config)
    args: dict[str, Any] = values["applications"][0].get("args", {})
    return args["config"] if set(args) == {"config"} else args


def _text(name: str) -> str:
    if name == "-":
        return sys.stdin.read()
    try:
        return Path(name).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror}") from error


def _objects(text: str, name: str) -> list[dict[str, Any]]:
    try:
        found = [obj for obj in yaml.safe_load_all(text) if obj is not None]
    except yaml.YAMLError as error:
        raise ConfigError(f"{name} cannot be read as YAML: {error}") from error
    for obj in found:
        if not isinstance(obj, dict) or not ({"kind", "applications"} & obj.keys()):
            raise ConfigError(f"{name} holds neither objects of Kubernetes nor a Serve config")
    return found
