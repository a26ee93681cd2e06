"""Update: one batch, one optimizer step.

On a GPU the whole update (forward, loss, backward, clipping, optimizer) is captured as a CUDA graph for each of the
few batch shapes and replayed: small models are bound by kernel launches, not by arithmetic.
"""

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from regard.data.batch import Batch
from regard.settings.schema import Train
from regard.tasks.base import Task
from regard.training.optimizer import rate
from regard.training.parallel import World

__all__ = ["CapturedUpdate", "Report", "Update", "deterministic", "is_compiled", "make_update"]

MIN_COMPILED_STEPS = 10_000  # from this many steps, compiling (a minute or two for each shape) saves time


def make_update(model: nn.Module, task: Task[Any, Any], optimizer: torch.optim.Optimizer, how: Train, *,
                device: torch.device, precision: torch.dtype, world: World) -> "Update":
    """The fastest update for the device: on a GPU the whole step is captured, and compiled if that saves time."""
    compiled = is_compiled(how, device.type)
    # Big models are not bound by launches; and a CUDA graph cannot contain recomputation or communication.
    captured = device.type == "cuda" and world.size == 1 and not (how.fsdp or how.activation_checkpointing)
    kind = CapturedUpdate if captured else Update
    return kind(model, task, optimizer, how, precision=precision, compiled=compiled, world=world)


def is_compiled(how: Train, device: str) -> bool:
    return how.compile == "on" or (how.compile == "auto" and device == "cuda" and how.steps >= MIN_COMPILED_STEPS)


@dataclass(frozen=True)
class Report:
    """The result of a step, still on its device: the total of each loss term, and the gradient's norm."""

    totals: dict[str, Tensor]
    norm: Tensor


class Update:
    """Call it with a batch to update the model."""

    def __init__(self, model: nn.Module, task: Task[Any, Any], optimizer: torch.optim.Optimizer, how: Train, *,
                 precision: torch.dtype, compiled: bool = False, world: World = World()) -> None:
        self.model, self.optimizer, self.how, self.world = model, optimizer, how, world
        # Compiled for each shape separately: there are few, and a kernel with constant sizes is faster.
        self.loss = torch.compile(task.loss, dynamic=False) if compiled else task.loss
        if compiled:
            torch._dynamo.config.recompile_limit = max(8, how.length_buckets)
        self.precision = precision
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.device = self.parameters[0].device

    def __call__(self, batch: Batch, step: int, counts: Mapping[str, float] | None = None) -> Report:
        """`counts`: those of all processes together; absent: the batch's own."""
        self.set_rate(rate(step, self.how))
        return self.work(batch.to(self.device), self.shares(counts or batch.counts))

    def set_rate(self, value: float) -> None:
        """Set the learning rate: all groups follow one schedule, each scaled by its ratio."""
        for group in self.optimizer.param_groups:
            height = value * group.get("ratio", 1.0)
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(height)
            else:
                group["lr"] = height

    def shares(self, counts: Mapping[str, float]) -> dict[str, Tensor]:
        """The weight of one counted item in each term. If nothing is counted, the term must stay 0."""
        shares = 1 / torch.tensor(list(counts.values()), dtype=torch.float32).clamp(min=1)
        return dict(zip(counts, shares.to(self.device, non_blocking=True), strict=True))

    def work(self, batch: Batch, shares: dict[str, Tensor]) -> Report:
        with _fastest_attention(self.how, self.device):
            return self._work(batch, shares)

    def _work(self, batch: Batch, shares: dict[str, Tensor]) -> Report:
        self.optimizer.zero_grad(set_to_none=True)
        totals: dict[str, Tensor] = {}
        pieces = batch.pieces(self.how.accumulate)
        for place, piece in enumerate(pieces):
            self.world.expect(last=place == len(pieces) - 1)
            with torch.autocast(self.device.type, self.precision, enabled=self.precision != torch.float32):
                terms = self.loss(self.model, piece)
            weighed = [term.weight * term.total * shares[term.name] for term in terms if term.weight]
            loss = torch.stack(weighed).sum()
            # A loss that is not finite may have finite gradients: this makes them not finite, in all processes.
            loss.backward(1 + 0 * loss.detach())
            for term in terms:
                totals[term.name] = totals.get(term.name, 0) + term.total.detach()
        self.world.finish()
        return Report(totals, self.step())

    def step(self) -> Tensor:
        """Clip and step in one pass over the gradients: the fused optimizer divides by `grad_scale` as it reads.

        It changes nothing if `found_inf` marks the gradient as not finite.
        """
        norm = self.world.norm([p.grad for p in self.parameters if p.grad is not None])
        clip = self.how.grad_clip
        if not self.optimizer.defaults["fused"]:  # Apple's GPUs
            torch.nn.utils.clip_grads_with_norm_(self.parameters, math.inf if clip is None else clip, norm)
            if bool(norm.isfinite()):
                self.optimizer.step()
            return norm
        # Without a scale the optimizer need not write the gradients back.
        self.optimizer.grad_scale = None if clip is None else (norm / clip).clamp(min=1.0)  # type: ignore[attr-defined]
        self.optimizer.found_inf = (~norm.isfinite()).float()  # type: ignore[attr-defined]
        self.optimizer.step()
        return norm


@contextmanager
def deterministic(how: Train) -> Iterator[None]:
    """Bitwise reproducible runs on a GPU, if set; a CPU with the same number of threads is reproducible anyway."""
    before = torch.are_deterministic_algorithms_enabled()
    if how.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(how.deterministic)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


@contextmanager
def _fastest_attention(how: Train, device: torch.device) -> Iterator[None]:
    """cuDNN's kernel before torch's own: forward and backward at 32 × 1024 it takes two thirds of the time."""
    if device.type != "cuda" or how.deterministic:
        yield
        return
    backends = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    with sdpa_kernel(backends, set_priority=True):
        yield


class CapturedUpdate(Update):
    """An update replayed from a CUDA graph for each batch shape. The next step overwrites its report."""

    def __init__(self, model: nn.Module, task: Task[Any, Any], optimizer: torch.optim.Optimizer, how: Train, *,
                 precision: torch.dtype, compiled: bool = False, world: World = World()) -> None:
        super().__init__(model, task, optimizer, how, precision=precision, compiled=compiled, world=world)
        self.graphs: dict[tuple[torch.Size, ...], tuple[torch.cuda.CUDAGraph, Batch, dict[str, Tensor], Report]] = {}
        self.pool = torch.cuda.graph_pool_handle()

    def __call__(self, batch: Batch, step: int, counts: Mapping[str, float] | None = None) -> Report:
        self.set_rate(rate(step, self.how))
        shares = self.shares(counts or batch.counts)
        key = tuple(tensor.shape for tensor in batch.tensors().values())
        if key not in self.graphs:
            return self.capture(key, batch, shares)
        graph, inputs, weights, report = self.graphs[key]
        for name, tensor in inputs.tensors().items():
            tensor.copy_(batch.tensors()[name], non_blocking=True)
        for name, share in weights.items():
            share.copy_(shares[name], non_blocking=True)
        graph.replay()
        return report

    def capture(self, key: tuple[torch.Size, ...], batch: Batch, shares: dict[str, Tensor]) -> Report:
        """Run the first batch of a shape without a graph, as its step; then capture the graph."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            first = self.work(batch.to(self.device), shares)
        torch.cuda.current_stream().wait_stream(stream)
        self.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        inputs = batch.to(self.device).map(torch.clone)
        weights = {name: share.clone() for name, share in shares.items()}
        # Thread-local: the prefetch thread pins memory during the capture.
        with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
            report = self.work(inputs, weights)
        self.graphs[key] = graph, inputs, weights, report
        return first
