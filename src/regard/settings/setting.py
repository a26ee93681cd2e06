"""Every setting by its dotted path, its allowed values, and the conversion from text and files and back.

>>> SETTINGS["model.width"].limits
{'least': 1}
>>> checked(SETTINGS["train.grad_clip"], typed(SETTINGS["train.grad_clip"], "1"))
1.0
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from difflib import get_close_matches
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from regard.settings.errors import UserError
from regard.settings.schema import Run

__all__ = [
    "COARSEST",
    "DEFAULTS",
    "FINEST",
    "SECTIONS",
    "SETTINGS",
    "Section",
    "Setting",
    "ascii_unless_printable",
    "checked",
    "describe",
    "none_if_said",
    "of",
    "replaced",
    "shown",
    "typed",
    "written",
]

LARGEST_WHOLE = 2**63 - 1  # what a tensor's size, TOML and every other reader of run.json can hold
# A model works in float32: its largest number is 3.4e38 and its smallest 1.2e-38. Some are multiplied or inverted.
FINEST, COARSEST = 1e-30, 1e30
SWITCHES = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
DEFAULTS = Run()
S = TypeVar("S")


@dataclass(frozen=True)
class Setting:
    """One setting, as described by its dataclass field."""

    path: str
    type: Any  # without the `| None`; of a list: that of its values
    is_list: bool
    optional: bool
    default: Any
    """In its section, whether the run has that or not; none for the one that makes a section."""
    doc: str
    limits: Mapping[str, float]

    @property
    def wanted(self) -> str:
        if choices := self.choices:
            return f"{'a list of' if self.is_list else 'one of'} {', '.join(choices)}"
        if self.is_list:
            return {int: "a list of whole numbers", float: "a list of numbers", str: "a list of texts"}[self.type]
        return {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}[self.type]

    @property
    def limits_in_words(self) -> str:
        words = {"least": "of at least", "most": "of at most", "above": "above", "below": "below"}
        limits = [f"{words[name]} {limit:g}" for name, limit in self.limits.items()]
        return f" {' and '.join(limits)}".replace("and of", "and") if limits else ""

    @property
    def or_none(self) -> str:
        return " or none" if self.optional else ""

    @property
    def choices(self) -> tuple[str, ...]:
        return get_args(self.type) if get_origin(self.type) is Literal else ()

    def refuse(self, value: Any, hint: str = "", *, limits: str = "") -> UserError:
        return UserError(f"{self.path}: must be {self.wanted}{limits}{self.or_none}, got {shown(value)}{hint}")


@dataclass(frozen=True)
class Section:
    """A group of settings, which a run may lack where it is optional."""

    path: str
    type: type
    optional: bool
    doc: str
    key: str | None
    """The setting without which there is no such section."""


def walk(section: type, prefix: str = "") -> Iterator[Setting | Section]:
    hints = get_type_hints(section)
    for field in fields(section):
        kind, path = hints[field.name], prefix + field.name
        optional = get_origin(kind) in (Union, UnionType)  # Union: of a Literal and None
        if optional:
            (kind,) = (part for part in get_args(kind) if part is not type(None))
        if is_dataclass(kind):
            assert isinstance(kind, type)
            key = next((f"{path}.{inner.name}" for inner in fields(kind)
                        if inner.default is MISSING and inner.default_factory is MISSING), None)
            yield Section(path, kind, optional, field.metadata.get("doc", ""), key)
            yield from walk(kind, f"{path}.")
            continue
        if is_list := get_origin(kind) is tuple:
            kind, _ = get_args(kind)  # the other is the ellipsis
        default = None if field.default is MISSING else field.default
        limits = {name: limit for name, limit in field.metadata.items() if name != "doc"}
        yield Setting(path, kind, is_list, optional, default, field.metadata["doc"], limits)


SETTINGS = {found.path: found for found in walk(Run) if isinstance(found, Setting)}
SECTIONS = {found.path: found for found in walk(Run) if isinstance(found, Section)}


def of(section: Any, path: str) -> Any:
    """The value at a dotted path, as in "model.width" of a run; none in a section that is absent."""
    value = section
    for name in path.split("."):
        value = None if value is None else getattr(value, name)
    return value


def replaced(section: S, values: Mapping[str, Any]) -> S:
    """A copy of a section with these values, each by its dotted path. No section on the way may be absent."""
    for path, value in values.items():
        name, _, inner = path.partition(".")
        value = replaced(getattr(section, name), {inner: value}) if inner else value
        section = replace(section, **{name: value})  # type: ignore[type-var]
    return section


def describe() -> Iterator[tuple[str, str, str, str]]:
    """(dotted path, type in words, default, doc line) of every setting, in the schema's order.

    A section that may be absent comes before its settings.
    """
    for found in walk(Run):
        if isinstance(found, Setting):
            kind = found.wanted + found.limits_in_words + found.or_none
            yield found.path, kind, written(found.default), found.doc
        elif found.optional:
            yield found.path, f"a section, created by {found.key}, or none", "none", found.doc


# From a file's or a user's value to one of the right type.


def typed(setting: Setting, text: str) -> Any:
    """The text as the setting's type. If it cannot be converted, it is returned unchanged, and `checked` refuses it."""
    if none_if_said(setting, text) is None:
        return None
    if setting.is_list:
        # For a file called none, write ./none.
        parts = [] if text.lower() in ("", "none", "null") else text.split(",")
        return [typed(replace(setting, is_list=False), part.strip()) for part in parts]
    if setting.type is bool:
        return SWITCHES.get(text.lower(), text)
    if setting.type is int and re.fullmatch(r"[+-]?[0-9]+(_[0-9]+)*", text) and len(text) <= 40:
        return int(text)
    if setting.type is float and (value := number(text)) is not None and math.isfinite(value):
        return value
    return text


def none_if_said(setting: Setting | Section, value: Any) -> Any:
    """TOML and the command line have no null: there, the word none stands for it."""
    said = setting.optional and isinstance(value, str) and value.lower() in ("none", "null")
    return None if said else value


def number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def checked(setting: Setting, value: Any) -> Any:
    """The value, if the setting may have it: a list of them as a tuple."""
    if value is None and setting.optional:
        return None
    if not setting.is_list:
        return checked_one(setting, value)
    if not isinstance(value, list):
        raise setting.refuse(value, f"; write [{shown(value)}]" if isinstance(value, str) else "")
    if setting.choices and not value:
        raise setting.refuse("none")
    return tuple(checked_one(setting, part) for part in value)


def checked_one(setting: Setting, value: Any) -> Any:
    """The value, or one of a list, if the setting may have it."""
    if setting.choices:
        if not isinstance(value, str):
            raise setting.refuse(value)
        if value in setting.choices:
            return value
        near = get_close_matches(value[:80].lower(), setting.choices, n=1)
        raise setting.refuse(value, f"; did you mean {near[0]}?" if near else "")
    if setting.type is bool and isinstance(value, bool):
        return value
    if setting.type in (int, float) and not isinstance(value, bool):
        return within(setting, value)
    if setting.type is str:
        return plain(setting, value)
    raise setting.refuse(value)


def within(setting: Setting, value: Any) -> int | float:
    """The number, if it is one, is finite and is in the setting's range."""
    said = number(value) if isinstance(value, str) else value
    if isinstance(said, float) and not math.isfinite(said):
        raise setting.refuse(value, ", which is not finite")
    if setting.type is int and isinstance(said, float) and said.is_integer() and abs(said) < 1e15:
        raise setting.refuse(value, f"; write {int(said)}")
    if not isinstance(value, int if setting.type is int else int | float):
        raise setting.refuse(value)
    if isinstance(value, int) and abs(value) > LARGEST_WHOLE:
        raise setting.refuse(value, ", which is too large")
    if setting.type is float and value and not FINEST <= abs(value) <= COARSEST:
        raise setting.refuse(value, f", which is outside the range of float32; take one from {FINEST:g} to {COARSEST:g}"
                          + ", or 0" * (setting.limits.get("least") == 0))
    limits = setting.limits
    if (value < limits.get("least", -math.inf) or value > limits.get("most", math.inf)
            or value <= limits.get("above", -math.inf) or value >= limits.get("below", math.inf)):
        raise setting.refuse(value, limits=setting.limits_in_words)
    return int(value) if setting.type is int else float(value)


def plain(setting: Setting, text: Any) -> str:
    """The text, if it is one that can be printed, saved and used as a path."""
    if not isinstance(text, str):
        raise setting.refuse(text)
    if not text:
        raise setting.refuse(text, ", which is empty")
    if "\0" in text:
        raise setting.refuse(text, ", which holds a NUL character")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise setting.refuse(text, ", which is not valid Unicode")
    return text


# And back into words.


def written(value: Any) -> str:
    """A value as an override would write it."""
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return str(value)


def shown(value: Any) -> str:
    """A value as an error quotes it: on one line, and shortened."""
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    if isinstance(value, int) and value.bit_length() > 200:
        return "a number of very many digits"  # Python refuses to print it
    text = ascii_unless_printable(value if isinstance(value, str) else written(value))
    text = text if len(text) <= 60 else f"{text[:57]}..."
    return f"'{text}'" if isinstance(value, str) else text


def ascii_unless_printable(text: str) -> str:
    return text if text.isprintable() else ascii(text)[1:-1]
