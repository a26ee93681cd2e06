"""Kernel: one fast path, and the choice among several."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Lock
from typing import Any, Generic, Literal, TypeVar

import torch
from torch import Tensor

from regard.kernels import launch

__all__ = ["Choices", "Kernel", "allowed", "caching_choices", "choose", "log_kernels", "planning", "run_first", "use"]

Call = TypeVar("Call")
Out = TypeVar("Out")


@dataclass(frozen=True, eq=False)  # equal to itself only, so that choices are quickly found
class Kernel(Generic[Call, Out]):
    """A faster way to compute what a definition in `nn/` says."""

    name: str
    serves: Callable[[Call], bool]
    """Whether it can take this call, and is worth it: dtype, shape, mask. It looks at no value on a GPU."""
    run: Callable[[Call], Out]
    keeps: Callable[[Call], int] | None = None
    """Bytes kept for the backward pass beside the inputs and the output. None: it is made of torch's own operations,
    which `regard plan` traces."""
    device: Literal["any", "cpu", "gpu"] = "any"
    is_installed: bool = True
    """False for a Triton kernel on a machine without Triton."""

    def may_run(self, device: str) -> bool:
        return self.is_installed and self.device in ("any", device) and (_allowed is None or self.name in _allowed)


# For tests and benchmarks: which kernels may run, and which ran. Process-wide, like the machine they stand for.
_allowed: frozenset[str] | None = None
_log: list[str] | None = None
# For `regard plan`, which traces a step without running it.
_stand_in: ContextVar[Callable[[Any, Any], Any] | None] = ContextVar("stand_in", default=None)
_planning = 0  # traces under way, in any thread: compiled code can ask a number, not a context
_planning_lock = Lock()

MAX_CHOICES = 4_096  # that are remembered at a time


class Choices:
    """Which kernel took a call on a CPU, for all calls of that kind: layers and tokens ask the same questions.

    Calls are of one kind if they have the same `cache_key`, the same kernels may run, and gradients and autocast are
    on or off for both. `serves` looks at nothing else, so a choice is never out of date.
    """

    def __init__(self) -> None:
        self.made: dict[Hashable, Kernel[Any, Any] | None] = {}
        self.are_kept = True

    def choose(self, kernels: Sequence[Kernel[Call, Out]], call: Call, cache_key: Hashable) -> Kernel[Call, Out] | None:
        kind = kernels, cache_key, _allowed, torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")
        try:
            return self.made[kind]
        except KeyError:
            kernel = _asked(kernels, call, "cpu")
            if len(self.made) >= MAX_CHOICES:
                self.made.clear()
            if self.are_kept:
                self.made[kind] = kernel
            return kernel

    def forget(self) -> None:
        """From now on every call is asked about."""
        self.are_kept = False
        self.made.clear()


_choices: ContextVar[Choices | None] = ContextVar("choices", default=None)


@contextmanager
def caching_choices(choices: Choices) -> Iterator[None]:
    """Inside, this thread asks about each kind of call once."""
    token = _choices.set(choices)
    try:
        yield
    finally:
        _choices.reset(token)


def choose(kernels: Sequence[Kernel[Call, Out]], call: Call, x: Tensor) -> Kernel[Call, Out] | None:
    """The kernel that takes this call, whose tensors are where `x` is; None leaves it to the definition."""
    device = "gpu" if launch.on_gpu(x) else x.device.type
    # Compiled code asks once anyway, and cannot look into a context.
    if device == "cpu" and not torch.compiler.is_compiling() and (choices := _choices.get()) is not None:
        cache_key: Hashable = getattr(call, "cache_key", None)
        if cache_key is not None:
            return choices.choose(kernels, call, cache_key)
    return _asked(kernels, call, device)


def _asked(kernels: Sequence[Kernel[Call, Out]], call: Call, device: str) -> Kernel[Call, Out] | None:
    for kernel in kernels:
        if kernel.may_run(device) and kernel.serves(call):
            return kernel
    return None


def allowed() -> frozenset[str] | None:
    """The names of the kernels that may run. None: all."""
    return _allowed


def run_first(kernels: Sequence[Kernel[Call, Out]], call: Call, x: Tensor) -> Out | None:
    """The result of the first kernel that serves the call; None if there is none and the definition must run."""
    if _planning and (stand_in := _stand_in.get()) is not None:
        return _planned(kernels, call, x, stand_in)
    kernel = choose(kernels, call, x)
    if kernel is None:
        return None
    if _log is not None:
        _log.append(kernel.name)
    return kernel.run(call)


@contextmanager
def use(*names: str) -> Iterator[list[str]]:
    """Inside, only the kernels of these names run; without a name, only the definitions. Yields the log of them.

    For tests and benchmarks: it holds for the whole process, all threads included.
    """
    with _setting(frozenset(names)) as log:
        yield log


@contextmanager
def log_kernels() -> Iterator[list[str]]:
    """Inside, kernels are chosen as always. Yields the log of the kernels that ran."""
    with _setting(_allowed) as log:
        yield log


@contextmanager
def planning(stand_in: Callable[[Kernel[Any, Any], Any], Any]) -> Iterator[None]:
    """Inside, all kernels count as installed, and one that says what it `keeps` does not run.

    `stand_in(kernel, call)` gives what it would have given.
    """
    global _planning
    with _planning_lock:
        _planning += 1
    token = _stand_in.set(stand_in)
    try:
        yield
    finally:
        _stand_in.reset(token)
        with _planning_lock:
            _planning -= 1


def _planned(kernels: Sequence[Kernel[Call, Out]], call: Call, x: Tensor,
             stand_in: Callable[[Kernel[Call, Out], Call], Out]) -> Out | None:
    device = "gpu" if launch.on_gpu(x) else x.device.type
    for kernel in kernels:
        if kernel.device in ("any", device) and kernel.serves(call):
            return kernel.run(call) if kernel.keeps is None else stand_in(kernel, call)
    return None


@contextmanager
def _setting(allowed: frozenset[str] | None) -> Iterator[list[str]]:
    global _allowed, _log
    before, log = (_allowed, _log), list[str]()
    _allowed, _log = allowed, log
    try:
        yield log
    finally:
        _allowed, _log = before
