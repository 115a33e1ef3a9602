"""Settings of a vLLM backbone: what is refused, and what Ray is given. Needs no vLLM."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from serve.models import VllmSettings, llm_config
from serve.settings import load_serve_settings
from vmem.errors import ConfigError

GPU: dict[str, Any] = {
    "model_id": "qwen2.5-vl-32b",
    "model_source": "Qwen/Qwen2.5-VL-32B-Instruct",
    "accelerator_type": "H100",
    "placement_bundles": [{"GPU": 1, "CPU": 2}] * 2,
    "placement_strategy": "STRICT_PACK",
    "autoscaling": {"min_replicas": 1, "max_replicas": 4, "target_ongoing_requests": 24},
    "max_ongoing_requests": 48,
    "max_surge_percent": 25,
    "engine_kwargs": {"tensor_parallel_size": 2, "enable_prefix_caching": True},
    "env_vars": {"VLLM_NO_USAGE_STATS": "1"},
}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"engine_kwargs": {"max_model_length": 9}}, "did you mean max_model_len"),
        ({"engine_kwargs": {"model": "x"}}, "no argument 'model'"),
        ({"num_replicas": 2}, "exclude each other"),
        ({"placement_bundles": [{"GPU": 1}]}, "1 bundles for 2 workers"),
        ({"placement_bundles": [{"CPU": 1}] * 2}, "hold no GPU"),
        ({"placement_strategy": "SPREAD"}, "STRICT_PACK"),
        ({"max_surge_percent": 101}, "less than or equal to 100"),
        (
            {"autoscaling": {"min_replicas": 5, "max_replicas": 4, "target_ongoing_requests": 1}},
            "m",
        ),
        ({"gpu": 1}, "Extra inputs"),
    ],
)
def test_what_means_nothing_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        VllmSettings(**GPU | changes)


def test_ray_gets_what_was_set() -> None:
    config = llm_config(VllmSettings(**GPU))
    assert config["model_loading_config"]["model_source"] == "Qwen/Qwen2.5-VL-32B-Instruct"
    assert config["placement_group_config"] == {
        "bundles": [{"GPU": 1, "CPU": 2}] * 2,
        "strategy": "STRICT_PACK",
    }
    deployment = config["deployment_config"]
    assert deployment["max_surge_percent"] == 25
    assert deployment["max_ongoing_requests"] == 48
    assert deployment["autoscaling_config"]["max_replicas"] == 4
    assert "num_replicas" not in deployment
    assert config["experimental_configs"] == {"stream_batching_interval_ms": 0}
    assert config["runtime_env"] == {"env_vars": {"VLLM_NO_USAGE_STATS": "1"}}


def test_a_folder_is_named_in_full_and_a_missing_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models").mkdir()
    monkeypatch.chdir(tmp_path)
    found = VllmSettings(model_id="m", model_source="./models")
    assert llm_config(found)["model_loading_config"]["model_source"] == str(tmp_path / "models")
    assert llm_config(found)["deployment_config"]["num_replicas"] == 1
    with pytest.raises(ConfigError, match=r"no folder \./nowhere; `make models-cpu`"):
        llm_config(VllmSettings(model_id="m", model_source="./nowhere"))


@pytest.mark.vllm
def test_ray_makes_the_deployment_of_a_model_on_gpus(metrics_port: int) -> None:
    from serve.vllm import llm_deployment

    deployment = llm_deployment(VllmSettings(**GPU))._bound_deployment
    assert deployment.name == "Backbone:qwen2.5-vl-32b".replace(".", "_")
    options = deployment._deployment_config
    assert (options.max_surge_percent, options.max_ongoing_requests) == (25, 48)
    assert options.autoscaling_config.target_ongoing_requests == 24
    replica = deployment._replica_config
    assert replica.placement_group_strategy == "STRICT_PACK"
    assert [bundle["GPU"] for bundle in replica.placement_group_bundles] == [1, 1]
    assert all(bundle["accelerator_type:H100"] > 0 for bundle in replica.placement_group_bundles)


@pytest.mark.vllm
@pytest.mark.parametrize("name", ["gpu", "gpu-7b"])
def test_ray_takes_the_configurations_for_gpus(metrics_port: int, name: str) -> None:
    from serve.vllm import llm_deployment

    settings = load_serve_settings(name)
    model = settings.backbone.vllm
    assert model is not None
    assert settings.memory_settings().llm.model == model.model_id
    assert settings.memory_settings().llm.window == model.engine_kwargs["max_model_len"]
    deployment = llm_deployment(model)._bound_deployment
    bundles = deployment._replica_config.placement_group_bundles
    assert sum(bundle["GPU"] for bundle in bundles) == model.engine_kwargs.get(
        "tensor_parallel_size", 1
    )
    assert deployment._deployment_config.max_surge_percent == model.max_surge_percent > 0


@pytest.mark.vllm
def test_what_ray_refuses_is_one_sentence(metrics_port: int) -> None:
    from serve.vllm import llm_deployment

    with pytest.raises(ConfigError) as caught:
        llm_deployment(VllmSettings(**GPU | {"accelerator_type": "H9000"}))
    assert str(caught.value).count("\n") == 0
    assert "H9000" in str(caught.value)
