"""Errors for the user: each has the message to print and the exit code."""

__all__ = ["Failure", "NotFinite", "Stopped", "UserError", "amount", "count", "out_of"]


class UserError(Exception):
    """Wrong usage or wrong data. The message names the thing, its value and the way out."""

    exit_code = 2


class Failure(UserError):
    """The request was valid, but it could not be done: a full disk, for example."""

    exit_code = 1


class NotFinite(UserError):
    """The loss of a run is not finite."""

    exit_code = 3


class Stopped(UserError):
    """A run that stopped on request and saved a checkpoint."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def amount(size: float) -> str:
    """A number of bytes with its unit.

    >>> amount(2_500_000), amount(3_141_592_653)
    ('2.5 MB', '3.1 GB')
    """
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"


def count(number: int, thing: str) -> str:
    """A number and its noun, singular or plural.

    >>> count(1, "step"), count(2_500, "step")
    ('1 step', '2,500 steps')
    """
    return f"{number:,} {thing}" + "s" * (number != 1)


def out_of(part: int, whole: int, thing: str, one: str = "", more: str = "") -> str:
    """A part of a whole, followed by the verb in the singular (`one`) or the plural (`more`).

    >>> out_of(1, 40, "text", "is", "are"), out_of(2, 40, "text", "is", "are"), out_of(1, 1, "text")
    ('1 of 40 texts is', '2 of 40 texts are', '1 of 1 text')
    """
    return f"{part:,} of {count(whole, thing)} {one if part == 1 else more}".rstrip()
