"""Hooks on a model that other threads may be asking at the same time.

A hook belongs to a module, so every thread that runs the module calls it. But code that looks into a model, or changes
the output of a part of it, means only the calls of one thread: the one that registered the hook.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Lock, get_ident
from typing import Any

import torch

__all__ = ["eagerly", "in_this_thread"]


def in_this_thread(hook: Callable[..., Any]) -> Callable[..., Any]:
    """The same hook, which does nothing where another thread than this one runs the module.

    >>> from threading import Thread
    >>> told = []
    >>> hook = in_this_thread(told.append)
    >>> hook("here")
    >>> thread = Thread(target=hook, args=["there"])
    >>> thread.start(), thread.join()
    (None, None)
    >>> told
    ['here']
    """
    mine = get_ident()

    # Any arguments: while torch adds a hook or removes it, another thread may call it without its keywords.
    def own(*inputs: Any, **options: Any) -> Any:
        return hook(*inputs, **options) if get_ident() == mine else None

    return own


class _Eager:
    """How many want compiled models to run eagerly, and how torch goes back when the last of them has gone."""

    def __init__(self) -> None:
        self.lock, self.count, self.back = Lock(), 0, ExitStack()

    def come(self) -> None:
        with self.lock:
            if not self.count:
                self.back.enter_context(torch.compiler.set_stance("force_eager"))
            self.count += 1

    def go(self) -> None:
        with self.lock:
            self.count -= 1
            if not self.count:
                self.back.close()


_eager = _Eager()


@contextmanager
def eagerly() -> Iterator[None]:
    """Inside, compiled models run eagerly: compiled code calls no hooks.

    torch knows one stance for all threads. It is set by the first who wants it and put back after the last: put back by
    each, it could stay for good.
    """
    if "torch._dynamo" not in sys.modules:  # then nothing is compiled, and to import it takes seconds
        yield
        return
    _eager.come()
    try:
        yield
    finally:
        _eager.go()
