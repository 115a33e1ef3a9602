"""Measures the encoders of Table 5 alone on one GPU, against that GPU's own rates.

    python -m jobs.benchmark_gpu --prepare FOLDER [--benchmark NAME=DIR ...]
    python jobs/benchmark_gpu.py --texts FOLDER/texts.jsonl --weights FOLDER/weights [--out FILE]

The second needs torch, transformers and timm, not vmem nor a network. Texts run through MiniLM in
fp16, random pictures through a bf16 vision tower of SigLIP2's shape with random weights, whose
speed does not depend on them. Token ids and pictures lie on the device before, vectors stay there:
tokenising, decoding and copies are in no rate. Without --texts, copies of the sample stand in.
"""

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import timm
import torch
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer

VISION = "vit_base_patch16_siglip_384"
SAMPLE_COPIES = 200
FORMULA = """FLOPs of a layer over L tokens, width D, inner width F: 8LD² + 4LDF + 4L²D; texts: \
real tokens, no padding; pictures also: patches of P values 2LPD, pooling 4LD² + 4LD + 4D² + 4DF"""
Figures = dict[str, Any]
Pass = tuple[Callable[[], Tensor], int]
"""What encodes all inputs once, and its tokens, padding included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Where and how often to measure; `product_rate` is the device's own, in FLOPs a second."""

    device: torch.device
    repeats: int
    product_rate: float = math.nan

    def seconds(self, work: Callable[[], object]) -> list[float]:
        """The time of each repeat after one to warm up; the device ends each idle."""
        marks = []
        for _ in range(self.repeats + 1):
            work()
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
            marks.append(time.perf_counter())
        return [end - start for start, end in pairwise(marks)]


def layer_flops(tokens: int, width: int, inner: int) -> int:
    """A transformer layer: four projections, the MLP's two, scores and their mix."""
    return 8 * tokens * width**2 + 4 * tokens * width * inner + 4 * tokens**2 * width


def vision_flops(tower: Any) -> int:  # noqa: ANN401
    """One picture through timm's SigLIP tower: patches, layers, attention pooling."""
    tokens, width = tower.patch_embed.num_patches, tower.embed_dim
    inner, patch = tower.blocks[0].mlp.fc1.out_features, tower.patch_embed.proj.weight[0].numel()
    pooling = 4 * width * (tokens * width + tokens + width + inner)
    layers = len(tower.blocks) * layer_flops(tokens, width, inner)
    return int(2 * tokens * patch * width + layers + pooling)


def measure_rates(bench: Bench, size: int, copy_mib: int) -> Figures:
    """The device's rates: a square bf16 product (2n³ FLOPs), a copy (bytes read and written)."""
    left = torch.randn(size, size, device=bench.device).bfloat16()
    right, product = torch.randn_like(left), torch.empty_like(left)
    products = bench.seconds(lambda: torch.mm(left, right, out=product))
    source = torch.ones(copy_mib * 2**20, dtype=torch.uint8, device=bench.device)
    target = torch.empty_like(source)
    copies = bench.seconds(lambda: target.copy_(source))
    return {"product_size": size, "product_flops_per_s": _spread(2 * size**3, products),
            "copied_bytes_per_s": _spread(2 * source.numel(), copies)}  # fmt: skip


def measure_texts(bench: Bench, texts: list[str], weights: Path, sizes: list[int]) -> Figures:
    """MiniLM over all texts, the longest first, by batch size."""
    if not (weights / "config.json").is_file():
        raise SystemExit(f"{weights} holds no model: --prepare makes that folder.")
    device = bench.device
    tokenizer = AutoTokenizer.from_pretrained(weights, local_files_only=True)
    model = AutoModel.from_pretrained(weights, local_files_only=True)
    model = model.to(device, torch.float16).eval()
    ids = sorted(tokenizer(texts, truncation=True)["input_ids"], key=len, reverse=True)
    lengths = [len(each) for each in ids]
    layers, width, inner = (model.config.num_hidden_layers, model.config.hidden_size,
                            model.config.intermediate_size)  # fmt: skip

    def encode_by(size: int) -> Pass:
        parts = [ids[start : start + size] for start in range(0, len(ids), size)]
        padded = [tokenizer.pad({"input_ids": part}, return_tensors="pt") for part in parts]
        batches = [(p["input_ids"].to(device), p["attention_mask"].to(device)) for p in padded]
        tokens = sum(ids_BL.numel() for ids_BL, _ in batches)
        return lambda: torch.cat([embed(model, *batch) for batch in batches]), tokens

    head = {"what": "MiniLM, fp16", "items": len(texts), "tokens": sum(lengths),
            "at_token_limit": lengths.count(tokenizer.model_max_length),
            "flops": sum(layers * layer_flops(n, width, inner) for n in lengths)}  # fmt: skip
    return _sweep(bench, head, sizes, encode_by)


def embed(model: nn.Module, ids_BL: Tensor, mask_BL: Tensor) -> Tensor:
    """Unit vectors (B, D): the mean over a text's tokens, as all-MiniLM-L6-v2 pools them."""
    states_BLD = model(input_ids=ids_BL, attention_mask=mask_BL).last_hidden_state.float()
    return nn.functional.normalize((states_BLD * mask_BL.unsqueeze(-1)).sum(1), dim=1)


def measure_images(bench: Bench, count: int, side: int, sizes: list[int]) -> Figures:
    """The vision tower over random pictures, by batch size."""
    tower: Any = timm.create_model(VISION, pretrained=False, num_classes=0, img_size=side)
    tower = tower.to(bench.device, torch.bfloat16).eval()
    images_NCHW = torch.randn(count, 3, side, side, device=bench.device, dtype=torch.bfloat16)
    tokens = count * tower.patch_embed.num_patches

    def encode_by(size: int) -> Pass:
        batches = torch.split(images_NCHW, size)
        return lambda: torch.cat([tower(batch) for batch in batches]), tokens

    head = {"what": f"{VISION} at {side} px, random weights, bf16", "items": count,
            "tokens": tokens, "flops": count * vision_flops(tower)}  # fmt: skip
    return _sweep(bench, head, sizes, encode_by)


def _sweep(bench: Bench, head: Figures, sizes: list[int], by: Callable[[int], Pass]) -> Figures:
    """Rates by batch size; one too large for the device's memory says so and has none."""
    rows: list[Figures] = []
    for size in sorted({min(size, head["items"]) for size in sizes}):
        try:
            work, padded_tokens = by(size)
            if not torch.isfinite(work()).all():
                raise SystemExit(f"{head['what']}: vectors are not finite, so nothing is reported.")
            taken = bench.seconds(work)
        except torch.OutOfMemoryError:
            rows.append({"batch": size, "out_of_memory": True})
            continue
        rates = {f"{n}_per_s": _spread(head[n], taken) for n in ("items", "tokens", "flops")}
        share = rates["flops_per_s"]["median"] / bench.product_rate
        padding = padded_tokens / head["tokens"] - 1
        rows.append({"batch": size, "padding": padding, **rates, "of_product_rate": share})
    return head | {"batches": rows}


def _spread(amount: float, seconds: Sequence[float]) -> dict[str, float]:
    """Median and quartiles of a rate over repeats."""
    rates = [amount / each for each in seconds]
    low, median, high = statistics.quantiles(rates, n=4, method="inclusive")
    return {"q1": low, "median": median, "q3": high}


def _lines(results: Figures) -> Iterator[str]:
    rates = results["rates"]
    yield f"{results['device']}, torch {results['torch']}: median (IQR) of {results['repeats']}"
    yield f"bf16 product: {_cell(rates['product_flops_per_s'], 1e12)} TFLOP/s"
    yield f"copy, read and written: {_cell(rates['copied_bytes_per_s'], 1e12)} TB/s"
    for part in (results["texts"], results["images"]):
        yield f"\n{part['what']}: {part['items']:,} inputs, {part['tokens']:,} tokens"
        for row in part["batches"]:
            if "out_of_memory" in row:
                yield f"batch {row['batch']:>5}  not measured: out of memory"
                continue
            yield (
                f"batch {row['batch']:>5}  {_cell(row['items_per_s']):<28} inputs/s"
                f"{row['tokens_per_s']['median']:>12,.0f} tokens/s {row['padding']:>7.1%} padding"
                f"{row['flops_per_s']['median'] / 1e12:>9.2f} TFLOP/s"
                f"{row['of_product_rate']:>7.1%} of bf16 product"
            )
    yield f"\n{results['formula']}"


def _cell(rate: dict[str, float], unit: float = 1) -> str:
    median, low, high = (f"{rate[name] / unit:,.4g}" for name in ("median", "q1", "q3"))
    return f"{median} ({low} to {high})"


def read_texts(path: Path) -> list[str]:
    """The `text` of each line of a JSONL file; what cannot be read ends the run in a sentence."""
    texts: list[str] = []
    try:
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                texts.append("" + json.loads(line)["text"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        where = f"{path} line {len(texts) + 1}"
        raise SystemExit(f"{where} is no text ({error!r}): --prepare makes the file.") from error
    if not texts:
        raise SystemExit(f"{path} holds no text: --prepare makes the file.")
    return texts


def prepare(folder: Path, benchmarks: Sequence[str]) -> None:
    """Write `texts.jsonl`, all text units of `NAME=DIR` benchmarks, and MiniLM's fp16 `weights`.

    Raises:
        VmemError: A benchmark or the packaged MiniLM cannot be read.
    """
    from vmem.config import UnitSettings
    from vmem.datasets import read_benchmark
    from vmem.datasets.sample import read_sample
    from vmem.encoders.minilm import packaged_model
    from vmem.rounds import to_units

    named = [each.partition("=") for each in benchmarks]
    read = [read_benchmark(name, Path(place)) for name, _, place in named]
    dialogues = [d for each in read or [read_sample()] * SAMPLE_COPIES for d in each.dialogues]
    rounds = [round_ for dialogue in dialogues for round_ in dialogue.rounds]
    units = [unit for round_ in rounds for unit in to_units(round_, UnitSettings())]
    lines = [json.dumps({"text": unit.text}) + "\n" for unit in units if unit.modality == "text"]
    model = packaged_model()
    limit = json.loads((model / "sentence_bert_config.json").read_text())["max_seq_length"]
    tokenizer = AutoTokenizer.from_pretrained(model, model_max_length=limit)
    tokenizer.save_pretrained(folder / "weights")
    AutoModel.from_pretrained(model).half().save_pretrained(folder / "weights")
    (folder / "texts.jsonl").write_text("".join(lines))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, or prepare; with no CUDA device say so and exit with status 1."""
    args = _options(arguments)
    if args.prepare:
        prepare(args.prepare, args.benchmark)
        return
    device = torch.device(args.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SystemExit("The GPU benchmark was not run: torch finds no CUDA device here.")
    bench = Bench(device=device, repeats=args.repeats)
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        if not (args.texts and args.weights):
            prepare(Path(folder), ())
        texts = read_texts(args.texts or Path(folder, "texts.jsonl"))
        weights = args.weights or Path(folder, "weights")
        rates = measure_rates(bench, args.matmul, args.copy_mib)
        bench = replace(bench, product_rate=rates["product_flops_per_s"]["median"])
        results = {
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
            "torch": torch.__version__,
            "repeats": bench.repeats,
            "formula": FORMULA,
            "rates": rates,
            "texts": measure_texts(bench, texts, weights, args.text_batches),
            "images": measure_images(bench, args.images, args.side, args.image_batches),
        }
    sys.stdout.writelines(f"{line}\n" for line in _lines(results))
    if args.out:
        args.out.write_text(json.dumps(results, indent=1))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    for name in ("--prepare", "--texts", "--weights", "--out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--benchmark", nargs="+", action="extend", default=[])
    parser.add_argument("--device", default="cuda")
    numbers = {"images": 1003, "side": 384, "matmul": 16384, "copy-mib": 4096, "repeats": 7}
    for name, number in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--text-batches", type=int, nargs="+", default=[64, 256, 1024, 4096])
    parser.add_argument("--image-batches", type=int, nargs="+", default=[16, 64, 256, 512])
    options = parser.parse_args(arguments)
    if options.repeats < 2:
        parser.error("--repeats must be 2 or more: quartiles need them.")
    return options


if __name__ == "__main__":
    main()
