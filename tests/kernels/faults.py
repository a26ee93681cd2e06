"""Faults put into a function by hand, as a slip of the pen would: a part of its text is another."""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

from kernels.proof import HAS_GPU, HAS_TRITON

HAS_INTERPRETER = HAS_TRITON and not HAS_GPU


@contextmanager
def faulty(function: Any, right: str, wrong: str) -> Iterator[None]:
    """Inside, the function has `wrong` where `right` stood. It is the same object: whoever imported it has it, too."""
    with _kernel(function, right, wrong) if hasattr(function, "rewriter") else _function(function, right, wrong):
        yield


def swapped(text: str, right: str, wrong: str) -> str:
    assert text.count(right) == 1, f"{right!r} stands {text.count(right)} times in the function"
    return text.replace(right, wrong)


@contextmanager
def _function(function: Callable[..., Any], right: str, wrong: str) -> Iterator[None]:
    plain = inspect.unwrap(function)
    assert isinstance(plain, FunctionType)
    tree = ast.parse(swapped(textwrap.dedent(inspect.getsource(plain)), right, wrong))
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.decorator_list, definition.returns = [], None
    for argument in ast.walk(definition.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    found: dict[str, Any] = {}
    exec(compile(tree, f"<{plain.__name__} with a fault>", "exec"), plain.__globals__, found)
    before, plain.__code__ = plain.__code__, found[plain.__name__].__code__
    try:
        yield
    finally:
        plain.__code__ = before


@contextmanager
def _kernel(kernel: Any, right: str, wrong: str) -> Iterator[None]:
    """Of Triton's interpreter, which writes a function over before it runs it."""
    rewriter, known = kernel.rewriter, type(kernel).rewritten_fn
    plain = rewriter._prepare_source
    before = known.pop(kernel.fn, None)
    rewriter._prepare_source = lambda lines: swapped(plain(lines), right, wrong)
    try:
        yield
    finally:
        del rewriter._prepare_source
        known.pop(kernel.fn, None)
        if before is not None:
            known[kernel.fn] = before
