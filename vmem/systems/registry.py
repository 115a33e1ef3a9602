"""Rows to systems: what builds and answers for each kind of row."""

from collections.abc import Callable, Mapping
from functools import partial

from vmem.baselines.amem import AMem
from vmem.baselines.amem_writing import AMemOptions
from vmem.baselines.full_context import FullContext, FullContextOptions
from vmem.baselines.m2a import M2A
from vmem.baselines.m2a_options import M2AOptions
from vmem.baselines.m2a_verbatim import M2AVerbatim, M2AVerbatimOptions
from vmem.baselines.murag import MuRAG, MuRAGOptions
from vmem.baselines.omni import Omni, OmniOptions, OmniVerbatimOptions
from vmem.baselines.options import Options, read_options
from vmem.config import Settings
from vmem.pipeline import Parts
from vmem.ports import System
from vmem.systems.rows import SystemRow
from vmem.systems.v_mem import VMem

FACTORIES: Mapping[str, Callable[..., System]] = {
    "v-mem": VMem,
    "full-context": FullContext,
    "no-memory": partial(FullContext, shows_all=False),
    "omni": Omni,
    "omni-verbatim": Omni,
    "murag": MuRAG,
    "a-mem": AMem,
    "m2a": M2A,
    "m2a-verbatim": M2AVerbatim,
}

OPTIONS: Mapping[str, type[Options]] = {
    "full-context": FullContextOptions,
    "omni": OmniOptions,
    "omni-verbatim": OmniVerbatimOptions,
    "murag": MuRAGOptions,
    "a-mem": AMemOptions,
    "m2a": M2AOptions,
    "m2a-verbatim": M2AVerbatimOptions,
}
"""What rows of a kind set in `options`; other kinds have none."""

SEARCHING = frozenset({"v-mem", "omni-verbatim", "m2a-verbatim", "murag"})
"""Kinds that find evidence without a language model: their memories can `search`."""


def make_system(row: SystemRow, settings: Settings, parts: Parts) -> System:
    """The system that a row names.

    Args:
        row: The row.
        settings: Its settings in this run, as `row_settings` gives them.
        parts: Encoders (those that the settings name), backbone and prompts.

    Raises:
        ConfigError: An option of the row is unknown or does not fit.
    """
    make = partial(FACTORIES[row.kind], name=row.name, settings=settings, parts=parts)
    if row.kind in OPTIONS:
        return make(options=read_options(OPTIONS[row.kind], row.options, row.name))
    read_options(Options, row.options, row.name)
    return make()
