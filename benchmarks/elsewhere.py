"""A contestant in a process of its own, as its users run it.

Libraries that share one disturb each other: their threads wait by turning, and regard sets up the C library's memory,
from which the others would gain as well.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

__all__ = ["elsewhere"]

Functions = Mapping[str, Callable[..., Any]]


def elsewhere(make: Callable[..., Functions], *args: Any) -> dict[str, Callable[..., Any]]:
    """The functions that make(*args) gives, all of them in one other process. They take and give what can be sent."""
    context = get_context("spawn")
    here, there = context.Pipe()
    context.Process(target=_serve, args=(there, make, args), daemon=True).start()

    def call(name: str, *args: Any) -> Any:
        here.send((name, args))
        return here.recv()

    return {name: partial(call, name) for name in here.recv()}


def _serve(connection: Connection, make: Callable[..., Functions], args: tuple[Any, ...]) -> None:
    functions = make(*args)
    connection.send(list(functions))
    with suppress(EOFError):  # the race is over
        while True:
            name, given = connection.recv()
            connection.send(functions[name](*given))
