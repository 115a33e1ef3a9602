"""How large a cluster has to be: GPUs, memory and disk of a configuration, line by line.

Every figure is a formula over the configuration, over what was measured (`Measured`), or over what
is assumed (`Assumed`); each line says which. How fast a GPU answers is the operator's to say.
"""

from collections.abc import Iterator
from math import ceil

from serve.settings import ServeSettings
from vmem.cluster.backbone import size_backbone, size_encoders
from vmem.cluster.shapes import ModelShape
from vmem.cluster.sizing import GB, Assumed, Load, Measured, Sizing
from vmem.config import EncoderSettings
from vmem.errors import ConfigError

BYTES_32 = 4
WIDTHS = {"minilm": 384, "siglip": 768, "dinov2": 768, "efficientnet": 1280, "none": 0}


def plan_cluster(
    settings: ServeSettings,
    load: Load,
    shape: ModelShape | None = None,
    *,
    assumed: Assumed | None = None,
    measured: Measured | None = None,
) -> Sizing:
    """Size a cluster.

    Args:
        settings: What it runs.
        load: What it holds and answers.
        shape: The backbone's numbers, where its name does not tell them.
        assumed: Other assumptions.
        measured: Other measurements.

    Raises:
        ConfigError: The backbone's numbers are not known.
    """
    assumed, measured = assumed or Assumed(), measured or Measured()
    sizing = Sizing()
    if settings.backbone.vllm is not None:
        size_backbone(sizing, settings.backbone.vllm, load, shape, assumed)
    size_encoders(sizing, settings, load, assumed)
    _milvus(sizing, settings, load, measured, assumed)
    _processes(sizing, settings, load, measured, assumed)
    return sizing


def _milvus(
    sizing: Sizing, settings: ServeSettings, load: Load, measured: Measured, assumed: Assumed
) -> None:
    """Memory of query nodes, and disk."""
    memory, disk = 0.0, 0.0
    for name, encoder, units in _lanes(settings, load):
        width = WIDTHS.get(encoder.kind)
        if width is None:
            raise ConfigError(f"memory.encoders.{name}.kind {encoder.kind} has no known width")
        vectors, rows = units * width * BYTES_32, units * measured.row_bytes
        memory, disk = memory + vectors + rows, disk + vectors + rows
        sizing.add(
            "milvus",
            f"{name} units",
            f"{units:,} × ({width} × 4 B + {measured.row_bytes} B)",
            f"{(vectors + rows) / GB:.2f} GB",
            "measured",
        )
    spare = 1 + assumed.spare
    sizing.add(
        "milvus",
        "memory of the query nodes (FLAT index)",
        f"{memory / GB:.2f} GB × {assumed.copies} while a build stands beside × {spare:g}",
        f"{memory * assumed.copies * spare / GB:.1f} GB",
        "assumed",
    )
    sizing.add(
        "milvus",
        "disk or bucket",
        f"{disk / GB:.2f} GB × {assumed.copies} × {spare:g}",
        f"{disk * assumed.copies * spare / GB:.1f} GB",
        "assumed",
    )


def _processes(
    sizing: Sizing, settings: ServeSettings, load: Load, measured: Measured, assumed: Assumed
) -> None:
    """Memory of retrievers, the round log, the pictures."""
    store = settings.memory_settings().store
    asked = load.hot_share * (load.text_units + load.image_units)
    hot = min(asked, float(store.hot_units))
    held = sum(
        hot * (units / max(1, load.text_units + load.image_units))
        * (WIDTHS.get(encoder.kind, 0) * BYTES_32 + assumed.hot_bytes)
        for _, encoder, units in _lanes(settings, load)
    )  # fmt: skip
    sizing.add(
        "application",
        "memories held by each Retriever",
        f"{hot:,.0f} units × (width × 4 B + {assumed.hot_bytes:,} B)",
        f"{held / GB:.1f} GB",
        "assumed",
    )
    if asked > store.hot_units:
        sizing.warnings.append(
            f"memory.store.hot_units {store.hot_units:,} is below the {asked:,.0f} units asked"
            " often: memories are loaded again and again; raise it, or add replicas"
        )
    largest = ceil(load.rounds * (load.units + load.pictures))
    if largest > store.exact_limit:
        sizing.warnings.append(
            f"memory.store.exact_limit {store.exact_limit:,} is below a memory's {largest:,} units:"
            " such memories are searched by Milvus"
        )
    rounds = load.memories * load.rounds
    log = rounds * measured.log_bytes
    sizing.add(
        "application",
        "round log (PostgreSQL)",
        f"{rounds:,} rounds × {measured.log_bytes:,} B × {1 + assumed.spare:g}",
        f"{log * (1 + assumed.spare) / GB:.1f} GB",
        "measured",
    )
    pictures = load.image_units * assumed.image_bytes
    sizing.add(
        "application",
        "pictures",
        f"{load.image_units:,} × {assumed.image_bytes / 1e6:g} MB × {1 + assumed.spare:g}",
        f"{pictures * (1 + assumed.spare) / GB:.1f} GB",
        "assumed",
    )


def _lanes(settings: ServeSettings, load: Load) -> Iterator[tuple[str, EncoderSettings, int]]:
    encoders = settings.memory_settings().encoders
    yield "text", encoders.text, load.text_units
    if encoders.image.kind != "none":
        yield "image", encoders.image, load.image_units
