"""What a run was made of, for readers: its manifest as a few plain tables."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jobs.evaluation.manifest import FILE, read_manifest
from jobs.evaluation.run_folder import RunFolder
from jobs.report.captions import WORDING
from vmem.systems.rows import read_rows

UNKNOWN = "not recorded"
Row = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainTable:
    """A table of texts.

    Attributes:
        title: What it shows.
        head: Names of its columns.
        rows: Its rows.
    """

    title: str
    head: Row
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RanRun:
    """A run as readers are told of it.

    Attributes:
        name: Its plan's name.
        facts: Names and texts.
        tables: Benchmarks, systems, models, prompts, settings, packages; those with a row.
    """

    name: str
    facts: tuple[tuple[str, str], ...]
    tables: tuple[PlainTable, ...]


def what_ran(run: RunFolder, known: Mapping[str, Any]) -> RanRun:
    """A run's manifest in plain words.

    Args:
        run: Its folder; without a manifest there, what its statistics kept of one has to do.
        known: What its statistics kept: name, seed, draws and parts of the manifest.

    Raises:
        InputError: The manifest is there and cannot be read.
    """
    manifest = {**known, **(read_manifest(run) if (run.path / FILE).is_file() else {})}
    plan: Mapping[str, Any] = manifest.get("plan", {})
    tables = (
        PlainTable(
            title="Benchmarks",
            head=("benchmark", "dialogues", "questions", "asked pictures without a file", "digest"),
            rows=tuple(_benchmarks(manifest)),
        ),
        PlainTable(
            title="Systems",
            head=("system", "title", "settings", "encoders"),
            rows=tuple(_systems(manifest)),
        ),
        PlainTable(
            title="Models",
            head=("asked to", "name in the plan", "server", "model, as the server names it"),
            rows=tuple(_models(manifest)),
        ),
        PlainTable(
            title="Prompts", head=("prompt", "wording", "SHA-256"), rows=tuple(_prompts(manifest))
        ),
        PlainTable(
            title="Settings; of all systems but the first, where they differ from it",
            head=("system", "setting", "value"),
            rows=tuple(_settings(manifest.get("settings", {}))),
        ),
        PlainTable(
            title="Packages",
            head=("package", "version"),
            rows=tuple((str(n), str(v)) for n, v in sorted(manifest.get("packages", {}).items())),
        ),
    )
    return RanRun(
        name=str(known.get("name", "")),
        facts=tuple(_facts(manifest, plan)),
        tables=tuple(table for table in tables if table.rows),
    )


def _facts(manifest: Mapping[str, Any], plan: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    code, machine = manifest.get("code", {}), manifest.get("machine", {})
    yield "begun", str(manifest.get("started") or UNKNOWN)
    yield "ended", str(manifest.get("ended") or UNKNOWN)
    yield "base settings", str(plan.get("settings", UNKNOWN))
    changes = ", ".join(f"{name}: {value}" for name, value in _flat(plan.get("changes", {})))
    yield "changed for all systems", changes or "nothing"
    yield "seed and draws", f"{manifest.get('seed', UNKNOWN)}, {manifest.get('draws', 0):,} draws"
    corrected = [f"{one['count']:,} of {n}" for n, one in manifest.get("corrections", {}).items()]
    yield "corrected gold answers", ", ".join(corrected) or "none"
    yield "code", f"vmem {code.get('version', UNKNOWN)}, {str(code.get('sha256', ''))[:12]}"
    said = [f"{name} {value}" for name, value in machine.items()]
    yield "machine", ", ".join(said) or UNKNOWN


def _benchmarks(manifest: Mapping[str, Any]) -> Iterator[Row]:
    counts: Mapping[str, Any] = manifest.get("benchmarks", {})
    for name, digest in manifest.get("data", {}).items():
        of = counts.get(name, {})
        told = ("dialogues", "questions", "query_images_missing")
        yield name, *(f"{of[w]:,}" if w in of else UNKNOWN for w in told), str(digest)


def _systems(manifest: Mapping[str, Any]) -> Iterator[Row]:
    rows = read_rows()
    for name in manifest.get("plan", {}).get("systems", ()):
        settings = manifest.get("settings", {}).get(name, {})
        encoders = [f"{one['kind']} ({what})" for what, one in settings.get("encoders", {}).items()]
        row = rows.get(name)
        title = (row.title + (", sees the gold evidence" if row.oracle else "")) if row else name
        yield name, title, row.settings if row else UNKNOWN, ", ".join(encoders) or UNKNOWN


def _models(manifest: Mapping[str, Any]) -> Iterator[Row]:
    named, servers = manifest.get("models", {}), manifest.get("servers", {})
    for role, models in (("answer", "backbones"), ("judge", "judges")):
        for model in manifest.get("plan", {}).get(models, ()):
            name = model["name"]
            server = str(servers.get(name, UNKNOWN))
            yield role, name, server, str(named.get(name, UNKNOWN))


def _prompts(manifest: Mapping[str, Any]) -> Iterator[Row]:
    prompts: Mapping[str, Any] = manifest.get("prompts", {})
    folders = {
        (settings.get("prompts") or {}).get("dir")
        for settings in manifest.get("settings", {}).values()
    }
    replaced = ", ".join(sorted(str(folder) for folder in folders if folder))
    ours = f"files of {replaced}, else our wording" if replaced else "our wording"
    for name, sha256 in prompts.get("answers", {}).items():
        yield name, ours, str(sha256)
    for name, one in prompts.get("judges", {}).items():
        source = WORDING.get(one.get("source"), "unknown wording")
        yield f"judge of {name}", source, str(one.get("sha256", UNKNOWN))


def _settings(by_system: Mapping[str, Any]) -> Iterator[Row]:
    first: dict[str, str] = {}
    for system, settings in by_system.items():
        values = {name: value for name, value in _flat(settings) if name != "name"}
        for name, value in values.items():
            if first.get(name) != value:
                yield system, name, value
        for name in sorted(first.keys() - values.keys()):
            yield system, name, "(none)"
        first = first or values


def _flat(value: object, where: str = "") -> Iterator[tuple[str, str]]:
    """Names with points between their parts, and values as texts."""
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _flat(inner, f"{where}.{name}" if where else str(name))
    elif isinstance(value, list | tuple):
        yield where, ", ".join(map(str, value)) or "(none)"
    elif where:
        yield where, str(value)
