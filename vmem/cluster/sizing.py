"""What a plan of a cluster is made of: the load, what is measured, what is assumed, its lines."""

from dataclasses import dataclass, field
from math import ceil

GB = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """What is neither in the configuration nor measured here.

    Attributes:
        gpu_overhead_bytes: Of each GPU: CUDA's context, graphs, and the largest forward pass.
        encoder_gpu_bytes: Of a replica with encoders on a GPU: both models and CUDA's context.
        image_bytes: A picture as it is stored: as it comes, so that those of a phone weigh more.
        copies: Of a collection on disk and loaded while a build stands beside the bank it replaces.
        spare: Of memory and disk that stays free.
        first_search_s: How long a caller may wait for the first search of a memory.
    """

    gpu_overhead_bytes: int = 4 * GB
    encoder_gpu_bytes: int = 3 * GB
    image_bytes: int = 400_000
    copies: int = 2
    spare: float = 0.3
    first_search_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What rounds of LoCoMo's lengths take: 2 turns of 118 characters, a picture in every tenth.

    `python -m jobs.benchmark_scale 10000 100000 1000000 --database URL`; 2026-11-30, Milvus 2.3.5,
    PostgreSQL 15, 2 shared cores. Vectors are counted apart.

    Attributes:
        log_bytes: Of a round in PostgreSQL, all tables with their indices: 941 to 952.
        row_bytes: Of a unit in Milvus' bucket: 95 compacted, and up to 270 before that.
        loaded_bytes: Of a unit in a query node: 640 of 2.2 million after a start, 290 of 220,000.
        milvus_bytes: Of a Milvus with nothing loaded: 297 to 338 MB.
        hot_bytes: Of a unit in a retriever, rounds, texts and BM25: 2,400 in memories of 1,000
            rounds, 3,950 in one of 100,000 (`100000 --store none --memory-rounds 0`).
        lexical_s: Processor time of a retriever for a text unit of a memory's first BM25: 21 µs of
            a quiet machine, up to 79 of a busy one.
    """

    log_bytes: int = 950
    row_bytes: int = 200
    loaded_bytes: int = 650
    milvus_bytes: int = 340_000_000
    hot_bytes: int = 3_950
    lexical_s: float = 40e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What the cluster is to hold and to answer, by its operator.

    Attributes:
        memories: Memories.
        rounds: Rounds of each.
        units: Text units of a round.
        pictures: Pictures of a round.
        hot_share: Memories that are asked often enough to be held in process.
        answers_per_s: Answers a second at the busiest.
        answer_tokens: Tokens of an answer.
        context_tokens: Tokens of a prompt.
        gpu_tokens_per_s: Tokens that one replica of the backbone writes a second at its best batch;
            None leaves throughput out.
        gpu_gb: Memory of one GPU.
        gpus_per_node: GPUs of one node.
    """

    memories: int = 1_000
    rounds: int = 500
    units: float = 2.0
    pictures: float = 0.1
    hot_share: float = 1.0
    answers_per_s: float = 1.0
    answer_tokens: int = 256
    context_tokens: int = 8_000
    gpu_tokens_per_s: float | None = None
    gpu_gb: float = 80.0
    gpus_per_node: int = 8

    @property
    def text_units(self) -> int:
        """All text units."""
        return ceil(self.memories * self.rounds * self.units)

    @property
    def image_units(self) -> int:
        """All pictures."""
        return ceil(self.memories * self.rounds * self.pictures)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a plan.

    Attributes:
        what: What is sized.
        arithmetic: How.
        result: The figure, with its unit.
        source: `configured`, `measured`, `assumed` or `given`; the weakest of its parts.
    """

    what: str
    arithmetic: str
    result: str
    source: str


@dataclass(slots=True)
class Sizing:
    """A plan: its lines by section, what does not fit, and the sums.

    Attributes:
        lines: By section.
        warnings: What does not fit, each with the key and the limit.
        gpus: GPUs in all.
    """

    lines: dict[str, list[Line]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    gpus: int = 0

    def add(self, section: str, what: str, arithmetic: str, result: str, source: str) -> None:
        """Add a line."""
        line = Line(what=what, arithmetic=arithmetic, result=result, source=source)
        self.lines.setdefault(section, []).append(line)
