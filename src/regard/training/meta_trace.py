"""Trace: the memory and the operations of one step, found without running it.

The task's real loss and its backward pass run on tensors that have a shape but no content (torch's meta device), so a
model of any size is traced in a second, on any machine, and a new model needs no code here.
"""

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.flop_counter import flop_registry

from regard.kernels.calls import AttentionCall
from regard.kernels.kernel import Kernel, planning
from regard.training.meta_kernels import FusedAttention, read_outlined

__all__ = ["Trace", "blocks_of", "trace"]

GRAIN = 512  # bytes: torch's allocator on a GPU rounds every tensor up to a multiple


@dataclass(frozen=True)
class Trace:
    """Bytes in memory at some moments of a step, in addition to the weights and the batch; and the operations."""

    kept: int
    """Activations that the forward pass keeps for the backward pass, without the weights' copies."""
    compiled: int
    """The same if it is compiled."""
    copies: int
    """The weights in the precision of the products."""
    blocks: tuple[tuple[int, int], ...]
    """The bytes that each block keeps, and the size of its output: a recomputed block keeps nothing else."""
    forward: int
    """The most at any moment of the forward pass."""
    product: int
    """The largest product that it computes and does not keep: a piece of the logits."""
    backward: int
    """The most at any moment of the backward pass, with the gradients so far."""
    products: tuple[tuple[int, int], ...]
    """Floating-point operations, and bytes read and written, of each matrix product and attention."""
    passes: int
    """Bytes that everything else reads and writes."""
    launches: int
    """Kernels."""

    @property
    def operations(self) -> int:
        return sum(operations for operations, _ in self.products)


def trace(model: nn.Module, loss: Callable[[], Tensor], *, device: str, precision: torch.dtype,
          accumulates: bool = False) -> Trace:
    """Run `loss` and its backward pass as if `model`, which is on the meta device, were on `device`.

    A step that accumulates is traced in its second piece, when all gradients are there already.
    """
    stand_in, ledger = StandIn(device, precision), Ledger()
    blocks: list[tuple[int, int]] = []
    model.zero_grad(set_to_none=True)
    with ExitStack() as stack:
        for block in blocks_of(model):
            stack.enter_context(_watched(block, ledger, stand_in, blocks))
        for cell in [part for part in model.modules() if isinstance(part, nn.RNNBase)]:
            stack.enter_context(read_outlined(cell, stand_in.cast))
        stack.enter_context(planning(_outlined))
        stack.enter_context(ledger)
        for _ in range(1 + accumulates):
            before = ledger.begin()
            blocks.clear()
            with _autocast(device, precision), torch.device("meta"), stand_in:
                value = loss()
            copies = stand_in.copied
            kept, forward = ledger.held - copies - before, ledger.most
            compiled, product = kept + ledger.change_if_compiled(), ledger.largest_product()
            stand_in.forget()
            ledger.most = ledger.held
            with torch.device("meta"), stand_in:
                value.backward()
            del value
    model.zero_grad(set_to_none=True)
    return Trace(kept, compiled, copies, tuple(blocks), forward, product, ledger.most, tuple(ledger.products),
                 ledger.passes, ledger.launches)


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """The blocks of its towers."""
    return [block for name, part in model.named_modules()
            if isinstance(part, nn.ModuleList) and name.endswith("blocks") for block in part]


@contextmanager
def _autocast(device: str, precision: torch.dtype) -> Iterator[None]:
    """Set the state that `torch.autocast` sets; autocast itself refuses a device that is missing."""
    enabled, dtype = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    torch.set_autocast_enabled(device, precision != torch.float32)
    torch.set_autocast_dtype(device, precision)
    try:
        yield
    finally:
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, dtype)


@contextmanager
def _watched(block: nn.Module, ledger: "Ledger", stand_in: "StandIn", found: list[tuple[int, int]]) -> Iterator[None]:
    """Record the bytes that a block keeps: with its output, without its input."""
    before: list[int] = []

    def enter(*_: object) -> None:
        before.append(ledger.held - stand_in.copied)

    def leave(module: nn.Module, inputs: object, output: object) -> None:
        found.append((ledger.held - stand_in.copied - before.pop(), sum(map(_size, _tensors(output)))))

    hooks = block.register_forward_pre_hook(enter), block.register_forward_hook(leave)
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


class StandIn(TorchFunctionMode):
    """Makes meta tensors behave as on a device: autocast, dropout, fused attention."""

    def __init__(self, device: str, precision: torch.dtype) -> None:
        super().__init__()
        self.device, self.precision = torch.device(device), precision
        self.copies: dict[Tensor, Tensor] = {}
        self.copied = 0

    def __torch_function__(self, function: Callable[..., Any], types: Any, args: Sequence[Any] = (),
                           kwargs: Mapping[str, Any] | None = None) -> Any:
        kwargs = dict(kwargs or {})
        if function == Tensor.device.__get__:
            return self.device
        if kwargs.get("device") is not None:
            kwargs["device"] = "meta"
        if function in (F.linear, torch.matmul, Tensor.matmul, torch.addmm, F.conv2d):
            args, kwargs = tree_map(self.cast, (tuple(args), kwargs))
        elif function is F.scaled_dot_product_attention:
            return self.attend(*map(self.cast, args), **kwargs)
        elif self.device.type == "cuda" and function in ON_A_GPU:
            return ON_A_GPU[function](*args, **kwargs)
        return function(*args, **kwargs)

    def cast(self, x: Any) -> Any:
        """Cast like autocast: a parameter is cast once in a step, and the copy is shared."""
        if not isinstance(x, Tensor) or x.dtype != torch.float32 or not torch.is_autocast_enabled(self.device.type):
            return x
        if not (x.is_leaf and x.requires_grad):
            return x.to(self.precision)
        if x not in self.copies:
            self.copies[x] = x.to(self.precision)
            self.copied += _size(self.copies[x])
        return self.copies[x]

    def forget(self) -> None:
        self.copies.clear()
        self.copied = 0

    def attend(self, q: Tensor, k: Tensor, v: Tensor, *, attn_mask: Tensor | None, dropout_p: float, is_causal: bool,
               scale: float, enable_gqa: bool) -> Tensor:
        """The kernel that the device would take."""
        aten, half = torch.ops.aten, q.dtype != torch.float32
        flash = half and attn_mask is None
        if enable_gqa and self.device.type == "cuda" and not flash:  # these kernels want keys for each head
            k, v = (part.repeat_interleave(q.shape[1] // part.shape[1], dim=1) for part in (k, v))
        if attn_mask is not None:
            bias = attn_mask.to(q.dtype) if attn_mask.dtype == torch.bool else attn_mask
            attn_mask = bias.expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2])
        if self.device.type == "cpu" and dropout_p == 0:
            context = aten._scaled_dot_product_flash_attention_for_cpu(
                q, k, v, 0.0, is_causal, attn_mask=attn_mask, scale=scale)[0]
        elif self.device.type != "cuda":
            context = aten._scaled_dot_product_attention_math(q, k, v, attn_mask, dropout_p, is_causal, scale=scale)[0]
        elif flash:
            context = aten._scaled_dot_product_flash_attention(q, k, v, dropout_p, is_causal, scale=scale)[0]
        else:
            context = aten._scaled_dot_product_efficient_attention(
                q, k, v, attn_mask, True, dropout_p, is_causal, scale=scale)[0]
        return context  # type: ignore[no-any-return]


def _outlined(kernel: Kernel[AttentionCall, Tensor], call: AttentionCall) -> Tensor:
    assert kernel.keeps is not None
    return FusedAttention.apply(call.q, call.k, call.v, kernel.keeps(call))  # type: ignore[no-any-return, no-untyped-call]


def _dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    return torch.native_dropout(x, p, training)[0] if p and training else x


def _rms_norm(x: Tensor, shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """Its kernel keeps the same tensors as LayerNorm's."""
    return F.layer_norm(x, list(shape), weight, None, eps or 1e-5)


# Operations with one kernel in torch, which it would decompose here.
ON_A_GPU: dict[Callable[..., Any], Callable[..., Tensor]] = {F.dropout: _dropout, F.rms_norm: _rms_norm}


@dataclass
class Held:
    """One storage: its size, the storages it was computed from, and whether it was kept."""

    size: int
    operation: Any
    sources: "list[Held]"
    elements: int
    read: bool = False
    """Read by a product: then it is in memory, compiled or not."""
    gone: bool = False

    @property
    def is_product(self) -> bool:
        return self.operation.overloadpacket in flop_registry


class Ledger(TorchDispatchMode):
    """Counts every storage once, from the operation that creates it until it is freed."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.alive: dict[int, Held] = {}
        self.held = 0
        self.begin()

    def begin(self) -> int:
        """Count operations from here on; return the bytes already in memory."""
        self.made: list[Held] = []
        self.products: list[tuple[int, int]] = []
        self.passes = self.launches = 0
        self.most = self.held
        return self.held

    def __torch_dispatch__(self, operation: Any, types: Any, args: Sequence[Any] = (),
                           kwargs: Mapping[str, Any] | None = None) -> Any:
        output = operation(*args, **(kwargs or {}))
        if _is_view(operation):
            return output
        inputs, outputs = _tensors((args, kwargs)), _tensors(output)
        known = {tensor.untyped_storage()._cdata for tensor in inputs}  # weights and the batch among them
        sources = [self.alive[key] for key in known if key in self.alive]
        for tensor in outputs:
            key = tensor.untyped_storage()._cdata
            if key not in known and key not in self.alive:
                self._take(tensor, operation, sources)
        self.launches += 1
        moved = sum(map(_bytes, inputs + outputs))
        if (count := flop_registry.get(operation.overloadpacket)) is None:
            self.passes += moved
        else:
            self.products.append((int(count(*args, **(kwargs or {}), out_val=output)), moved))
            for source in sources:
                source.read = True
        return output

    def _take(self, tensor: Tensor, operation: Any, sources: list[Held]) -> None:
        storage = tensor.untyped_storage()
        key, one = storage._cdata, Held(_size(tensor), operation, sources, tensor.numel())
        self.alive[key] = one
        self.made.append(one)
        self.held += one.size
        self.most = max(self.most, self.held)
        weakref.finalize(storage, self._let_go, key)

    def _let_go(self, key: int) -> None:
        one = self.alive.pop(key)
        one.gone = True
        self.held -= one.size

    def change_if_compiled(self) -> int:
        """Bytes by which the compiler changes the kept activations.

        A tensor that follows elementwise from a kept one is recomputed in the backward pass, unless a product reads
        it. A relu's gradient is kept as a separate mask (seen with torch 2.13, whose partitioner finds that as cheap
        as the output).
        """
        change = 0
        for one in (one for one in self.made if not one.gone):
            rectified = one.operation.overloadpacket is torch.ops.aten.relu
            again = torch.Tag.pointwise in one.operation.tags and not any(source.gone for source in one.sources)
            change += one.elements if rectified else 0
            change -= one.size if (again or rectified) and not one.read else 0
        return change

    def largest_product(self) -> int:
        return max((one.size for one in self.made if one.gone and one.is_product), default=0)


def _is_view(operation: Any) -> bool:
    """Whether the output is a view of the input, which costs nothing."""
    return any(result.alias_info is not None and not result.alias_info.is_write for result in operation._schema.returns)


def _tensors(tree: Any) -> list[Tensor]:
    return [tensor for tensor in tree_leaves(tree) if isinstance(tensor, Tensor)]


def _size(tensor: Tensor) -> int:
    """Bytes that the tensor's storage takes."""
    return -(-tensor.untyped_storage().nbytes() // GRAIN) * GRAIN


def _bytes(tensor: Tensor) -> int:
    """Bytes that are read or written to go through it; an expanded dimension is read once."""
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())
