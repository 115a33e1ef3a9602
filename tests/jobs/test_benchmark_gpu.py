import ast
import json
import math
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import load_file
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel, BertTokenizer

from jobs import benchmark_gpu
from vmem.config import EncoderSettings, UnitSettings
from vmem.datasets.sample import read_sample
from vmem.encoders.minilm import MiniLM
from vmem.rounds import to_units
from vmem.types import Modality

CPU = benchmark_gpu.Bench(device=torch.device("cpu"), repeats=2, product_rate=1e9)
WORDS = ["a", "b", "c", "d"]
TEXTS = ["a b", "a b c d a", "c", "d d d"]
TOKENS = [2 + 2, 5 + 2, 1 + 2, 3 + 2]
"""Words and the two marks around each text."""


@pytest.fixture
def tiny_bert(tmp_path: Path) -> Path:
    """A folder with a BERT of random weights and a tokenizer of single letters."""
    folder = tmp_path / "weights"
    folder.mkdir()
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    tokenizer = BertTokenizer(str(folder / "vocab.txt"), model_max_length=7)
    assert tokenizer("a b")["input_ids"] == [2, 5, 6, 3]
    tokenizer.save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=48, max_position_embeddings=16,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture
def tiny_tower(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same architecture, two layers deep and 48 wide."""
    smaller = partial(timm.create_model, depth=2, embed_dim=48, num_heads=3)
    monkeypatch.setattr(timm, "create_model", smaller)


@pytest.fixture
def texts_file(tmp_path: Path) -> Path:
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    return path


def counted_flops(model: torch.nn.Module, *inputs: torch.Tensor) -> int:
    model.requires_grad_(False)
    with FlopCounterMode(display=False) as counter:
        model(*inputs)
    return int(counter.get_total_flops())


def test_the_formula_for_texts_counts_what_torch_counts_without_padding(tiny_bert: Path) -> None:
    model = AutoModel.from_pretrained(tiny_bert, attn_implementation="eager").eval()
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    one_by_one = [tokenizer(text, return_tensors="pt")["input_ids"] for text in TEXTS]
    pooler = len(TEXTS) * 2 * 32**2  # BERT computes it, sentence vectors do not read it
    expected = sum(counted_flops(model, ids_BL) for ids_BL in one_by_one) - pooler
    measured = benchmark_gpu.measure_texts(CPU, TEXTS, tiny_bert, [4])
    assert measured["flops"] == expected


@pytest.mark.usefixtures("tiny_tower")
def test_the_formula_for_pictures_counts_what_torch_counts() -> None:
    tower = timm.create_model(benchmark_gpu.VISION, pretrained=False, img_size=64).eval()
    for module in tower.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = False  # torch's counter does not know the fused one of a CPU
    assert benchmark_gpu.vision_flops(tower) == counted_flops(tower, torch.zeros(1, 3, 64, 64))


def test_the_paper_sized_tower_is_a_base_model_on_576_patches() -> None:
    with torch.device("meta"):
        tower: Any = timm.create_model(benchmark_gpu.VISION, pretrained=False)
    tokens, width, inner = (384 // 16) ** 2, 768, 4 * 768
    layers = 12 * benchmark_gpu.layer_flops(tokens, width, inner)
    patches = 2 * tokens * 3 * 16**2 * width
    pooling = 4 * tokens * width**2 + 4 * tokens * width + 4 * width**2 + 4 * width * inner
    assert benchmark_gpu.vision_flops(tower) == layers + patches + pooling


@pytest.mark.usefixtures("tiny_tower")
def test_a_tiny_run_on_the_cpu_reports_what_it_encoded(
    texts_file: Path, tiny_bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    arguments = (
        f"--texts {texts_file} --weights {tiny_bert} --out {out} --device cpu --repeats 2"
        " --matmul 64 --copy-mib 1 --images 3 --side 32 --text-batches 2 4 64 --image-batches 2"
    )
    benchmark_gpu.main(arguments.split())
    results = json.loads(out.read_text())
    texts, images = results["texts"], results["images"]
    assert (texts["items"], texts["tokens"], texts["at_token_limit"]) == (4, sum(TOKENS), 1)
    assert (images["items"], images["tokens"]) == (3, 3 * (32 // 16) ** 2)
    # Longest first: 7 + 5 and 4 + 3 tokens in twos; 64 is more than there are.
    padding = {row["batch"]: row["padding"] for row in texts["batches"]}
    assert padding == {
        2: (2 * 7 + 2 * 4) / sum(TOKENS) - 1,
        4: 4 * 7 / sum(TOKENS) - 1,
    }
    assert [(row["batch"], row["padding"]) for row in images["batches"]] == [(2, 0)]
    product = results["rates"]["product_flops_per_s"]["median"]
    for part in (texts, images):
        for row in part["batches"]:
            rate = row["flops_per_s"]
            assert 0 < rate["q1"] <= rate["median"] <= rate["q3"]
            assert row["of_product_rate"] == pytest.approx(rate["median"] / product)
            for name in ("items", "tokens"):
                ratio = part[name] / part["flops"]
                assert row[f"{name}_per_s"]["median"] == pytest.approx(rate["median"] * ratio)
    printed = capsys.readouterr().out
    assert printed.count(" of bf16 product") == 3
    assert "MiniLM, fp16: 4 inputs, 19 tokens" in printed


def test_the_first_pass_only_warms_up() -> None:
    calls: list[int] = []
    taken = benchmark_gpu.Bench(device=CPU.device, repeats=3).seconds(lambda: calls.append(1))
    assert (len(taken), len(calls)) == (3, 4)


def test_a_batch_too_large_for_the_device_says_so_and_the_others_are_measured(
    tiny_bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed = benchmark_gpu.embed

    def small_device(model: torch.nn.Module, *batch: torch.Tensor) -> torch.Tensor:
        if len(batch[0]) > 2:
            raise torch.OutOfMemoryError
        return embed(model, *batch)

    monkeypatch.setattr(benchmark_gpu, "embed", small_device)
    small, large = benchmark_gpu.measure_texts(CPU, TEXTS, tiny_bert, [2, 4])["batches"]
    assert small["items_per_s"]["median"] > 0
    assert large == {"batch": 4, "out_of_memory": True}


def test_vectors_that_are_not_finite_give_no_result(
    tiny_bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark_gpu, "embed", lambda *_: torch.tensor([math.nan]))
    with pytest.raises(SystemExit, match="not finite"):
        benchmark_gpu.measure_texts(CPU, TEXTS, tiny_bert, [2])


def test_without_a_cuda_device_it_says_in_a_sentence_that_it_was_not_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit) as ended:
        benchmark_gpu.main([])
    # A text as the exit's code is printed, and the status is 1.
    assert ended.value.code == ("The GPU benchmark was not run: torch finds no CUDA device here.")


def test_measuring_imports_nothing_of_vmem_and_only_what_a_bare_machine_has() -> None:
    tree = ast.parse(Path(benchmark_gpu.__file__).read_text())
    modules = {
        alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names
    }
    modules |= {str(node.module) for node in tree.body if isinstance(node, ast.ImportFrom)}
    others = {module.split(".")[0] for module in modules} - sys.stdlib_module_names
    assert others == {"timm", "torch", "transformers"}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ('{"text": "a"}\n{"words": "b"}\n', "line 2 is no text"),
        ('{"text": 7}\n', "line 1 is no text"),
        ("a\n", "line 1 is no text"),
        ("", "holds no text"),
        (None, "No such file"),
    ],
)
def test_texts_that_cannot_be_read_end_the_run(
    content: str | None, sentence: str, tmp_path: Path
) -> None:
    path = tmp_path / "texts.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SystemExit, match=sentence) as ended:
        benchmark_gpu.read_texts(path)
    assert str(path) in str(ended.value.code)


def test_weights_that_are_not_there_end_the_run(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="holds no model"):
        benchmark_gpu.measure_texts(CPU, TEXTS, tmp_path, [2])


def test_preparing_writes_the_text_units_and_fp16_weights_that_give_minilms_vectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("all_minilm_l6_v2", reason="the packaged MiniLM is missing")
    monkeypatch.setattr(benchmark_gpu, "SAMPLE_COPIES", 2)
    benchmark_gpu.main(["--prepare", str(tmp_path)])
    texts = benchmark_gpu.read_texts(tmp_path / "texts.jsonl")
    rounds = read_sample().dialogues[0].rounds
    units = [unit for round_ in rounds for unit in to_units(round_, UnitSettings())]
    assert texts == [unit.text for unit in units if unit.modality is Modality.TEXT] * 2
    weights = tmp_path / "weights"
    assert {each.dtype for each in load_file(weights / "model.safetensors").values()} == {
        torch.float16
    }
    tokenizer = AutoTokenizer.from_pretrained(weights)
    minilm = MiniLM(EncoderSettings(kind="minilm"))
    assert tokenizer.model_max_length == minilm.max_tokens
    batch = tokenizer(texts[:4], padding=True, truncation=True, return_tensors="pt")
    with torch.inference_mode():
        model = AutoModel.from_pretrained(weights).float().eval()
        vectors_ND = benchmark_gpu.embed(model, batch["input_ids"], batch["attention_mask"])
    cosines_N = np.sum(vectors_ND.numpy() * minilm.encode(texts[:4]), axis=1)
    assert cosines_N.min() > 1 - 1e-4
