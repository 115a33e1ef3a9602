"""Settings of a vLLM backbone: which model, on what, and how many replicas of it."""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from vmem.errors import ConfigError

ENGINE_ARGUMENTS = frozenset(
    Path(__file__).with_name("engine_arguments.txt").read_text(encoding="utf-8").split()
)
"""What `engine_kwargs` may hold, so that a check needs no vLLM: the AsyncEngineArgs of vLLM 0.29.0,
less those that Ray sets by itself, and the FrontendArgs that shape a prompt."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ScalingSettings(_Section):
    """Replicas that follow the load.

    Attributes:
        min_replicas: Fewest; with 0 the first request after a quiet time waits for a whole start.
        max_replicas: Most.
        target_ongoing_requests: Requests under way in each that autoscaling aims at.
        upscale_delay_s: Seconds of load before a replica is added.
        downscale_delay_s: Seconds of quiet before one is taken away.
    """

    min_replicas: int = Field(default=1, ge=0)
    max_replicas: int = Field(ge=1)
    target_ongoing_requests: float = Field(gt=0)
    upscale_delay_s: float = Field(default=30.0, ge=0)
    downscale_delay_s: float = Field(default=600.0, ge=0)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.min_replicas > self.max_replicas:
            raise ValueError("min_replicas is above max_replicas")
        return self


class VllmSettings(_Section):
    """One model in a deployment of Ray Serve LLM.

    Attributes:
        model_id: The model's name in requests; `llm.model` of the memory's settings is the same.
        model_source: A folder in Hugging Face's layout, a hub name, or an s3:// or gs:// address.
        accelerator_type: Ray's name of the GPU model, such as `H100`; None takes any, or CPUs.
        placement_bundles: The resources of each worker of one replica; as many as
            `tensor_parallel_size` times `pipeline_parallel_size`. Bundles without a GPU make it
            run on CPUs.
        placement_strategy: `STRICT_PACK` keeps a replica's workers on one machine, where tensor
            parallelism has NVLink; `PACK` only tries to.
        num_cpus: Logical CPUs of the replica's own process, on top of the first bundle.
        num_replicas: How many, where they do not follow the load.
        autoscaling: Replicas that follow the load.
        max_ongoing_requests: Requests that one replica works on at once (Ray's default for LLMs
            is no limit at all); at least `max_num_seqs`, or the batch never fills.
        max_queued_requests: Requests that wait for a replica, in each caller; what is over it
            fails at once as unavailable. -1 sets no limit.
        max_surge_percent: Replicas started beyond their number while an update replaces them, in
            percent, rounded up to whole ones. Ray's default of 0 stops old replicas first, so
            that a model with one replica is down for a whole start; anything above 0 needs the
            resources of a further replica to be free.
        graceful_shutdown_timeout_s: Seconds that a replica may finish its requests in.
        engine_kwargs: vLLM's AsyncEngineArgs, and the FrontendArgs about chat templates.
        stream_batching_interval_ms: Pieces are held back so long to travel together; 0 passes on
            each at once, which the time to the first piece wants.
        env_vars: Environment of the model's processes.
    """

    model_id: str = Field(min_length=1)
    model_source: str = Field(min_length=1)
    accelerator_type: str | None = None
    placement_bundles: tuple[Mapping[str, float], ...] = Field(default=({"CPU": 1},), min_length=1)
    placement_strategy: Literal["PACK", "STRICT_PACK"] = "PACK"
    num_cpus: float = Field(default=0.0, ge=0)
    num_replicas: int | None = Field(default=None, ge=1)
    autoscaling: ScalingSettings | None = None
    max_ongoing_requests: int = Field(default=64, ge=1)
    max_queued_requests: int = Field(default=256, ge=-1)
    max_surge_percent: int = Field(default=0, ge=0, le=100)
    graceful_shutdown_timeout_s: float = Field(default=120.0, gt=0)
    engine_kwargs: Mapping[str, Any] = Field(default_factory=dict)
    stream_batching_interval_ms: float = Field(default=0.0, ge=0)
    env_vars: Mapping[str, str] = Field(default_factory=dict)

    @property
    def on_gpu(self) -> bool:
        """Whether its workers take GPUs."""
        return any(bundle.get("GPU", 0) > 0 for bundle in self.placement_bundles)

    @field_validator("engine_kwargs")
    @classmethod
    def _known_arguments(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        for name in values:
            if name not in ENGINE_ARGUMENTS:
                close = difflib.get_close_matches(name, ENGINE_ARGUMENTS, n=1)
                hint = f": did you mean {close[0]}?" if close else ""
                raise ValueError(f"vLLM 0.29.0 has no argument {name!r}{hint}")
        return values

    @model_validator(mode="after")
    def _one_way_to_scale(self) -> Self:
        if self.num_replicas is not None and self.autoscaling is not None:
            raise ValueError("num_replicas and autoscaling exclude each other")
        return self

    @model_validator(mode="after")
    def _a_bundle_for_each_worker(self) -> Self:
        degrees = ("tensor_parallel_size", "pipeline_parallel_size")
        workers = 1
        for name in degrees:
            workers *= self.engine_kwargs.get(name, 1)
        if len(self.placement_bundles) != workers:
            raise ValueError(
                f"placement_bundles has {len(self.placement_bundles)} bundles for {workers}"
                f" workers ({' times '.join(degrees)})"
            )
        return self

    @model_validator(mode="after")
    def _accelerator_is_a_gpu(self) -> Self:
        if self.accelerator_type is not None and not self.on_gpu:
            raise ValueError("accelerator_type is set, but placement_bundles hold no GPU")
        return self


def llm_config(settings: VllmSettings) -> dict[str, Any]:
    """The settings as Ray's `LLMConfig` takes them.

    Raises:
        ConfigError: The model's folder is missing.
    """
    deployment: dict[str, Any] = {
        "max_ongoing_requests": settings.max_ongoing_requests,
        "max_queued_requests": settings.max_queued_requests,
        "max_surge_percent": settings.max_surge_percent,
        "graceful_shutdown_timeout_s": settings.graceful_shutdown_timeout_s,
        "ray_actor_options": {"num_cpus": settings.num_cpus},
    }
    if settings.autoscaling is None:
        deployment["num_replicas"] = settings.num_replicas or 1
    else:
        deployment["autoscaling_config"] = settings.autoscaling.model_dump()
    return {
        "model_loading_config": {
            "model_id": settings.model_id,
            "model_source": _source(settings.model_source),
        },
        "accelerator_type": settings.accelerator_type,
        "placement_group_config": {
            "bundles": [dict(bundle) for bundle in settings.placement_bundles],
            "strategy": settings.placement_strategy,
        },
        "deployment_config": deployment,
        "engine_kwargs": dict(settings.engine_kwargs),
        "runtime_env": {"env_vars": dict(settings.env_vars)},
        "experimental_configs": {
            "stream_batching_interval_ms": settings.stream_batching_interval_ms
        },
        "log_engine_metrics": True,
    }


def _source(source: str) -> str:
    """A model's folder as a whole path, for workers that run elsewhere; other sources as given."""
    path = Path(source).expanduser()
    if path.is_dir():
        return str(path.resolve())
    if source.startswith((".", "/", "~")):
        raise ConfigError(
            f"backbone.vllm.model_source: there is no folder {source}; `make models-cpu` writes"
            " those of configs/serve/vllm-cpu.yaml"
        )
    return source
