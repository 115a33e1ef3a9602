"""The application: deployments bound to each other, and the HTTP ingress in front of them.

`build` is what a Serve config's `import_path` names: `serve.app:build`.
"""

from collections.abc import Mapping
from typing import Any, cast

from fastapi import FastAPI
from ray import serve as ray_serve
from ray.serve import Application, Deployment
from ray.serve.handle import DeploymentHandle

from serve.backbone import Backbone
from serve.cluster import Cluster
from serve.http import make_app
from serve.retriever import Retriever
from serve.settings import ReplicaSettings, ServeSettings, load_serve_settings
from serve.telemetry import ApiMetrics
from serve.writer import Writer
from vmem.bank import database_url
from vmem.config import Settings
from vmem.stores.keys import KeyStore

NAME = "vmem"
"""The application's name in Serve."""


@ray_serve.deployment
@ray_serve.ingress()
class Api:
    """The ingress: HTTP in, `Service` out.

    Args:
        settings: The application's settings.
        memory: The memory's settings.
        writer: Handle of the `Writer`.
        retriever: Handle of the `Retriever`.
    """

    def __init__(
        self,
        settings: ServeSettings,
        memory: Settings,
        writer: DeploymentHandle[Any],
        retriever: DeploymentHandle[Any],
    ) -> None:
        self._app = make_app(
            Cluster(memory, writer, retriever),
            KeyStore(database_url(memory)),
            settings,
            ApiMetrics(),
            echo_request_id=False,  # Serve's proxy does, which gets it from `WithGoodId`
        )

    def __serve_build_asgi_app__(self) -> FastAPI:  # Serve's name for it
        """The app that Serve runs in this replica."""
        return self._app

    async def drain(self, timeout_s: float) -> bool:
        """Take on nothing more and wait for what is under way; returns whether all of it ended."""
        admission = self._app.state.admission
        admission.drain()
        return bool(await admission.idle(timeout_s))


def build(args: Mapping[str, Any]) -> Application:
    """The application of some settings.

    Args:
        args: `{"config": NAME_OR_FILE}`, or the settings themselves.

    Raises:
        ConfigError: A setting is unknown or does not fit.
    """
    config = args["config"] if set(args) == {"config"} else args
    return bind(load_serve_settings(config))


def bind(settings: ServeSettings, memory: Settings | None = None) -> Application:
    """The application's deployments, each with its options.

    Args:
        settings: The application's settings.
        memory: The memory's settings, where they are not those that the application's name.
    """
    memory = memory or settings.memory_settings()
    writer = _deployment(Writer, settings.writer).bind(memory)
    retriever = _deployment(Retriever, settings.retriever).bind(
        memory, settings.backbone, _backbone(settings, memory)
    )
    api = cast(Deployment, Api).options(**_options(settings.api))
    return api.bind(settings, memory, writer, retriever)


def _backbone(settings: ServeSettings, memory: Settings) -> Application | None:
    if settings.backbone.kind == "embedded":
        return _deployment(Backbone, settings.backbone.replica).bind(memory)
    if settings.backbone.kind == "vllm" and settings.backbone.vllm:
        from serve.vllm import llm_deployment

        return llm_deployment(settings.backbone.vllm)
    return None


def _deployment(kind: type, replica: ReplicaSettings) -> Deployment:
    deployment = cast(Deployment, ray_serve.deployment(kind))
    return deployment.options(name=kind.__name__, **_options(replica))


def _options(replica: ReplicaSettings) -> dict[str, Any]:
    """Serve's options of a deployment."""
    options: dict[str, Any] = {
        "max_ongoing_requests": replica.max_ongoing_requests,
        "max_queued_requests": replica.max_queued_requests,
        "graceful_shutdown_timeout_s": replica.graceful_shutdown_timeout_s,
        "max_surge_percent": replica.max_surge_percent,
        "graceful_shutdown_wait_loop_s": 0.5,
        "health_check_period_s": 2.0,
        "health_check_timeout_s": 30.0,
        "ray_actor_options": {
            "num_cpus": replica.num_cpus,
            "num_gpus": replica.num_gpus,
            "runtime_env": {"env_vars": dict(replica.env)},
        },
    }
    if replica.max_replicas is None:
        return {**options, "num_replicas": replica.replicas}
    scaling = {
        "min_replicas": replica.min_replicas,
        "max_replicas": replica.max_replicas,
        "target_ongoing_requests": replica.target_ongoing_requests,
    }
    return {**options, "autoscaling_config": scaling}
