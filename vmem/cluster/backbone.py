"""GPUs of a plan: the backbone's weights, keys and values, and the encoders beside it."""

from math import ceil

from serve.models import VllmSettings
from serve.settings import ReplicaSettings, ServeSettings
from vmem.cluster.shapes import BITS, BYTES_16, ModelShape, known_shape, quantisation
from vmem.cluster.sizing import GB, Assumed, Load, Sizing


def size_backbone(
    sizing: Sizing, vllm: VllmSettings, load: Load, shape: ModelShape | None, assumed: Assumed
) -> None:
    """GPUs of the backbone, and whether weights, cache and work fit them."""
    shape = shape or known_shape(vllm.model_source)
    quant, section = quantisation(vllm), "backbone"
    bits = BITS[quant]
    weights = shape.linear_parameters * bits / 8 + shape.kept_parameters * BYTES_16
    sizing.add(
        section,
        f"weights of {vllm.model_source}",
        f"{shape.linear_parameters / GB:.2f}e9 × {bits:g} bits ({quant or 'bf16'}) / 8"
        f" + {shape.kept_parameters / GB:.2f}e9 × 2 B",
        f"{weights / GB:.1f} GB",
        "configured",
    )
    workers = len(vllm.placement_bundles)
    _cache(sizing, vllm, load, shape, weights / workers, assumed)
    replicas = vllm.autoscaling.max_replicas if vllm.autoscaling else vllm.num_replicas or 1
    surge = ceil(replicas * vllm.max_surge_percent / 100)
    if not vllm.on_gpu:
        return
    sizing.gpus += workers * replicas
    sizing.add(
        section,
        "GPUs of the backbone",
        f"{workers} a replica × {replicas} replicas at most",
        f"{workers * replicas}, and {workers * surge} more free while an update runs",
        "configured",
    )
    if workers > load.gpus_per_node and vllm.placement_strategy == "STRICT_PACK":
        sizing.warnings.append(
            f"backbone.vllm.placement_bundles: {workers} GPUs must be on one node"
            f" (STRICT_PACK), which has {load.gpus_per_node}"
        )
    _throughput(sizing, load, replicas)


def _cache(
    sizing: Sizing,
    vllm: VllmSettings,
    load: Load,
    shape: ModelShape,
    weights: float,
    assumed: Assumed,
) -> None:
    """What is left on each GPU for keys and values, and how many contexts that holds."""
    section, workers = "backbone", len(vllm.placement_bundles)
    share = float(vllm.engine_kwargs.get("gpu_memory_utilization", 0.9))
    usable = load.gpu_gb * GB * share
    left = usable - weights - assumed.gpu_overhead_bytes
    sizing.add(
        section,
        "left for keys and values on each GPU",
        f"{load.gpu_gb:g} GB × {share:g} - {weights / GB:.1f} GB of weights"
        f" - {assumed.gpu_overhead_bytes / GB:g} GB for CUDA and the largest pass",
        f"{left / GB:.1f} GB",
        "assumed",
    )
    length = int(vllm.engine_kwargs.get("max_model_len", load.context_tokens))
    token = shape.kv_bytes_per_token
    sizing.add(
        section,
        "keys and values of one token",
        f"2 × {shape.layers} layers × {shape.kv_heads} heads × {shape.head_width} × 2 B",
        f"{token:,} B",
        "configured",
    )
    tokens = max(0, int(left * workers / token))
    usual = load.context_tokens + load.answer_tokens
    sizing.add(
        section,
        "contexts held at once by a replica",
        f"{left / GB:.1f} GB × {workers} / {token:,} B = {tokens:,} tokens",
        f"{tokens // length} of {length:,} tokens, {tokens // usual} of {usual:,}",
        "assumed",
    )
    if tokens < length:
        sizing.warnings.append(
            f"backbone.vllm.engine_kwargs.max_model_len {length:,} does not fit: a replica has room"
            f" for {tokens:,} tokens; take more or larger GPUs, 4-bit weights, or a shorter context"
        )
        return
    batch = int(vllm.engine_kwargs.get("max_num_seqs", 0))
    if batch > tokens // usual:
        sizing.warnings.append(
            f"backbone.vllm.engine_kwargs.max_num_seqs {batch} is never reached: a replica holds"
            f" {tokens // usual} contexts of {usual:,} tokens, and others wait"
        )


def _throughput(sizing: Sizing, load: Load, replicas: int) -> None:
    if load.gpu_tokens_per_s is None:
        return
    needed = ceil(load.answers_per_s * load.answer_tokens / load.gpu_tokens_per_s)
    sizing.add(
        "backbone",
        "replicas for the answers asked for",
        f"{load.answers_per_s:g} answers/s × {load.answer_tokens} tokens"
        f" / {load.gpu_tokens_per_s:g} tokens/s a replica",
        str(needed),
        "given",
    )
    if needed > replicas:
        sizing.warnings.append(
            f"backbone.vllm.autoscaling.max_replicas {replicas} is too few: {needed} are needed"
        )


def size_encoders(sizing: Sizing, settings: ServeSettings, load: Load, assumed: Assumed) -> None:
    """GPUs that replicas with encoders share."""
    parts = {"retriever": settings.retriever, "writer": settings.writer}
    share = sum(_most(each) * each.num_gpus for each in parts.values())
    memory = settings.memory_settings().encoders
    for name, encoder in (("text", memory.text), ("image", memory.image)):
        on_gpu = encoder.device != "cpu"
        if on_gpu and not all(each.num_gpus for each in parts.values()):
            sizing.warnings.append(
                f"memory.encoders.{name}.device is {encoder.device}, but retriever.num_gpus or"
                " writer.num_gpus is 0: Ray shows such a replica no GPU"
            )
    if not share:
        return
    count = ceil(share)
    sizing.gpus += count
    sums = " + ".join(f"{_most(r)} {n}s × {r.num_gpus:g}" for n, r in parts.items())
    sizing.add("encoders", "GPUs of the encoders", sums, f"{count}", "configured")
    densest = max(int(1 / each.num_gpus) for each in parts.values() if each.num_gpus)
    taken = densest * assumed.encoder_gpu_bytes
    sizing.add(
        "encoders",
        "memory of a GPU that they share",
        f"{densest} replicas × {assumed.encoder_gpu_bytes / GB:g} GB",
        f"{taken / GB:g} GB",
        "assumed",
    )
    if taken > load.gpu_gb * GB:
        sizing.warnings.append(
            f"retriever.num_gpus: {densest} replicas on a GPU of {load.gpu_gb:g} GB take"
            f" {taken / GB:g} GB"
        )


def _most(replica: ReplicaSettings) -> int:
    return replica.max_replicas or replica.replicas
