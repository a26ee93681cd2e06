"""Estimate a training step before it runs: parameters, memory, time. Arithmetic over a `Trace`."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.batch import Batch, BatchSampler, BatchSpec
from regard.device import available, fast_bfloat16, size_in_words
from regard.look.watch import sites
from regard.settings.schema import Train
from regard.tasks.base import Sizes, Task
from regard.training.meta_trace import Trace, blocks_of, trace
from regard.training.muon import operations
from regard.training.optimizer import muon_matrices
from regard.training.trainable import trainable_model
from regard.training.update import is_compiled

__all__ = [
    "MACHINES",
    "Estimate",
    "Machine",
    "MemoryUse",
    "Parameters",
    "attention_operations",
    "bytes_sent",
    "estimate",
    "memory",
    "outlook",
    "precision_of",
    "seconds",
]

FLOAT, HALF = 4, 2  # bytes of a number: of weights, gradients and the optimizer; of the products
MOMENTS = 2  # numbers AdamW keeps for each parameter; Muon keeps one for each of its matrices
ADAMW_PASSES = 7  # numbers it moves for each: the weight, its gradient and two moments, and all but the gradient back
SGD_PASSES = 9  # the division by the scale, the mask and the product with the rate take two each, and the sum three
MOMENTUM_PASSES = 7  # two for its factor, three for the sum, two for the copy
MUON_PASSES, MUON_HELD = 25, 4  # that Muon moves for each; and that it holds, of those that it works on at a time

# Calibrated with benchmarks/plan.py on an H200. Without the compiler, torch's operations run one by one, and the trace
# is exact. The compiler fuses neighbouring operations into one kernel: intermediate results are never in memory.
COMPILED_LOGITS = 1  # pieces of logits in memory at once: the gradient overwrites them in place
COMPILED_PASSES = 0.5  # of the bytes that go through memory between the products
COMPILED_LAUNCHES = 0.4  # of the kernels
WORKSPACE = 32 * 2**20  # bytes that cuBLAS takes for each stream
STREAMS = 2  # the first batch of a shape runs on one, its graph is captured on another

PRODUCTS_REACH = 0.70  # of a GPU's peak that large products get
PASSES_REACH = 0.80  # of its memory's speed
LAUNCH = 1.5e-6  # seconds from one kernel of a captured graph to the next
RAMP = 5e-6  # seconds at the start and end of a product below that speed


@dataclass(frozen=True)
class Machine:
    """A GPU by its data sheet."""

    half: float
    """Operations a second in bfloat16."""
    single: float
    """The same in float32."""
    bandwidth: float
    """Bytes a second from and to its memory."""
    memory: int
    """Bytes."""
    link: float
    """Bytes a second to the other GPUs of its machine."""


MACHINES = {
    "h200": Machine(989e12, 67e12, 4.80e12, 150_100_000_000, 450e9),
    "h100": Machine(989e12, 67e12, 3.35e12, 84_900_000_000, 450e9),
    "a100": Machine(312e12, 19.5e12, 2.04e12, 84_900_000_000, 300e9),
    "4090": Machine(165e12, 82e12, 1.01e12, 25_200_000_000, 32e9),
    "l4": Machine(121e12, 30e12, 0.30e12, 23_600_000_000, 32e9),
}


@dataclass(frozen=True)
class Parameters:
    """The number of parameters. A shared one counts once."""

    parts: dict[str, int]
    frozen: dict[str, int]
    """How many of them are frozen."""
    block: int
    """Of the largest block."""
    matrices: dict[torch.Size, int]
    """Shapes of the blocks' matrices, and the number of each."""

    @property
    def total(self) -> int:
        return sum(self.parts.values())

    @property
    def learning(self) -> int:
        return self.total - sum(self.frozen.values())

    def sent(self, how: Train) -> int:
        """How many of them the processes send to each other: only trainable ones have gradients."""
        return self.total if how.fsdp else self.learning

    @property
    def shares(self) -> str:
        """A line with the trainable and the frozen parts."""
        counts = {name: count - self.frozen.get(name, 0) for name, count in self.parts.items()}
        return (f"learning: {_counted(counts)} ({self.learning / self.total:.2%} of all); "
                f"frozen: {_counted(self.frozen) or 'nothing'}")

    @classmethod
    def of(cls, model: nn.Module) -> "Parameters":
        parts = {"embeddings": 0, **{name: 0 for name, _ in model.named_children()}, "output": 0}
        frozen = Counter[str]()
        for name, parameter in model.named_parameters():
            parts[_part(name)] = parts.get(_part(name), 0) + parameter.numel()
            if not parameter.requires_grad:
                frozen[_part(name)] += parameter.numel()
        largest = max((sum(p.numel() for p in block.parameters()) for block in blocks_of(model)), default=0)
        matrices = Counter(piece.shape for p, rows in muon_matrices(model).items() for piece in p.split(rows))
        return cls({name: count for name, count in parts.items() if count}, dict(frozen), largest, dict(matrices))


def _counted(parts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in parts.items() if count)


def _part(name: str) -> str:
    """Which part of a model a parameter belongs to.

    >>> [_part(name) for name in ("encoder.inputs.norm.weight", "decoder.blocks.0.self.out.bias", "output.weight")]
    ['embeddings', 'decoder', 'output']
    >>> _part("encoder.inputs.stages.0.1.shortcut.norm.bias")  # of a resnet, whose blocks are its inputs
    'encoder'
    """
    words = name.split(".")
    if "adapters" in words:
        return "adapters"
    if not {"blocks", "stages"} & set(words) and {"inputs", "tokens", "positions"} & set(words):
        return "embeddings"
    return "output" if "output" in words else words[0]


@dataclass(frozen=True, kw_only=True)
class MemoryUse:
    """Bytes on one device. The parts add up to more than the total: gradients appear while activations are freed."""

    weights: int
    gradients: int
    optimizer: int
    copies: int
    """Weights in the precision of the products; if sharded, those that are gathered at a time."""
    activations: int
    logits: int
    """Temporary memory of the loss."""
    workspace: int
    total: int
    """The peak, as in `torch.cuda.max_memory_allocated`."""
    reserved: int
    """The total and the private memory of the graphs of other shapes: the device needs this much."""


@dataclass(frozen=True)
class Estimate:
    """The estimate of a step, without running it."""

    parameters: Parameters
    traced: Trace
    memory: MemoryUse


def estimate(task: Task[Any, Any], sizes: Sizes, batch: Batch, how: Train, *, device: str, precision: torch.dtype,
             gpus: int = 1, shapes: int | None = None) -> Estimate:
    """The estimate for a step with this batch, one process's share. Only the shapes of its tensors matter."""
    with torch.device("meta"):
        model = trainable_model(task, sizes)
    piece = batch.map(lambda tensor: torch.empty_like(tensor, device="meta")).pieces(how.accumulate)[0]

    def loss() -> Tensor:
        return torch.stack([term.weight * term.total for term in task.loss(model, piece) if term.weight]).sum()

    traced = trace(model.train(), loss, device=device, precision=precision, accumulates=how.accumulate > 1)
    parameters = Parameters.of(model)
    return Estimate(parameters, traced, memory(parameters, traced, how, device=device, gpus=gpus, shapes=shapes))


def memory(parameters: Parameters, traced: Trace, how: Train, *, device: str, gpus: int = 1,
           shapes: int | None = None) -> MemoryUse:
    """Memory of one process: at the end of the forward pass, in the backward pass, or in the optimizer step."""
    blocks = len(traced.blocks)
    shards = gpus if how.fsdp else 1
    weights = FLOAT * parameters.total // shards
    stacks = parameters.matrices if how.optimizer == "muon" else {}
    moved = sum(count * shape.numel() for shape, count in stacks.items())
    gradients = FLOAT * parameters.learning // shards
    kept = bool(how.momentum) if how.optimizer == "sgd" else MOMENTS
    optimizer = FLOAT * (kept * parameters.learning - moved) // shards
    # If a batch is processed in pieces, the gradients of the earlier pieces exist from the beginning.
    before = FLOAT * parameters.learning if how.accumulate > 1 else 0
    arriving = max(0, traced.backward - traced.copies - traced.kept)  # gradients when the backward pass is fullest
    if is_compiled(how, device):
        activations, logits = traced.compiled, COMPILED_LOGITS * traced.product
    else:
        activations, logits = traced.kept, traced.forward - before - traced.copies - traced.kept
    copies = late_copies = traced.copies
    again = 0
    if how.activation_checkpointing:
        share = activations / max(1, traced.kept)
        again = round(share * max((kept for kept, _ in traced.blocks), default=0))
        activations -= round(share * sum(kept for kept, _ in traced.blocks))
        activations += sum(output for _, output in traced.blocks)
        late_copies = copies // max(1, blocks)
    if how.fsdp:
        # One block is gathered while the next is on its way; weights outside the blocks stay whole.
        copies = late_copies = HALF * (2 * parameters.block + max(0, parameters.total - blocks * parameters.block))
        arriving = gradients + FLOAT * parameters.block
    forward = (gradients if before else 0) + copies + activations + logits
    backward = late_copies + activations + again + arriving
    if shards > 1:  # all matrices at a time: each process has its share of them, or one
        stepping = max(moved // shards, max((shape.numel() for shape in stacks), default=0))
    else:
        stepping = max((count * shape.numel() for shape, count in stacks.items()), default=0)
    most = max(forward, backward, gradients + MUON_HELD * FLOAT * stepping)
    workspace = WORKSPACE * STREAMS if device == "cuda" else 0
    total = weights + optimizer + workspace + most
    # The first batch of a new shape runs without a graph, while the earlier graphs keep their memory.
    beside = most if device == "cuda" and (shapes or how.length_buckets) > 1 else 0
    return MemoryUse(weights=weights, gradients=gradients, optimizer=optimizer, copies=copies,
                  activations=activations + again, logits=logits, workspace=workspace, total=total,
                  reserved=total + beside)


def seconds(parameters: Parameters, traced: Trace, how: Train, machine: Machine, *, precision: torch.dtype,
            gpus: int = 1) -> float:
    """Computed seconds of an update: the larger of operations and bytes for a product, bytes for everything else.

    Communication overlaps with computation: it counts if it takes longer.
    """
    compiled = is_compiled(how, "cuda")
    peak = PRODUCTS_REACH * (machine.half if precision != torch.float32 else machine.single)
    speed = PASSES_REACH * machine.bandwidth
    products = sum(max(operations / peak, moved / speed) + RAMP for operations, moved in traced.products)
    passes = traced.passes * (COMPILED_PASSES if compiled else 1) / speed
    launches = traced.launches * (COMPILED_LAUNCHES if compiled else 1) * LAUNCH
    work = (products + passes + launches) * how.accumulate * (4 / 3 if how.activation_checkpointing else 1)
    shards = gpus if how.fsdp else 1
    moved = (SGD_PASSES + MOMENTUM_PASSES * bool(how.momentum)) if how.optimizer == "sgd" else ADAMW_PASSES
    update = moved * FLOAT * parameters.learning / shards / speed
    if how.optimizer == "muon":
        numbers = sum(count * shape.numel() for shape, count in parameters.matrices.items()) / shards
        costs = [operations(*shape) for shape, count in parameters.matrices.items() for _ in range(count)]
        update += (MUON_PASSES - ADAMW_PASSES) * FLOAT * numbers / speed
        update += max([sum(costs) / shards, *costs]) / peak  # no matrix is shared
        swapped = 2 * (shards - 1) / shards * numbers * (FLOAT if precision == torch.float32 else HALF)
        update += swapped / machine.link  # not overlapped
    return max(work, bytes_sent(parameters.sent(how), how, gpus) / machine.link) + update


def bytes_sent(parameters: int, how: Train, gpus: int) -> float:
    """Bytes each process sends in a step.

    Data parallel: the gradients, in float32, go around a ring twice. Sharded: the weights are gathered in half
    precision, once for each pass, and the gradients are reduced to their shards.
    """
    return (gpus - 1) / gpus * parameters * (2 * HALF + FLOAT if how.fsdp else 2 * FLOAT)


def attention_operations(model: nn.Module, length: int, window: int | None = None) -> int:
    """Operations of attention per token, in addition to 6 per parameter for the weights (Kaplan et al. 2020, 2.1).

    Every query meets every key of its row, masked ones included, in two products, and each product costs twice as much
    in the backward pass: 12 × the width of all heads × the keys (Chowdhery et al. 2022, appendix B).
    """
    keys = length if window is None else min(length, window + 1)
    return 12 * keys * sum(attend.heads * attend.width for attend in sites(model).values())


def precision_of(how: Train, device: torch.device | None) -> torch.dtype:
    """The precision of the products; without a device, that of a GPU."""
    if how.precision == "auto":
        return torch.bfloat16 if device is None or fast_bfloat16(device) else torch.float32
    return torch.bfloat16 if how.precision == "bfloat16" else torch.float32


def outlook(task: Task[Any, Any], sizes: Sizes, plan: BatchSampler, how: Train, *, device: torch.device,
            precision: torch.dtype, gpus: int = 1) -> str:
    """A line for the start of a run: its parameters, and the memory for the largest of its batches."""
    bucket = max(plan.buckets, key=lambda bucket: bucket.rows * bucket.length)
    chosen = BatchSpec(bucket.members[: bucket.rows], bucket.rows, bucket.length).share(0, gpus)
    batch = task.data.collate("train", chosen)
    found = estimate(task, sizes, batch, how, device=device.type, precision=precision, gpus=gpus,
                     shapes=len(plan.buckets))
    needed, there = found.memory, available(device)
    text = f"{found.parameters.total:,} parameters; about {size_in_words(needed.reserved)} of memory"
    if there is None:
        return text
    too_much = "; that may not fit: `regard plan` suggests settings that fit" * (needed.reserved > there)
    return f"{text} of {size_in_words(there)}{too_much}"
