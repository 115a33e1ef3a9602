"""Each overlay's serve.yaml: Ray's schema with unknown keys refused, imported, args checked."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from serve.at_proxy import proxy_env
from serve.settings import load_serve_settings
from vmem.cluster.serve_config import BUILD, read_serve_config
from vmem.errors import ConfigError

OVERLAYS = ("dev", "gpu", "gpu-7b")
CLOSEST = {"dev": "embedded", "gpu": "gpu", "gpu-7b": "gpu-7b"}
ABSENT = object()
DIFFERENT = {
    # Behind an ingress nobody is local: every caller needs a key.
    "dev": {
        "name": "dev",
        "memory.name": "dev",
        "http.host": "0.0.0.0",
        "http.open_on_loopback": ABSENT,
    },
    # Encoders on quarters of a GPU; pods of the backbone have no logical CPU to give.
    "gpu": {
        "memory.encoders.text.device": "cuda",
        "memory.encoders.image.device": "cuda",
        "retriever.num_gpus": 0.25,
        "writer.num_gpus": 0.25,
        "backbone.vllm.placement_bundles": [{"GPU": 1}] * 4,
    },
    # The paper's quantisation.
    "gpu-7b": {
        "memory.llm.model": "Qwen/Qwen2.5-VL-7B-Instruct-AWQ",
        "backbone.vllm.model_id": "Qwen/Qwen2.5-VL-7B-Instruct-AWQ",
        "backbone.vllm.model_source": "Qwen/Qwen2.5-VL-7B-Instruct-AWQ",
        "backbone.vllm.placement_bundles": [{"GPU": 1}],
    },
}
"""What an overlay's args have otherwise than `configs/serve/`, and nothing else."""


@pytest.fixture
def config(k8s: Path, overlay: str) -> str:
    return (k8s / "overlays" / overlay / "serve.yaml").read_text(encoding="utf-8")


def _flat(values: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(values, dict):
        return {path: values}
    return {
        name: value
        for key, inner in values.items()
        for name, value in _flat(inner, f"{path}.{key}" if path else key).items()
    }


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_ray_and_vmem_take_it_whole(config: str, overlay: str) -> None:
    settings = read_serve_config(config, overlay)
    assert list(settings) == ["vmem"]
    assert settings["vmem"].name == overlay
    assert not settings["vmem"].http.open_on_loopback
    app = yaml.safe_load(config)["applications"][0]
    assert (app["import_path"], app["route_prefix"]) == (BUILD, "/")


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_it_differs_from_the_settings_of_one_machine_where_it_must(
    config: str, overlay: str, k8s: Path
) -> None:
    closest = k8s.parent / "configs" / "serve" / f"{CLOSEST[overlay]}.yaml"
    ours = _flat(yaml.safe_load(config)["applications"][0]["args"])
    theirs = _flat(yaml.safe_load(closest.read_text(encoding="utf-8")))
    different = {
        key: ours.get(key, ABSENT)
        for key in ours.keys() | theirs.keys()
        if ours.get(key, ABSENT) != theirs.get(key, ABSENT)
    }
    assert different == DIFFERENT[overlay]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_pods_have_what_a_local_start_sets(k8s: Path, config: str, overlay: str) -> None:
    """The proxies' bound and hook, and one event loop a replica, as serve.launch has them."""
    settings = read_serve_config(config, overlay)["vmem"]
    literals: dict[str, str] = {}
    for folder, name in (("base", "vmem-env"), (f"overlays/{overlay}", "serving-env")):
        kustomization = yaml.safe_load((k8s / folder / "kustomization.yaml").read_text())
        (made,) = [m for m in kustomization["configMapGenerator"] if m["name"] == name]
        literals |= dict(each.split("=", 1) for each in made["literals"])
    local = {
        "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
        "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",
        "RAY_SERVE_USE_GRPC_BY_DEFAULT": "1",
        "RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH": str(2**31 - 1),
        "RAY_worker_niceness": "0",
        "RAY_task_events_report_interval_ms": "0",
        "TOKENIZERS_PARALLELISM": "false",
    }
    launch = (k8s.parent / "serve" / "launch.py").read_text(encoding="utf-8")
    assert not [name for name in local if name not in launch]
    assert (proxy_env(settings) | local).items() <= literals.items()


GOOD = {"applications": [{"name": "vmem", "import_path": BUILD, "args": {"config": "embedded"}}]}


def _with(path: str, value: Any) -> str:
    values: Any = yaml.safe_load(yaml.safe_dump(GOOD))
    held = values
    *way, last = path.split(".")
    for key in way:
        held = held[int(key)] if isinstance(held, list) else held.setdefault(key, {})
    held[last] = value
    return yaml.safe_dump(values)


def test_a_name_in_args_is_settings_too() -> None:
    read = read_serve_config(yaml.safe_dump(GOOD), "x")
    assert read == {"vmem": load_serve_settings("embedded")}


APP = "applications.0"
BAD = [
    ("proxy_place", "HeadOnly", "Serve knows no key proxy_place: did you mean proxy_location?"),
    ("http_options.prot", 8000, "Serve knows no key http_options.prot: did you mean port?"),
    (f"{APP}.rout_prefix", "/", f"knows no key {APP}.rout_prefix: did you mean route_prefix?"),
    (
        f"{APP}.deployments",
        [{"name": "Api", "num_replica": 2}],
        f"{APP}.deployments.0.num_replica: did you mean num_replicas?",
    ),
    (
        f"{APP}.deployments",
        [{"name": "Api", "autoscaling_config": {"max_replica": 2}}],
        "autoscaling_config.max_replica: did you mean max_replicas?",
    ),
    ("http_options.port", "many", "http_options.port"),
    (f"{APP}.import_path", "serve.nothing:build", "serve.nothing:build cannot be imported"),
    (f"{APP}.import_path", "serve.app:nothing", "serve.app:nothing cannot be imported"),
    (f"{APP}.args", {"admision": {}}, "admision"),
    (f"{APP}.args", {"admission": {"search": 0}}, "admission.search"),
    (f"{APP}.args", {"config": "no-such"}, "no settings named 'no-such'"),
    (f"{APP}.args", {"memory": {"retrieval": {"topk": 3}}}, "memory.retrieval.topk"),
]


@pytest.mark.parametrize(("path", "value", "said"), BAD, ids=[f"{p} {s}" for p, _, s in BAD])
def test_what_does_not_fit_is_one_sentence_with_its_key(path: str, value: Any, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_serve_config(_with(path, value), "the file")
    assert said in str(caught.value)
    assert str(caught.value).startswith("the file")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["- a", "a: [", ""])
def test_what_is_no_mapping_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="the file"):
        read_serve_config(text, "the file")
