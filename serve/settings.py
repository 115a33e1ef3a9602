"""Settings of the serving application; the YAML files of `configs/serve/` hold one each."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from serve.models import VllmSettings
from vmem.config import (
    CONFIGS,
    Settings,
    first_fault,
    load_settings,
    read_mapping,
    settings_file,
)
from vmem.errors import ConfigError


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class HttpSettings(_Section):
    """Where and to whom the application answers.

    Attributes:
        host: Address to bind; loopback unless other machines are meant to reach it.
        port: TCP port.
        open_on_loopback: Without any key, callers are let in as the nameless tenant; only taken
            where `host` is a loopback address.
        cors_origins: Origins whose pages may call; none by default.
        public_url: What links to pictures start with; empty makes them relative to the host.
        open_metrics: `/metrics` asks for no key.
        ui: Serve the page at `/ui`.
        request_timeout_s: Seconds until a request that is not a stream is given up (504).
    """

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=1, le=65_535)
    open_on_loopback: bool = False
    cors_origins: tuple[str, ...] = ()
    public_url: str = ""
    open_metrics: bool = True
    ui: bool = True
    request_timeout_s: float = Field(default=120.0, gt=0)


class LimitSettings(_Section):
    """What one request, and one key, may cost.

    Attributes:
        body_bytes: Longest request body.
        json_depth: Deepest nesting of a JSON body.
        header_bytes: All headers together.
        rounds_per_append: Most rounds of one append.
        images_per_round: Most pictures of one round.
        round_characters: Longest text of one turn.
        query_characters: Longest question.
        rate_per_minute: Requests a minute of one key that has no rate of its own.
        rate_storage: Where rates are counted (a `limits` URI): in each Api replica, or in Redis.
        top_k: Most rounds a request may ask for.
        window: Most neighbours on each side a request may ask for.
        answer_tokens: Longest answer a request may ask for.
        page_items: Most items of one page of a list.
    """

    body_bytes: int = Field(default=32 * 2**20, ge=1_024)
    json_depth: int = Field(default=32, ge=4)
    header_bytes: int = Field(default=16 * 2**10, ge=1_024)
    rounds_per_append: int = Field(default=256, ge=1)
    images_per_round: int = Field(default=16, ge=0)
    round_characters: int = Field(default=60_000, ge=1)
    query_characters: int = Field(default=20_000, ge=1)
    rate_per_minute: int = Field(default=6_000, ge=1)
    rate_storage: str = "async+memory://"
    top_k: int = Field(default=50, ge=1)
    window: int = Field(default=5, ge=0)
    answer_tokens: int = Field(default=1_024, ge=1)
    page_items: int = Field(default=500, ge=1)


class ImageUrlSettings(_Section):
    """Pictures given by a URL of the web: off unless switched on.

    Attributes:
        enabled: Fetch them.
        timeout_s: Seconds for one picture.
        max_bytes: Longest picture.
        allowed_hosts: Hosts that may be asked; none is any public one.
    """

    enabled: bool = False
    timeout_s: float = Field(default=10.0, gt=0)
    max_bytes: int = Field(default=10 * 2**20, ge=1)
    allowed_hosts: tuple[str, ...] = ()


class AdmissionSettings(_Section):
    """How much one Api replica takes on at once; what is over it is refused with 429.

    Attributes:
        search: Searches and embeddings under way.
        answer: Answers under way.
        append: Appends and erasures under way.
        retry_after_s: Seconds that a refused caller is asked to wait.
    """

    search: int = Field(default=32, ge=1)
    answer: int = Field(default=8, ge=1)
    append: int = Field(default=32, ge=1)
    retry_after_s: int = Field(default=1, ge=1)


class ReplicaSettings(_Section):
    """Replicas of one deployment.

    Attributes:
        replicas: How many, where they do not autoscale.
        min_replicas: Fewest, where they autoscale.
        max_replicas: Most; setting it switches autoscaling on.
        target_ongoing_requests: Requests under way in each that autoscaling aims at.
        max_ongoing_requests: Requests that one replica works on at once.
        max_queued_requests: Requests that wait for a replica, in each caller.
        num_cpus: Logical CPUs of one replica.
        num_gpus: GPUs of one replica (a fraction shares one).
        graceful_shutdown_timeout_s: Seconds that a replica may finish its requests in.
        max_surge_percent: Replicas started beyond their number while an update replaces them, in
            percent and at least one; with 0 a single replica is away while its successor starts.
        env: Environment of its process.
    """

    replicas: int = Field(default=1, ge=1)
    min_replicas: int = Field(default=1, ge=1)
    max_replicas: int | None = Field(default=None, ge=1)
    target_ongoing_requests: float = Field(default=4.0, gt=0)
    max_ongoing_requests: int = Field(default=64, ge=1)
    max_queued_requests: int = Field(default=256, ge=-1)
    num_cpus: float = Field(default=0.5, ge=0)
    num_gpus: float = Field(default=0.0, ge=0)
    graceful_shutdown_timeout_s: float = Field(default=60.0, gt=0)
    max_surge_percent: int = Field(default=25, ge=0, le=100)
    env: Mapping[str, str] = Field(default_factory=dict)


class WriterSettings(ReplicaSettings):
    """The writer's replicas: an update ends one before the next begins, since only one writes."""

    max_surge_percent: int = Field(default=0, ge=0, le=0)


class BackboneSettings(_Section):
    """Which backbone the retriever asks.

    Attributes:
        kind: `embedded` hosts llama.cpp in a deployment, `vllm` hosts vLLM by Ray Serve LLM,
            `remote` asks the server that the memory settings' `llm` names, `none` has no backbone.
        replica: The embedded deployment's replicas.
        vllm: The vLLM deployment, where that is the kind.
    """

    kind: Literal["embedded", "vllm", "remote", "none"] = "embedded"
    replica: ReplicaSettings = ReplicaSettings(max_ongoing_requests=8)
    vllm: VllmSettings | None = None

    @model_validator(mode="after")
    def _has_its_model(self) -> Self:
        if (self.kind == "vllm") != (self.vllm is not None):
            raise ValueError("kind vllm and the section vllm come together")
        return self


class RaySettings(_Section):
    """The Ray that `vmem serve` starts; a running cluster is named by its address.

    Attributes:
        address: A running cluster's address; None starts one for this process alone.
        num_cpus: Logical CPUs of the Ray started.
        object_store_bytes: Its shared memory for objects.
        metrics_port: Where its node exports metrics; None takes a free one.
    """

    address: str | None = None
    num_cpus: int = Field(default=8, ge=2)
    object_store_bytes: int = Field(default=300_000_000, ge=80_000_000)
    metrics_port: int | None = None


class ServeSettings(_Section):
    """The whole application.

    Attributes:
        memory: Memory settings: the name of a file in `configs/`, or its content.
    """

    name: str
    memory: str | Mapping[str, Any] = "embedded"
    http: HttpSettings = HttpSettings()
    limits: LimitSettings = LimitSettings()
    image_urls: ImageUrlSettings = ImageUrlSettings()
    admission: AdmissionSettings = AdmissionSettings()
    api: ReplicaSettings = ReplicaSettings(max_ongoing_requests=2_000, num_cpus=0.5)
    retriever: ReplicaSettings = ReplicaSettings()
    writer: WriterSettings = WriterSettings()
    backbone: BackboneSettings = BackboneSettings()
    ray: RaySettings = RaySettings()

    def memory_settings(self) -> Settings:
        """The memory's own settings, under the environment's overrides.

        Raises:
            ConfigError: There is no such file, a key is unknown, a value does not fit.
        """
        if isinstance(self.memory, str):
            return load_settings(self.memory)
        try:
            return Settings(**self.memory)
        except ValidationError as error:
            raise ConfigError(f"{self.name}: {first_fault(error, 'memory')}") from error


def load_serve_settings(source: str | Path | Mapping[str, Any]) -> ServeSettings:
    """Read the application's settings, refusing every key that means nothing.

    Args:
        source: A YAML file, the name of one in `configs/serve/`, or its content.

    Raises:
        ConfigError: The file is missing or not YAML, a key is unknown, a value does not fit; the
            sentence names the key's path.
    """
    where, values = _read(source)
    try:
        settings = ServeSettings(**{"name": where, **values})
    except ValidationError as error:
        raise ConfigError(f"{where}: {first_fault(error)}") from error
    settings.memory_settings()
    return settings


def _read(source: str | Path | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    if isinstance(source, Mapping):
        return str(source.get("name", "settings given")), dict(source)
    path = settings_file(source, CONFIGS / "serve")
    return path.stem, read_mapping(path)
