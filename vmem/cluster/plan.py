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
        vector = width * BYTES_32
        for what, beside in (("stored", measured.row_bytes), ("loaded", measured.loaded_bytes)):
            size = units * (vector + beside)
            sizing.add(
                "milvus",
                f"{name} units {what}",
                f"{units:,} × ({width} × 4 B + {beside} B)",
                f"{size / GB:.2f} GB",
                "measured",
            )
        disk += units * (vector + measured.row_bytes)
        memory += units * (vector + measured.loaded_bytes)
    spare = 1 + assumed.spare
    idle = measured.milvus_bytes
    sizing.add(
        "milvus",
        "memory of the query nodes (FLAT index)",
        f"({memory / GB:.2f} GB × {assumed.copies} while a build stands beside"
        f" + {idle / GB:.2f} GB idle) × {spare:g}",
        f"{(memory * assumed.copies + idle) * spare / GB:.1f} GB",
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
    _retrievers(sizing, settings, load, measured, assumed)
    spare = 1 + assumed.spare
    rounds = load.memories * load.rounds
    sizing.add(
        "application",
        "round log (PostgreSQL)",
        f"{rounds:,} rounds × {measured.log_bytes:,} B × {spare:g}",
        f"{rounds * measured.log_bytes * spare / GB:.1f} GB",
        "measured",
    )
    pictures = load.image_units * assumed.image_bytes
    sizing.add(
        "application",
        "pictures",
        f"{load.image_units:,} × {assumed.image_bytes / 1e6:g} MB × {spare:g}",
        f"{pictures * spare / GB:.1f} GB",
        "assumed",
    )


def _retrievers(
    sizing: Sizing, settings: ServeSettings, load: Load, measured: Measured, assumed: Assumed
) -> None:
    """What each retriever holds, and how long the first search of a memory takes."""
    store = settings.memory_settings().store
    asked = load.hot_share * (load.text_units + load.image_units)
    hot = min(asked, float(store.hot_units))
    held = sum(
        hot * (units / max(1, load.text_units + load.image_units))
        * (WIDTHS.get(encoder.kind, 0) * BYTES_32 + measured.hot_bytes)
        for _, encoder, units in _lanes(settings, load)
    )  # fmt: skip
    sizing.add(
        "application",
        "memories held by each Retriever",
        f"{hot:,.0f} units × (width × 4 B + {measured.hot_bytes:,} B)",
        f"{held / GB:.1f} GB",
        "measured",
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
    texts = ceil(load.rounds * load.units)
    first_s = texts * measured.lexical_s
    sizing.add(
        "application",
        "first search of a memory by a Retriever",
        f"{texts:,} text units × {measured.lexical_s * 1e6:g} µs of a processor",
        f"{first_s:.1f} s",
        "measured",
    )
    if first_s > assumed.first_search_s:
        sizing.warnings.append(
            f"rounds {load.rounds:,} of one memory: its first search takes {first_s:.0f} s in each"
            f" Retriever, over {assumed.first_search_s:g} s; divide it into several memories"
        )


def _lanes(settings: ServeSettings, load: Load) -> Iterator[tuple[str, EncoderSettings, int]]:
    encoders = settings.memory_settings().encoders
    yield "text", encoders.text, load.text_units
    if encoders.image.kind != "none":
        yield "image", encoders.image, load.image_units
