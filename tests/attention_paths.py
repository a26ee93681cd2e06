"""The ways in which attention is computed on this machine: tests force each of them, and see which one ran.

On a CPU, autograd makes `DotAttend` prefer the definition for small inputs. A test that compares "fast" with "explicit"
then compares the definition with itself, unless a way is forced.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch.nn.functional as F

from regard.nn import attend, batched, few, near, short
from regard.nn.attend import Attend, DotAttend

__all__ = ["WAYS", "Taken", "forced", "patched"]

WAYS = ("explicit", "fused", "batched")
"""The definition; torch's kernel, also over the blocks of a window; and batched products, where these can do it."""

Taken = list[str]
"""Which ways the calls of `DotAttend` took, one after the other; "lines" of the definition where no other can do it."""

KERNELS = {  # what each way ends in
    "fused": (F, "scaled_dot_product_attention"), "batched": (batched, "attend"), "short": (short, "attend"),
    "few": (few, "attend"), "near": (near, "attend")}


@contextmanager
def forced(way: str) -> Iterator[Taken]:
    """`DotAttend` goes this way wherever it can. Where batched products cannot do it, torch's kernel does."""
    taken: Taken = []
    assert way in WAYS
    serves = batched.serves
    with ExitStack() as patches:
        for name, (module, function) in KERNELS.items():
            patches.enter_context(patched(module, function, _logged(taken, name)))
        patches.enter_context(patched(Attend, "forward", _logged_definition(taken)))
        patches.enter_context(mock.patch.object(attend, "_cheaper_explicit", return_value=way == "explicit"))
        patches.enter_context(mock.patch.object(batched, "SHORTEST", 1))
        patches.enter_context(mock.patch.object(
            batched, "serves", lambda *given: way == "batched" and serves(*given)))
        yield taken
    allowed = {"explicit": {"explicit"}, "fused": {"fused"}, "batched": {"batched", "fused"}}[way]
    assert set(taken) <= {*allowed, "lines"}, taken


def patched(owner: Any, name: str, change: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Any:
    """A function or method in the place of another one, made from it."""
    return mock.patch.object(owner, name, change(getattr(owner, name)))


def _logged(taken: Taken, way: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def change(function: Callable[..., Any]) -> Callable[..., Any]:
        def logging(*given: Any, **named: Any) -> Any:
            taken.append(way)
            return function(*given, **named)

        return logging

    return change


def _logged_definition(taken: Taken) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def change(forward: Callable[..., Any]) -> Callable[..., Any]:
        def logging(self: Attend, *given: Any, **named: Any) -> Any:
            if isinstance(self, DotAttend):  # other scores know no other way
                places = named.get("positions")
                taken.append("explicit" if places is None or places.lines is None else "lines")
            return forward(self, *given, **named)

        return logging

    return change
