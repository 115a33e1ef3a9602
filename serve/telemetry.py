"""What a replica counts and times, as metrics of Ray Serve.

Ray exports `vmem_x` as `ray_vmem_x` (a counter as `ray_vmem_x_total`) on each node's metrics port,
with labels for deployment and replica. Labels name kinds of things, never a memory, a tenant or a
request. Histograms are exact in their buckets only: Ray makes their sums up from bucket midpoints,
so what needs an exact sum has a counter too.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar, Literal
from weakref import WeakSet

from ray.serve.metrics import Counter, Gauge, Histogram

from vmem.types import Answer, Case, Retrieval, Usage

Encoder = Literal["text", "image", "text_tower"]
"""φ, ψ, and the texts that ψ's own tower encodes."""

OTHER = "other"
"""The label of every value beyond those that a label may take."""

REQUEST_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
"""From a look-up to a long answer on CPUs."""
STAGE_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0)
"""From routing, which is microseconds, to anchors that a slow backbone writes."""
TOKENS_PER_S = (1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 150.0, 200.0, 400.0)
"""From a model of billions of weights on CPUs to a small one on a GPU."""
KEEP_S = 1.0
"""Seconds between two times that gauges tell their values: Ray reports as often at most."""
BATCH = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)


def _counter(name: str, text: str, *labels: str) -> Counter:
    return Counter(name, text, labels)  # type: ignore[arg-type]  # Ray's type means one label


def _gauge(name: str, text: str, *labels: str) -> "_KeptGauge":
    return _KeptGauge(Gauge(name, text, labels))  # type: ignore[arg-type]  # as above


def _histogram(name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram:
    return Histogram(name, text, list(buckets), labels)  # type: ignore[arg-type]  # as above


class _KeptGauge:
    """A gauge that stands until it is set anew: Ray forgets one within two of its reports."""

    _all: ClassVar["WeakSet[_KeptGauge]"] = WeakSet()
    _lock = threading.Lock()
    _keeper: threading.Thread | None = None

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._values: dict[tuple[tuple[str, str], ...], float] = {}
        with self._lock:
            self._all.add(self)
            if _KeptGauge._keeper is None:
                _KeptGauge._keeper = threading.Thread(
                    target=self._keep, name="vmem-gauges", daemon=True
                )
                _KeptGauge._keeper.start()

    def set(self, value: float, **labels: str) -> None:
        """Show a value from the keeper's next round on; many calls set it several times."""
        self._values[tuple(labels.items())] = value

    def tell(self) -> None:
        """Set every value, anew where it is the same."""
        for labels, value in list(self._values.items()):
            self._gauge.set(value, dict(labels))

    @classmethod
    def _keep(cls) -> None:
        while True:
            time.sleep(KEEP_S)
            with cls._lock:
                gauges = list(cls._all)
            for gauge in gauges:
                gauge.tell()


class _Bounded:
    """Keeps a label to the first values it takes; later ones are `OTHER`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: set[str] = set()

    def __call__(self, value: str) -> str:
        if value in self._known:
            return value
        if len(self._known) >= self._limit:
            return OTHER
        self._known.add(value)
        return value


class _Rise:
    """The increments of a running total; a total that falls was started anew."""

    def __init__(self) -> None:
        self._last = 0

    def __call__(self, total: int) -> int:
        rise = total - self._last if total >= self._last else total
        self._last = total
        return rise


def _case(value: str) -> str:
    """A case as a label: one of the four, or none."""
    return value if not value or value in {case.value for case in Case} else OTHER


def _add(counter: Counter, amount: float, **labels: str) -> None:
    """Increase a counter; Ray refuses an increase by nothing."""
    if amount > 0:
        counter.inc(amount, labels)


class ApiMetrics:
    """What an Api replica does."""

    def __init__(self) -> None:
        self._requests = _counter("vmem_requests", "Requests answered.", "route", "case", "status")
        self._seconds = _histogram(
            "vmem_request_seconds",
            "Seconds of requests that were not the caller's error, to the last byte.",
            REQUEST_S,
            "route",
            "case",
        )
        self._rejections = _counter("vmem_rejections", "Requests refused.", "reason")
        self._under_way = _gauge("vmem_requests_under_way", "Requests under way.", "kind")
        self._route, self._reason, self._kind = _Bounded(64), _Bounded(16), _Bounded(16)

    def request(self, route: str, case: str, status: int, seconds: float) -> None:
        """A request is answered.

        Args:
            route: The route's template, such as `/v1/memories/{name}`; never the path itself.
            case: The value of a `Case`, or empty where the request asks nothing.
            status: The HTTP status.
            seconds: From its arrival to the last byte.
        """
        tags = {"route": self._route(route), "case": _case(case)}
        self._requests.inc(1, {**tags, "status": str(status)})
        if not 400 <= status < 500:  # quick refusals would make the service look fast
            self._seconds.observe(seconds, tags)

    def rejected(self, reason: str) -> None:
        """A request is refused: `overloaded`, `rate`, `draining`, `too_large` or `no_access`."""
        self._rejections.inc(1, {"reason": self._reason(reason)})

    def under_way(self, kind: str, n: int) -> None:
        """So many requests of a kind that admission knows are under way in this replica."""
        self._under_way.set(n, kind=self._kind(kind))


class _EncoderMetrics:
    """What encoders do, in whichever deployment they run."""

    def __init__(self) -> None:
        self._encoded = _counter("vmem_encoded_items", "Texts and pictures encoded.", "encoder")
        self._batches = _histogram(
            "vmem_encoder_batch_items", "Texts or pictures in one call.", BATCH, "encoder"
        )
        self._seconds = _histogram(
            "vmem_encoder_seconds", "Seconds of one call of an encoder.", STAGE_S, "encoder"
        )
        self._queue = _gauge("vmem_queue_length", "Calls that this replica has not ended.")
        self._calls = 0
        self._queue.set(0)

    def encoded(self, encoder: Encoder, batch: int, seconds: float) -> None:
        """An encoder was called once, with so many items."""
        tags: dict[str, str] = {"encoder": encoder}
        _add(self._encoded, batch, encoder=encoder)
        self._batches.observe(batch, tags)
        self._seconds.observe(seconds, tags)

    @contextmanager
    def call(self) -> Iterator[None]:
        """Counts a call among those that wait or are worked on, for a with-block."""
        self._calls += 1
        self._queue.set(self._calls)
        try:
            yield
        finally:
            self._calls -= 1
            self._queue.set(self._calls)


class RetrieverMetrics(_EncoderMetrics):
    """What a Retriever replica does."""

    def __init__(self) -> None:
        super().__init__()
        self._stages = _histogram(
            "vmem_stage_seconds", "Seconds of one stage of a search.", STAGE_S, "stage", "case"
        )
        self._searches = _counter("vmem_searches", "Searches done.", "case")
        self._degraded = _counter(
            "vmem_degraded_searches", "Searches that went on without a model's anchor.", "case"
        )
        self._tokens = _counter("vmem_tokens", "Tokens of language models.", "role", "kind")
        self._answers = _counter("vmem_answers", "Answers given whole.", "case")
        self._first_token = _histogram(
            "vmem_first_token_seconds", "Seconds to the first token, search included.", REQUEST_S
        )
        self._answer = _histogram(
            "vmem_answer_seconds", "Seconds to the last token, search included.", REQUEST_S
        )
        self._speed = _histogram(
            "vmem_answer_tokens_per_second", "Speed after an answer's first token.", TOKENS_PER_S
        )
        self._failures = _counter(
            "vmem_model_failures", "Calls of a language model that failed.", "role", "code"
        )
        self._lookups = _counter(
            "vmem_cache_lookups", "Memories looked up among the hot ones.", "outcome"
        )
        self._memories = _gauge("vmem_hot_memories", "Memories held in this replica.")
        self._units = _gauge("vmem_hot_units", "Units of the memories held in this replica.")
        self._stage, self._role, self._code = _Bounded(16), _Bounded(16), _Bounded(32)
        self._rises = {outcome: _Rise() for outcome in ("hit", "miss", "extension")}

    def retrieved(self, retrieval: Retrieval) -> None:
        """A search is done."""
        case = retrieval.route.case.value
        for stage, seconds in retrieval.seconds.items():
            self._stages.observe(seconds, {"stage": self._stage(stage), "case": case})
        self._searches.inc(1, {"case": case})
        if retrieval.anchors.failures:
            self._degraded.inc(1, {"case": case})
        for failure in retrieval.anchors.failures:
            self.model_failed(failure.role, failure.error)
        self._count_tokens(retrieval.anchors.usage)

    def answered(self, answer: Answer, first_token_s: float, seconds: float) -> None:
        """An answer is given whole; its search was told to `retrieved`.

        Args:
            answer: The answer.
            first_token_s: From the call to the first piece of the answer.
            seconds: From the call to the last.
        """
        usage = answer.usage[len(answer.retrieval.anchors.usage) :]
        self._answers.inc(1, {"case": answer.retrieval.route.case.value})
        self._count_tokens(usage)
        self._first_token.observe(first_token_s)
        self._answer.observe(seconds)
        later_tokens = sum(used.completion_tokens for used in usage) - 1
        if later_tokens > 0 and seconds > first_token_s:
            self._speed.observe(later_tokens / (seconds - first_token_s))

    def model_failed(self, role: str, code: str) -> None:
        """A call of a language model gave nothing; `retrieved` tells of those for anchors.

        Args:
            role: What it was asked for: a `Role`.
            code: The error's class.
        """
        self._failures.inc(1, {"role": self._role(role), "code": self._code(code)})

    def cache(self, hits: int, misses: int, extensions: int, memories: int, units: int) -> None:
        """The state of the hot memories; the first three are totals since the replica began."""
        for outcome, total in (("hit", hits), ("miss", misses), ("extension", extensions)):
            _add(self._lookups, self._rises[outcome](total), outcome=outcome)
        self._memories.set(memories)
        self._units.set(units)

    def _count_tokens(self, usage: Sequence[Usage]) -> None:
        for used in usage:
            role = self._role(used.role)
            _add(self._tokens, used.prompt_tokens, role=role, kind="prompt")
            _add(self._tokens, used.completion_tokens, role=role, kind="completion")


class WriterMetrics(_EncoderMetrics):
    """What the Writer does."""

    def __init__(self) -> None:
        super().__init__()
        self._rounds = _counter("vmem_appended_rounds", "Rounds added to the log.")
        self._units = _counter("vmem_appended_units", "Units added to the indexes.")
        self._groups = _histogram("vmem_append_batch_requests", "Appends written together.", BATCH)
        self._group_seconds = _histogram(
            "vmem_append_seconds", "Seconds of appends written together.", REQUEST_S
        )
        self._erasures = _counter("vmem_erasures", "Rounds and memories erased.", "what")
        self._logged_memories = _gauge("vmem_memories", "Memories in the log.")
        self._logged_rounds = _gauge("vmem_rounds", "Rounds in the log.")
        self._what = _Bounded(8)

    def appended(self, *, rounds: int, batch: int, seconds: float, units: int = 0) -> None:
        """Appends were written together.

        Args:
            rounds: Rounds that are new.
            batch: Appends in the group.
            seconds: From the group's start to its end.
            units: Units that are new.
        """
        _add(self._rounds, rounds)
        _add(self._units, units)
        self._groups.observe(batch)
        self._group_seconds.observe(seconds)

    def erased(self, what: str) -> None:
        """A `round` or a `memory` was erased."""
        self._erasures.inc(1, {"what": self._what(what)})

    def log(self, memories: int, rounds: int) -> None:
        """So much is in the log."""
        self._logged_memories.set(memories)
        self._logged_rounds.set(rounds)
