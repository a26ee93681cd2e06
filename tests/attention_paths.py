"""The ways in which attention is computed on this machine: tests force each of them, and see which one ran.

On a CPU, where there is a gradient, small inputs go to the kernel that holds the weights. A test that compares "fast"
with "explicit" then hardly compares, unless a way is forced.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from torch import Tensor

from regard.kernels import attention_batched, table
from regard.kernels.calls import AttentionCall
from regard.kernels.kernel import use
from regard.nn.attend import Attend
from regard.nn.score import DotAttend

__all__ = ["WAYS", "Taken", "forced", "patched", "with_faulty_kernel"]

FUSED = ("attention.window_blocks", "attention.cached_window", "attention.sdpa")
KERNELS = {"explicit": ("attention.explicit",), "fused": FUSED, "batched": ("attention.batched", *FUSED),
           "definition": ()}
WAYS = tuple(KERNELS)
"""Weights that are held; torch's kernel, also over the blocks of a window; batched products, where these can do it; and
no kernel at all."""
NAMES = {"attention.explicit": "explicit", "attention.window_blocks": "fused", "attention.sdpa": "fused",
         "attention.batched": "batched"}

Taken = list[str]
"""Which ways the calls of a dot product took, one after the other; "lines" where no other way could do it."""


@contextmanager
def forced(way: str) -> Iterator[Taken]:
    """Dot products go this way wherever they can. Where batched products cannot do it, torch's kernel does."""
    taken = TakenLog()
    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(attention_batched, "MIN_KEYS", 1))
        patches.enter_context(patched(Attend, "explicit", _logged(taken)))
        if way == "explicit":
            patches.enter_context(patched(table, "ATTENTION", lambda kernels: tuple(
                replace(kernel, serves=_always) if kernel.name == "attention.explicit" else kernel
                for kernel in kernels)))
        taken.log = patches.enter_context(use(*KERNELS[way]))
        yield taken
    allowed = {"explicit": {"explicit"}, "fused": {"fused", "lines"}, "batched": {"batched", "fused", "lines"},
               "definition": {"definition", "lines"}}[way]
    assert set(taken) <= allowed, taken


class TakenLog(list[str]):
    """The log of kernels, in the words of `WAYS`, and the calls of the definition."""

    log: list[str]

    def __iter__(self) -> Iterator[str]:
        yield from (NAMES[name] for name in self.log if name in NAMES)
        yield from super().__iter__()

    def __contains__(self, way: object) -> bool:
        return way in list(iter(self))

    def clear(self) -> None:
        super().clear()
        self.log.clear()


def patched(owner: Any, name: str, change: Callable[[Any], Any]) -> Any:
    """Something in the place of another, made from it."""
    return mock.patch.object(owner, name, change(getattr(owner, name)))


def with_faulty_kernel(name: str, call: Callable[[AttentionCall], AttentionCall] = lambda call: call,
                       out: Callable[[Tensor], Tensor] = lambda out: out) -> tuple[Any, str, Callable[[Any], Any]]:
    """What `patched` wants for a kernel that is asked something else, or whose answer is changed."""
    return table, "ATTENTION", lambda kernels: tuple(
        replace(kernel, run=lambda asked, run=kernel.run: out(run(call(asked)))) if kernel.name == name else kernel
        for kernel in kernels)


def _always(call: AttentionCall) -> bool:
    return True


def _logged(taken: Taken) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def change(explicit: Callable[..., Any]) -> Callable[..., Any]:
        def logging(self: Attend, *given: Any, **named: Any) -> Any:
            if isinstance(self, DotAttend):  # other scores know no other way
                places = named.get("positions")
                taken.append("definition" if places is None or places.visible_keys is None else "lines")
            return explicit(self, *given, **named)

        return logging

    return change
