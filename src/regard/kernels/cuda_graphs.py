"""Capturing a step on a GPU: its hundreds of launches become one, recorded once and replayed for every batch.

A graph uses its own memory, the same each time. So only one search at a time may use it: another search meanwhile, from
this thread or another, records a new graph. And a graph belongs to one stream, on which its uses follow each other
without synchronization.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import RLock
from typing import Any, Generic, Protocol, TypeVar, cast, runtime_checkable

import torch
from torch import Tensor, nn

__all__ = ["Advance", "Captures", "weights_key"]

MAX_RECORDED_STEPS = 4  # recorded steps that are kept: each holds the memory of its batch


@runtime_checkable
class Advancing(Protocol):
    """A process of steps. `advance` changes tensors only in place, and reads none on the host."""

    def advance(self) -> None: ...

    def tensors(self) -> list[Tensor]: ...

    def keep_memory(self) -> None:
        """Copy the tensors, so that no one else writes to them."""


A = TypeVar("A", bound=Advancing)


Advance = Callable[..., None]
"""advance(steps=1): this many steps, with one launch. Each number of steps is a separate graph."""


class Captures(Generic[A]):
    """A cache of graphs by key and shapes; it keeps those that were used last.

    Several threads may share it.
    """

    def __init__(self) -> None:
        self.lock = RLock()  # held while it is looked at, and from `begin` until what that has lent is adopted
        self.kept: OrderedDict[Hashable, tuple[A, Advance]] = OrderedDict()
        self.calls: OrderedDict[Hashable, tuple[list[Tensor], Tensor, Callable[[], None]]] = OrderedDict()
        self.begun: OrderedDict[Hashable, tuple[Tensor, Any, torch.cuda.CUDAGraph] | None] = OrderedDict()

    @contextmanager
    def adopt(self, make: Callable[[], A], *, key: Hashable) -> Iterator[tuple[A, Advance]]:
        """Run the new process in the memory of a free graph of the same shapes, if there is one.

        `key` is everything else that the step depends on. Inside, no one else gets the same graph.
        """
        with self.lock:
            fresh = make()
            tensors = fresh.tensors()
            key = (key, tuple((tensor.shape, tensor.dtype) for tensor in tensors))
            if (found := self.kept.pop(key, None)) is None:
                fresh.keep_memory()
                found = fresh, _each_recorded(fresh.advance)
            else:
                torch._foreach_copy_(found[0].tensors(), tensors)
        try:
            yield found
        finally:
            with self.lock:
                self.kept[key] = found  # of two, the one that was used last
                self.kept.move_to_end(key)
                if len(self.kept) > MAX_RECORDED_STEPS:
                    self.kept.popitem(last=False)

    def call(self, function: Callable[..., Tensor], *inputs: Tensor, key: Hashable) -> Tensor:
        """function(*inputs); on a GPU recorded."""
        if not inputs[0].is_cuda:
            return function(*inputs)
        with self.lock:
            return self._called(function, inputs, key).clone()  # the next call of this shape writes over it

    def _called(self, function: Callable[..., Tensor], inputs: tuple[Tensor, ...], key: Hashable) -> Tensor:
        key = (key, tuple((tensor.shape, tensor.dtype) for tensor in inputs))
        if key not in self.calls:
            held = [tensor.clone() for tensor in inputs]
            out = function(*held).clone()
            self.calls[key] = held, out, _record(lambda: out.copy_(function(*held)))
            if len(self.calls) > MAX_RECORDED_STEPS:
                self.calls.popitem(last=False)
            return out
        held, out, step = self.calls[key]
        self.calls.move_to_end(key)
        torch._foreach_copy_(held, list(inputs))
        step()
        return out

    def begin(self, begin: Callable[[Tensor], Any], prompt: Tensor, capacity: int, *,
              key: Hashable) -> tuple[Any, bool]:
        """begin(prompt), recorded when it comes for the second time; and whether it is lent.

        The result is valid until the next call of this shape, and must not be changed. The caller holds the lock while
        it uses it, as the `make` of `adopt` does.
        """
        key = (key, prompt.shape, capacity)
        if key not in self.begun:
            self.begun[key] = None
            if len(self.begun) > MAX_RECORDED_STEPS:
                self.begun.popitem(last=False)
            return begin(prompt), False
        self.begun.move_to_end(key)
        found = self.begun[key]
        if found is None:
            held, graph = prompt.clone(), torch.cuda.CUDAGraph()
            with _recording(graph):
                state = begin(held)
            found = self.begun[key] = held, state, graph
        held, state, graph = found
        held.copy_(prompt)
        graph.replay()
        return state, True


def weights_key(model: Any) -> Hashable:
    """Where its weights lie, how they are multiplied, and on which stream: what was recorded goes on reading there."""
    found, modules = list[int](), [cast(nn.Module, model)]
    while modules:  # parameters() takes as long for a deep model as a few tokens do
        module = modules.pop()
        modules += (part for part in module._modules.values() if part is not None)
        tensors = (*module._parameters.values(), *module._buffers.values())  # weights of 8 bits are no parameters
        found += (tensor.data_ptr() for tensor in tensors if tensor is not None)
    stream = torch.cuda.current_stream().cuda_stream if next(iter(model.parameters())).is_cuda else None
    return torch.get_float32_matmul_precision(), stream, tuple(found)


_RECORDING = RLock()  # torch records on one stream of its own, whatever the thread


@contextmanager
def _recording(graph: torch.cuda.CUDAGraph) -> Iterator[None]:
    """One at a time. Other threads may use the GPU meanwhile, and find memory on it."""
    with _RECORDING, torch.cuda.graph(graph, capture_error_mode="thread_local"):
        yield


def _each_recorded(advance: Callable[[], None]) -> Advance:
    recorded: dict[int, Callable[[], None]] = {}

    def several(steps: int) -> None:
        for _ in range(steps):
            advance()

    def go_on(steps: int = 1) -> None:
        if steps not in recorded:
            recorded[steps] = _record(partial(several, steps))
        recorded[steps]()

    return go_on


def _record(advance: Callable[[], object]) -> Callable[[], None]:
    """The same step, recorded at its second call and replayed from the third on."""
    graph = torch.cuda.CUDAGraph()
    calls = 0

    def step() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:  # a first call in the open: libraries set themselves up, memory is found
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                advance()
            torch.cuda.current_stream().wait_stream(stream)
            return
        if calls == 2:
            with _recording(graph):
                advance()
        graph.replay()

    return step
