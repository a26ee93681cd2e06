"""What a step of training needs, before it runs: parameters, memory, time. Arithmetic over a `Trace`."""

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.batch import Batch
from regard.settings.schema import Train
from regard.tasks.base import Task
from regard.training.trace import Trace, trace
from regard.training.update import LONG

__all__ = ["MACHINES", "Machine", "Memory", "Parameters", "is_compiled", "memory", "seconds", "trace_task"]

FLOAT, HALF = 4, 2  # bytes of a number: weights, gradients and the optimiser's; products'
MOMENTS = 2  # numbers AdamW keeps for each parameter

# What the benchmark (benchmarks/plan.py, on an H200) is there to correct. Uncompiled, torch's own operations run one by
# one and the trace is exact. The compiler melts neighbours into one kernel, and what only passes between them is
# never held.
COMPILED_KEPT = 1.0  # of what is kept: products' inputs, which the compiler has to keep too
COMPILED_LOGITS = 0.25  # of the loss's pieces: logits and their gradient in half precision; no float32, no softmax
COMPILED_PASSES = 0.35  # of the bytes that go through memory between the products
COMPILED_LAUNCHES = 0.4  # of the kernels
WORKSPACE = 32 * 2**20  # bytes cuBLAS takes for each stream on a Hopper GPU
STREAMS = 2  # the first batch of a shape runs on one, its graph is captured on another

PRODUCTS_REACH = 0.70  # of a GPU's peak: what large products get on an H200
PASSES_REACH = 0.80  # of its memory's speed
LAUNCH = 1.5e-6  # seconds from one kernel of a captured graph to the next


@dataclass(frozen=True)
class Machine:
    """A GPU by its data sheet: operations a second in bfloat16 and float32, bytes a second, bytes."""

    half: float
    single: float
    bandwidth: float
    memory: int
    link: float
    """Bytes a second to other GPUs of the same machine, in one direction."""


MACHINES = {
    "h200": Machine(989e12, 67e12, 4.8e12, 150_100_000_000, 450e9),
    "h100": Machine(989e12, 67e12, 3.35e12, 84_900_000_000, 450e9),
    "a100": Machine(312e12, 19.5e12, 2.04e12, 84_900_000_000, 300e9),
    "l4": Machine(121e12, 30e12, 0.3e12, 23_600_000_000, 32e9),
    "rtx4090": Machine(165e12, 82e12, 1.01e12, 25_200_000_000, 32e9),
}


@dataclass(frozen=True)
class Parameters:
    """How many numbers are trained, each counted once, however often it is used."""

    parts: dict[str, int]
    block: int
    """Of the largest block."""

    @property
    def total(self) -> int:
        return sum(self.parts.values())

    @classmethod
    def of(cls, model: nn.Module) -> "Parameters":
        parts = {"embeddings": 0, **{name: 0 for name, _ in model.named_children()}, "output": 0}
        for name, parameter in model.named_parameters():
            parts[_part(name)] = parts.get(_part(name), 0) + parameter.numel()
        blocks = [block for part in model.modules() if isinstance(part, nn.ModuleList) for block in part]
        largest = max((sum(p.numel() for p in block.parameters()) for block in blocks), default=0)
        return cls({name: count for name, count in parts.items() if count}, largest)


def _part(name: str) -> str:
    """Which part a parameter belongs to, by its name.

    >>> [_part(name) for name in ("encoder.tokens.table.weight", "decoder.blocks.0.self.out.bias", "output.weight")]
    ['embeddings', 'decoder', 'output']
    """
    words = name.split(".")
    if "blocks" not in words and ("tokens" in words or "positions" in words):
        return "embeddings"
    return "output" if "output" in words else words[0]


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes on one device. The kinds do not add up to the total: gradients come as activations go."""

    weights: int
    gradients: int
    optimizer: int
    copies: int
    """Weights in the precision of the products; sharded: those that are gathered at a time."""
    activations: int
    logits: int
    workspace: int
    total: int
    """The most at any one moment: what `torch.cuda.max_memory_allocated` will say."""
    reserved: int
    """The total and what captured graphs of other shapes hold on to beside it: what the device must have."""

    def kinds(self) -> dict[str, int]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


def memory(parameters: Parameters, traced: Trace, how: Train, *, device: str, gpus: int = 1) -> Memory:
    """What one of the processes holds; each works on its share of the batch, for which the trace was taken."""
    shards = gpus if how.shard else 1
    weights = FLOAT * parameters.total // shards
    gradients, optimizer = weights, MOMENTS * weights
    compiled = is_compiled(how, device)
    activations = round(traced.kept * (COMPILED_KEPT if compiled else 1))
    begin = FLOAT * parameters.total if how.accumulate > 1 else 0  # gradients of the pieces before
    logits = max(0, traced.forward - traced.kept - traced.copies - begin)
    logits = round(logits * (COMPILED_LOGITS if compiled else 1))
    beyond = max(0, traced.backward - traced.kept - traced.copies)  # the gradients that are there when it is fullest
    copies, again = traced.copies, 0
    if how.recompute:
        again = max((kept for kept, _ in traced.blocks), default=0)
        activations -= sum(kept - output for kept, output in traced.blocks)
    if how.shard:
        # One block is gathered while the next is fetched; what is no block stays gathered.
        copies = HALF * (2 * parameters.block + parameters.total - parameters.block * len(traced.blocks))
        beyond = gradients + FLOAT * parameters.block
    last_copies = copies // max(1, len(traced.blocks)) if how.recompute and not how.shard else copies
    forward = (gradients if begin else 0) + copies + activations + logits
    backward = last_copies + activations + again + beyond
    workspace = WORKSPACE * STREAMS if device == "cuda" else 0
    fullest = max(forward, backward, gradients)
    total = weights + optimizer + workspace + fullest
    # The first batch of a new shape runs in the open, beside the memory that the graphs before it hold on to.
    beside = fullest if device == "cuda" and how.shapes > 1 else 0
    return Memory(weights=weights, gradients=gradients, optimizer=optimizer, copies=copies,
                  activations=activations + again, logits=logits, workspace=workspace, total=total,
                  reserved=total + beside)


def seconds(parameters: Parameters, traced: Trace, how: Train, machine: Machine, *, precision: torch.dtype,
            gpus: int = 1) -> float:
    """One update by arithmetic: every product takes the longer of its operations and its bytes, the rest its bytes."""
    compiled = is_compiled(how, "cuda")
    peak = PRODUCTS_REACH * (machine.half if precision != torch.float32 else machine.single)
    speed = PASSES_REACH * machine.bandwidth
    products = sum(max(operations / peak, moved / speed) for operations, moved in traced.products)
    passes = traced.passes * (COMPILED_PASSES if compiled else 1) / speed
    launches = traced.launches * (COMPILED_LAUNCHES if compiled else 1) * LAUNCH
    piece = (products + passes + launches) * (4 / 3 if how.recompute else 1)
    # AdamW reads weight, gradient and two moments and writes all but the gradient.
    update = FLOAT * 7 * parameters.total / (gpus if how.shard else 1) / speed
    return max(piece * how.accumulate, wire(parameters.total, how, gpus) / machine.link) + update


def wire(parameters: int, how: Train, gpus: int) -> float:
    """Bytes each process sends in a step.

    Data parallel: a ring sums float32 gradients, each part going round twice. Sharded: weights are gathered in half
    precision for the forward and again for the backward pass, and gradients are summed to where they belong.
    """
    ring = (gpus - 1) / gpus
    return ring * parameters * ((2 * HALF + FLOAT) if how.shard else 2 * FLOAT)


def is_compiled(how: Train, device: str) -> bool:
    return how.compile == "on" or (how.compile == "auto" and device == "cuda" and how.steps >= LONG)


def trace_task(task: Task[Any], model: nn.Module, batch: Batch, how: Train, *, device: str,
               precision: torch.dtype) -> Trace:
    """The trace of a piece of a batch. `model` is on the meta device; of the batch only the shape counts."""
    piece = batch.map(lambda tensor: torch.empty_like(tensor, device="meta")).pieces(how.accumulate)[0]

    def loss() -> Tensor:
        return torch.stack([term.weight * term.total for term in task.loss(model, piece) if term.weight]).sum()

    return trace(model, loss, device=device, precision=precision, accumulates=how.accumulate > 1)
