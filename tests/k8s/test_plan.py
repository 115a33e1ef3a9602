"""The plan's arithmetic, by formulas; what does not fit is said with its key and its limit."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from serve.settings import ServeSettings, load_serve_settings
from vmem.cli import app
from vmem.cluster.plan import plan_cluster
from vmem.cluster.shapes import SHAPES, known_shape, quantisation, read_shape
from vmem.cluster.sizing import GB, Assumed, Load, Measured, Sizing
from vmem.errors import ConfigError


def _settings(name: str = "gpu", **vllm: Any) -> ServeSettings:
    path = Path(__file__).parents[2] / "configs" / "serve" / f"{name}.yaml"
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    values["backbone"]["vllm"] |= vllm
    return load_serve_settings(values)


def _results(sizing: Sizing) -> Mapping[str, str]:
    return {line.what: line.result for lines in sizing.lines.values() for line in lines}


@pytest.mark.parametrize(
    ("name", "published"),
    # The totals that the models' own pages give.
    [("qwen2.5-vl-7b", 8.29e9), ("qwen2.5-vl-32b", 33.5e9), ("smollm2-135m", 134.5e6)],
)
def test_a_models_parameters_come_out_as_published(name: str, published: float) -> None:
    shape = SHAPES[name]
    assert shape.linear_parameters + shape.kept_parameters == pytest.approx(published, rel=0.01)


def test_weights_and_cache_of_the_32b_in_16_bits_on_four_gpus() -> None:
    load, assumed, shape = Load(gpu_gb=80), Assumed(), SHAPES["qwen2.5-vl-32b"]
    results = _results(plan_cluster(_settings(), load))
    weights = (shape.linear_parameters + shape.kept_parameters) * 2
    assert results["weights of Qwen/Qwen2.5-VL-32B-Instruct"] == f"{weights / GB:.1f} GB"
    token = 2 * 64 * 8 * 128 * 2
    assert results["keys and values of one token"] == f"{token:,} B"
    left = 80 * GB * 0.9 - weights / 4 - assumed.gpu_overhead_bytes
    assert results["left for keys and values on each GPU"] == f"{left / GB:.1f} GB"
    tokens, usual = int(left * 4 / token), load.context_tokens + load.answer_tokens
    assert results["contexts held at once by a replica"] == (
        f"{tokens // 32_768} of 32,768 tokens, {tokens // usual} of {usual:,}"
    )
    # 4 replicas of 4 GPUs at most; a quarter of the replicas is one more during an update
    assert results["GPUs of the backbone"] == f"{4 * 4}, and {4} more free while an update runs"


def test_four_bits_leave_embeddings_and_pictures_tower_as_they_are() -> None:
    shape = SHAPES["qwen2.5-vl-7b"]
    name = "Qwen/Qwen2.5-VL-7B-Instruct-AWQ"
    results = _results(plan_cluster(_settings("gpu-7b", model_source=name), Load()))
    bits = 4 + (16 + 4) / 128
    expected = shape.linear_parameters * bits / 8 + shape.kept_parameters * 2
    assert results[f"weights of {name}"] == f"{expected / GB:.1f} GB"


def test_milvus_log_and_retrievers_by_the_units() -> None:
    load = Load(memories=100, rounds=50, units=2, pictures=0.5)
    measured = Measured(
        log_bytes=10, row_bytes=20, loaded_bytes=25, milvus_bytes=GB, hot_bytes=30, lexical_s=0.01
    )
    assumed = Assumed()
    sizing = plan_cluster(_settings(), load, measured=measured, assumed=assumed)
    results = _results(sizing)
    text, images, spare = 100 * 50 * 2, 100 * 50 // 2, 1 + assumed.spare
    vectors = text * 384 * 4 + images * 768 * 4
    loaded, rows = vectors + (text + images) * 25, vectors + (text + images) * 20
    memory = (loaded * 2 + GB) * spare
    assert results["memory of the query nodes (FLAT index)"] == f"{memory / GB:.1f} GB"
    assert results["disk or bucket"] == f"{rows * 2 * spare / GB:.1f} GB"
    assert results["round log (PostgreSQL)"] == f"{100 * 50 * 10 * spare / GB:.1f} GB"
    held = text * (384 * 4 + 30) + images * (768 * 4 + 30)
    assert results["memories held by each Retriever"] == f"{held / GB:.1f} GB"
    assert results["first search of a memory by a Retriever"] == f"{50 * 2 * 0.01:.1f} s"


TOO_MUCH = [
    (_settings, {}, Load(gpu_gb=24), "max_model_len 32,768 does not fit"),
    (_settings, {}, Load(gpu_gb=40, context_tokens=30_000), "max_num_seqs 64 is never reached"),
    (_settings, {}, Load(gpus_per_node=2), "4 GPUs must be on one node (STRICT_PACK), which has 2"),
    (
        _settings,
        {},
        Load(gpu_tokens_per_s=100, answers_per_s=10, answer_tokens=100),
        "max_replicas 4 is too few: 10 are needed",
    ),
    (_settings, {}, Load(memories=10_000), "hot_units 2,000,000 is below the 10,500,000 units"),
    (
        _settings,
        {},
        Load(memories=1, rounds=1_000_000),
        "rounds 1,000,000 of one memory",
    ),
    (_settings, {}, Load(rounds=30_000), "exact_limit 50,000 is below a memory's 63,000 units"),
]


@pytest.mark.parametrize(("make", "vllm", "load", "said"), TOO_MUCH, ids=[s for *_, s in TOO_MUCH])
def test_what_does_not_fit_names_its_key_and_limit(
    make: Any, vllm: dict[str, Any], load: Load, said: str
) -> None:
    fits = plan_cluster(_settings(), Load(memories=10))
    assert fits.warnings == []
    found = plan_cluster(make(**vllm), load).warnings
    assert any(said in warning for warning in found), found


def test_encoders_on_gpus_share_them_and_need_a_share() -> None:
    settings = _settings()
    memory: dict[str, Any] = {"encoders": {"text": {"kind": "minilm", "device": "cuda"}}}
    bare = settings.model_copy(update={"memory": memory})
    warned = plan_cluster(bare, Load(memories=10)).warnings
    assert any("retriever.num_gpus or writer.num_gpus is 0" in each for each in warned)
    shared = bare.model_copy(
        update={
            "retriever": settings.retriever.model_copy(update={"num_gpus": 0.25}),
            "writer": settings.writer.model_copy(update={"num_gpus": 0.25}),
        }
    )
    sizing = plan_cluster(shared, Load(memories=10))
    # 8 retrievers and 1 writer of a quarter each are 2.25 GPUs: 3 whole ones
    assert _results(sizing)["GPUs of the encoders"] == "3"
    assert sizing.gpus == 16 + 3
    assert sizing.warnings == []
    tight = replace(Load(memories=10), gpu_gb=80.0)
    heavy = Assumed(encoder_gpu_bytes=30 * GB)
    assert any(
        "4 replicas on a GPU of 80 GB take 120 GB" in each
        for each in plan_cluster(shared, tight, assumed=heavy).warnings
    )


def test_a_model_not_known_is_described_by_its_config(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model_source some/model.*--model-config"):
        known_shape("some/model")
    path = tmp_path / "config.json"
    inner = {
        "num_hidden_layers": 2,
        "hidden_size": 8,
        "intermediate_size": 16,
        "num_attention_heads": 4,
        "vocab_size": 10,
        "tie_word_embeddings": True,
    }
    path.write_text(json.dumps({"text_config": inner}), encoding="utf-8")
    shape = read_shape(path)
    assert (shape.kv_heads, shape.head_width) == (4, 2)
    # q, k, v, o of 8 × 8, and three of 8 × 16, in two layers
    assert shape.linear_parameters == 2 * (4 * 8 * 8 + 3 * 8 * 16)
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(ConfigError, match="does not describe a model"):
        read_shape(path)


def test_bits_that_are_not_known_are_refused() -> None:
    vllm = _settings(engine_kwargs={"quantization": "awq", "tensor_parallel_size": 4}).backbone.vllm
    assert vllm
    assert quantisation(vllm) == "awq"
    other = vllm.model_copy(update={"engine_kwargs": {"quantization": "bitsandbytes"}})
    with pytest.raises(ConfigError, match=r"quantization bitsandbytes: its bits are not known"):
        quantisation(other)


def test_the_command_prints_every_line_and_says_by_its_status_what_does_not_fit() -> None:
    runner = CliRunner()
    fits = runner.invoke(app, ["cluster", "plan", "-c", "gpu", "--memories", "10", "--json"])
    assert fits.exit_code == 0, fits.output
    printed = json.loads(fits.output)
    assert printed["gpus"] == 16
    assert {line["source"] for lines in printed["lines"].values() for line in lines} == {
        "configured",
        "measured",
        "assumed",
    }
    small = runner.invoke(app, ["cluster", "plan", "-c", "gpu", "--gpu-gb", "24"])
    assert small.exit_code == 1
    assert "max_model_len 32,768 does not fit" in small.output


def test_an_overlays_file_is_a_configuration_too(k8s: Path) -> None:
    path = k8s / "overlays" / "gpu-7b" / "serve.yaml"
    done = CliRunner().invoke(app, ["cluster", "plan", "-c", str(path), "--memories", "10"])
    assert done.exit_code == 0, done.output
    assert "GPUs in all: 4" in done.output


def test_check_reads_serve_configs_and_objects(k8s: Path, tmp_path: Path) -> None:
    serve = k8s / "overlays" / "dev" / "serve.yaml"
    good = CliRunner().invoke(
        app, ["cluster", "check", str(serve), str(k8s / "base/rayservice.yaml")]
    )
    assert good.exit_code == 1  # the base alone names no version: an overlay does
    assert "needs rayVersion 2.52 or later" in good.output
    bad = tmp_path / "serve.yaml"
    bad.write_text(serve.read_text().replace("route_prefix", "rout_prefix"))
    done = CliRunner().invoke(app, ["cluster", "check", str(bad)])
    assert isinstance(done.exception, ConfigError)
    assert "did you mean route_prefix?" in str(done.exception)
