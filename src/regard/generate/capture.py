"""Capturing a step on a GPU: its hundreds of launches become one, recorded once and replayed for every batch."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import partial
from typing import Generic, Protocol, TypeVar, cast, runtime_checkable

import torch
from torch import Tensor, nn

from regard.generate.steps import State, Steps

__all__ = ["Advance", "Captures", "where"]

MOST = 4  # recorded steps that are kept: each holds the memory of its batch


@runtime_checkable
class Advancing(Protocol):
    """What goes on step by step. `advance` changes tensors in place only and looks at none from the host."""

    def advance(self) -> None: ...

    def tensors(self) -> list[Tensor]: ...

    def keep_memory(self) -> None:
        """From now on nobody else writes to its tensors."""


A = TypeVar("A", bound=Advancing)


Advance = Callable[..., None]
"""advance(steps=1): so many steps, by one launch. Each number of steps is recorded by itself."""


class Captures(Generic[A]):
    """What was recorded, by what it was recorded for; what was used last is kept."""

    def __init__(self) -> None:
        self.kept: OrderedDict[Hashable, tuple[A, Advance]] = OrderedDict()
        self.calls: OrderedDict[Hashable, tuple[list[Tensor], Tensor, Callable[[], None]]] = OrderedDict()
        self.begun: OrderedDict[Hashable, tuple[Tensor, State, torch.cuda.CUDAGraph] | None] = OrderedDict()

    def adopt(self, fresh: A, *, key: Hashable) -> tuple[A, Advance]:
        """Go on with `fresh`, in the memory of one that was recorded for the same shapes where there is one.

        `key` says what besides the shapes decides the step.
        """
        tensors = fresh.tensors()
        key = (key, tuple((tensor.shape, tensor.dtype) for tensor in tensors))
        if key not in self.kept:
            fresh.keep_memory()
            self.kept[key] = fresh, _each_recorded(fresh.advance)
            if len(self.kept) > MOST:
                self.kept.popitem(last=False)
        else:
            torch._foreach_copy_(self.kept[key][0].tensors(), tensors)
            self.kept.move_to_end(key)
        return self.kept[key]

    def call(self, function: Callable[..., Tensor], *inputs: Tensor, key: Hashable) -> Tensor:
        """function(*inputs); on a GPU recorded, and then good until the next call of this shape."""
        if not inputs[0].is_cuda:
            return function(*inputs)
        key = (key, tuple((tensor.shape, tensor.dtype) for tensor in inputs))
        if key not in self.calls:
            held = [tensor.clone() for tensor in inputs]
            out = function(*held).clone()
            self.calls[key] = held, out, _record(lambda: out.copy_(function(*held)))
            if len(self.calls) > MOST:
                self.calls.popitem(last=False)
            return out
        held, out, step = self.calls[key]
        self.calls.move_to_end(key)
        torch._foreach_copy_(held, list(inputs))
        step()
        return out

    def begin(self, begin: Callable[[Tensor], State], prompt: Tensor, capacity: int, *,
              key: Hashable) -> tuple[State, bool]:
        """begin(prompt), recorded when it comes for the second time; and whether it is lent.

        What is lent is good until the next call of this shape, and is not to be changed.
        """
        key = (key, prompt.shape, capacity)
        if key not in self.begun:
            self.begun[key] = None
            if len(self.begun) > MOST:
                self.begun.popitem(last=False)
            return begin(prompt), False
        self.begun.move_to_end(key)
        found = self.begun[key]
        if found is None:
            held, graph = prompt.clone(), torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                state = begin(held)
            found = self.begun[key] = held, state, graph
        held, state, graph = found
        held.copy_(prompt)
        graph.replay()
        return state, True


def where(model: Steps) -> Hashable:
    """Where its weights lie, and how they are multiplied: what was recorded goes on reading there."""
    found, modules = list[int](), [cast(nn.Module, model)]
    while modules:  # parameters() takes as long for a deep model as a few tokens do
        module = modules.pop()
        modules += (part for part in module._modules.values() if part is not None)
        tensors = (*module._parameters.values(), *module._buffers.values())  # weights of 8 bits are no parameters
        found += (tensor.data_ptr() for tensor in tensors if tensor is not None)
    return torch.get_float32_matmul_precision(), tuple(found)


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
            with torch.cuda.graph(graph):
                advance()
        graph.replay()

    return step
