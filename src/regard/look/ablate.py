"""A model without one of its heads."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from regard.look.thread_hooks import eagerly, in_this_thread
from regard.look.watch import sites
from regard.nn.attend import Attend, Attended

__all__ = ["without"]


@contextmanager
def without(model: nn.Module, site: str, head: int) -> Iterator[None]:
    """Inside, the head gives zeros to the output projection, as if it had never been (Michel et al. 2019, 2.3).

    Only for the thread that asks so.

    An earlier CUDA graph is not affected: compare forward passes, or greedy choices along an answer.
    """

    def silence(attend: Attend, inputs: object, attended: Attended) -> Attended:
        context = attended.context.clone()
        context[:, head] = 0
        return attended._replace(context=context)

    attend = sites(model)[site]
    assert 0 <= head < attend.heads, f"{site} has heads 0 to {attend.heads - 1}"
    hook = attend.register_forward_hook(in_this_thread(silence))
    try:
        with eagerly():
            yield
    finally:
        hook.remove()
