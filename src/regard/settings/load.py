"""A file and dotted overrides become a `Run`, or an error that names the setting, its value and the way out.

>>> load(overrides=["model.width=128", "train.clip=none"]).model.width
128
>>> load(overrides=["model.widht=128"])
Traceback (most recent call last):
regard.settings.errors.UserError: model.widht: no such setting; did you mean model.width?
"""

import json
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from difflib import SequenceMatcher, get_close_matches
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from regard.settings.errors import UserError
from regard.settings.presets import PRESETS
from regard.settings.schema import Run, Tower

__all__ = ["describe", "differences", "from_json", "load", "refuse_another", "to_json"]

FORMAT = 1  # of run.json; raised when an older regard would misread a newer file
LARGEST_FILE = 1 << 20  # bytes; so that a corpus given as a recipe fails at once, and /dev/zero at all
LARGEST_WHOLE = 2**63 - 1  # what a tensor's size, TOML and every other reader of run.json can hold
SWITCHES = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
DEFAULTS = Run()


def load(recipe: Path | None = None, overrides: Sequence[str] = (), *, base: Run = DEFAULTS) -> Run:
    """The run that a recipe (TOML, or a saved run.json) and overrides such as "model.width=128" describe.

    `base` holds what neither of them says. An override beats the file, a later one an earlier one.
    `model.preset`, wherever it stands, only picks what the other model settings start from.
    """
    given: dict[str, Any] = {}
    if recipe is not None:
        content = parsed(recipe)
        try:
            if recipe.suffix.lower() == ".json":
                # A saved run spells out every setting: as a base, it leaves a new preset room to act.
                base = from_json(content)
            else:
                given = {path: checked(KNOBS[path], none_if_said(KNOBS[path], value))
                         for path, value in once_each(flat(content)).items()}
        except UserError as error:
            raise UserError(f"{error} (in {recipe})") from None
    given |= dict(map(override, overrides))
    return assembled(given, base)


def to_json(run: Run) -> dict[str, Any]:
    """What run.json holds: every setting, by section, and the version of the format."""
    return {"format": FORMAT, **table(run)}


def from_json(data: Any) -> Run:
    """The run that `to_json` wrote. What it does not mention (an older regard's file) has its default."""
    if not isinstance(data, dict) or "format" not in data:
        raise UserError("not a saved run: it has no \"format\"")
    version = data["format"]
    if version != FORMAT or isinstance(version, bool):
        raise UserError(f"format: saved in version {shown(version)}, and this regard reads version {FORMAT}")
    settings = once_each(flat({key: value for key, value in data.items() if key != "format"}))
    return assembled({path: checked(KNOBS[path], value) for path, value in settings.items()}, DEFAULTS)


def differences(a: Run, b: Run) -> list[str]:
    """One line for each setting that differs, as in "model.width: 128 → 256"."""
    return [f"{path}: {written(of(a, path))} → {written(of(b, path))}"
            for path in KNOBS if of(a, path) != of(b, path)]


def refuse_another(saved: Path, run: Run) -> None:
    """A folder holds one run: with other settings it is not gone on with, and not written over."""
    changed = differences(load(saved), run) if saved.exists() else []
    if changed:
        raise UserError(f"{saved.parent} holds another run. What differs:\n  " + "\n  ".join(changed)
                        + "\nChoose another place with --out DIR, or delete that one.")


def describe() -> Iterator[tuple[str, str, str, str]]:
    """(dotted path, type in words, default, doc line) of every setting, in the schema's order."""
    for knob in KNOBS.values():
        kind = knob.wanted + knob.limits_in_words + knob.or_none
        yield knob.path, kind, written(of(DEFAULTS, knob.path)), knob.doc


# The schema, as a table of dotted paths.


@dataclass(frozen=True)
class Knob:
    """One setting: what the walk over the dataclasses found out about it."""

    path: str
    type: Any  # without the `| None`
    optional: bool
    doc: str
    limits: Mapping[str, float]

    @property
    def wanted(self) -> str:
        if choices := self.choices:
            return f"one of {', '.join(choices)}"
        return {bool: "true or false", int: "a whole number", float: "a number", str: "a text",
                tuple[str, ...]: "a list of texts"}[self.type]

    @property
    def limits_in_words(self) -> str:
        words = {"least": "of at least", "most": "of at most", "above": "above", "below": "below"}
        said = [f"{words[name]} {limit:g}" for name, limit in self.limits.items()]
        return f" {' and '.join(said)}" if said else ""

    @property
    def or_none(self) -> str:
        return " or none" if self.optional else ""

    @property
    def choices(self) -> tuple[str, ...]:
        return get_args(self.type) if get_origin(self.type) is Literal else ()

    def refuse(self, value: Any, hint: str = "", *, limits: str = "") -> UserError:
        return UserError(f"{self.path}: wants {self.wanted}{limits}{self.or_none}, got {shown(value)}{hint}")


def walk(section: type, prefix: str = "") -> Iterator[Knob]:
    hints = get_type_hints(section)
    for field in fields(section):
        kind, path = hints[field.name], prefix + field.name
        if is_dataclass(kind):
            assert isinstance(kind, type)
            yield from walk(kind, f"{path}.")
            continue
        optional = isinstance(kind, UnionType)
        if optional:
            (kind,) = (part for part in get_args(kind) if part is not type(None))
        limits = {name: limit for name, limit in field.metadata.items() if name != "doc"}
        yield Knob(path, kind, optional, field.metadata["doc"], limits)


KNOBS = {knob.path: knob for knob in walk(Run)}
SECTIONS = [field.name for field in fields(Run) if is_dataclass(getattr(DEFAULTS, field.name))]


def of(run: Run, path: str) -> Any:
    value: Any = run
    for name in path.split("."):
        value = getattr(value, name)
    return value


def table(section: Any) -> dict[str, Any]:
    """A section as JSON has it: dicts and lists."""
    values = {field.name: getattr(section, field.name) for field in fields(section)}
    return {name: table(value) if is_dataclass(value) else list(value) if isinstance(value, tuple) else value
            for name, value in values.items()}


def flat(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted path, value) of every setting in nested tables; an unknown one is an error."""
    for key, value in content.items():
        path = prefix + key
        if path in SECTIONS and isinstance(value, dict):
            yield from flat(value, f"{path}.")
        elif path in KNOBS:
            yield path, value
        else:
            raise unknown(innermost(path, value))


def innermost(path: str, value: Any) -> str:
    """For [modle] with a width in it: modle.width, which says more than modle."""
    while isinstance(value, dict) and value:
        key, value = next(iter(value.items()))
        path = f"{path}.{key}"
    return path


# From what a file or a person says to a value of the right type.


def override(text: str) -> tuple[str, Any]:
    """The path and the value of "model.width=128". Text needs no quotes; a list is split at its commas."""
    path, equals, value = text.partition("=")
    path, value = path.strip(), value.strip()
    if not equals or not path:
        raise UserError(f"{shown(text)}: wants a setting and its value, as in model.width=128")
    if path not in KNOBS:
        raise unknown(path)
    knob = KNOBS[path]
    return path, checked(knob, typed(knob, value))


def typed(knob: Knob, text: str) -> Any:
    """The text as the setting's type; where it cannot be read so, unchanged, for `checked` to refuse."""
    if none_if_said(knob, text) is None:
        return None
    if knob.type is bool:
        return SWITCHES.get(text.lower(), text)
    if knob.type is int and re.fullmatch(r"[+-]?[0-9]+(_[0-9]+)*", text) and len(text) <= 40:
        return int(text)
    if knob.type is float and (value := number(text)) is not None and math.isfinite(value):
        return value
    if knob.type == tuple[str, ...]:
        # A file called none is ./none.
        return [] if text.lower() in ("", "none", "null") else [part.strip() for part in text.split(",")]
    return text


def none_if_said(knob: Knob, value: Any) -> Any:
    """TOML and the command line have no null: there, the word says it."""
    said = knob.optional and isinstance(value, str) and value.lower() in ("none", "null")
    return None if said else value


def number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def checked(knob: Knob, value: Any) -> Any:
    """The value, if the setting may have it."""
    if value is None and knob.optional:
        return None
    if knob.choices:
        if not isinstance(value, str):
            raise knob.refuse(value)
        if value in knob.choices:
            return value
        near = get_close_matches(value[:80].lower(), knob.choices, n=1)
        raise knob.refuse(value, f"; did you mean {near[0]}?" if near else "")
    if knob.type is bool and isinstance(value, bool):
        return value
    if knob.type in (int, float) and not isinstance(value, bool):
        return within(knob, value)
    if knob.type is str:
        return plain(knob, value)
    if knob.type == tuple[str, ...]:
        if isinstance(value, list):
            return tuple(plain(knob, part) for part in value)
        raise knob.refuse(value, f"; write [{shown(value)}]" if isinstance(value, str) else "")
    raise knob.refuse(value)


def within(knob: Knob, value: Any) -> int | float:
    """The number, if it is one, is finite and is in the setting's range."""
    said = number(value) if isinstance(value, str) else value
    if isinstance(said, float) and not math.isfinite(said):
        raise knob.refuse(value, ", which is not finite")
    if knob.type is int and isinstance(said, float) and said.is_integer() and abs(said) < 1e15:
        raise knob.refuse(value, f"; write {int(said)}")
    if not isinstance(value, int if knob.type is int else int | float):
        raise knob.refuse(value)
    if isinstance(value, int) and abs(value) > LARGEST_WHOLE:
        raise knob.refuse(value, ", which is too large")
    limits = knob.limits
    if (value < limits.get("least", -math.inf) or value > limits.get("most", math.inf)
            or value <= limits.get("above", -math.inf) or value >= limits.get("below", math.inf)):
        raise knob.refuse(value, limits=knob.limits_in_words)
    return int(value) if knob.type is int else float(value)


def plain(knob: Knob, text: Any) -> str:
    """The text, if it is one that can be printed, saved and used as a path."""
    if not isinstance(text, str):
        raise knob.refuse(text)
    if not text:
        raise knob.refuse(text, ", which is empty")
    if "\0" in text:
        raise knob.refuse(text, ", which holds a NUL character")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise knob.refuse(text, ", which is not valid Unicode")
    return text


def written(value: Any) -> str:
    """A value as an override would write it."""
    if isinstance(value, tuple):
        return ", ".join(value) or "none"
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return str(value)


def shown(value: Any) -> str:
    """A value as an error quotes it: on one line, and not too much of it."""
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    if isinstance(value, int) and value.bit_length() > 200:
        return "a number of very many digits"  # Python refuses to print the longest
    text = ascii_unless_printable(value if isinstance(value, str) else written(value))
    text = text if len(text) <= 60 else f"{text[:57]}..."
    return f"'{text}'" if isinstance(value, str) else text


def ascii_unless_printable(text: str) -> str:
    return text if text.isprintable() else ascii(text)[1:-1]


# Unknown settings, and the ones that were probably meant.


def unknown(path: str) -> UserError:
    name = ascii_unless_printable(path[:80])
    section = path.partition(".")[0]
    inside = ", ".join(knob.partition(".")[2] for knob in KNOBS if knob.startswith(f"{section}."))
    if path in SECTIONS:
        return UserError(f"{name}: is a section, not a setting; it has {inside}")
    if near := nearest(path[:80]):
        return UserError(f"{name}: no such setting; did you mean {' or '.join(near)}?")
    if section in SECTIONS:
        return UserError(f"{name}: no such setting; {section} has {inside}")
    outside = ", ".join(knob for knob in KNOBS if "." not in knob)
    return UserError(f"{name}: no such setting; there are {outside} and the sections {', '.join(SECTIONS)}")


def nearest(path: str) -> list[str]:
    """The settings and sections whose names come nearest: mostly one, more where they are as near.

    The last part of the name counts twice, or all of model.* would be near to model.xyz.
    """
    section, _, name = path.rpartition(".")
    scores = {}
    for candidate in [*KNOBS, *SECTIONS]:
        its_section, _, its_name = candidate.rpartition(".")
        alike = likeness(name, its_name)
        if alike > 0.55:
            scores[candidate] = alike + likeness(section, its_section) / 2
    best = max(scores.values(), default=0.0)
    return [candidate for candidate, score in scores.items() if score > best - 0.1][:3]


def likeness(a: str, b: str) -> float:
    return SequenceMatcher(None, a, b).ratio()


# Files.


def parsed(path: Path) -> Any:
    """The content of a TOML or JSON file, or an error with the place where it breaks."""
    text = content_of(path)
    try:
        if path.suffix.lower() == ".json":
            return json.loads(text, object_pairs_hook=once_each)
        return tomllib.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{path}: line {error.lineno}, column {error.colno}: {error.msg}") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: {toml_place(str(error), text)}") from None
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except RecursionError:
        raise UserError(f"{path}: is nested too deeply") from None
    except ValueError as error:  # a number of more digits than Python reads
        raise UserError(f"{path}: {error}") from None


def content_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise UserError(f"{path}: is a directory; wants a .toml file, or the run.json of a run") from None
    except PermissionError:
        raise UserError(f"{path}: no permission to read it") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{path}: cannot be read: {reason}") from None
    if len(content) > LARGEST_FILE:
        raise UserError(f"{path}: is larger than {LARGEST_FILE:,} bytes; is it a recipe?")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte = content[error.start]
        raise UserError(f"{path}: is not UTF-8: byte 0x{byte:02x} at offset {error.start}") from None


def toml_place(message: str, text: str) -> str:
    """tomllib's message with its place in front, which at the end of the file it does not number."""
    what, _, where = message.rpartition(" (at ")
    if where == "end of document)":
        lines = text.split("\n")
        where = f"line {len(lines)}, column {len(lines[-1]) + 1})"
    return f"{where[:-1]}: {what}"


def once_each(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """A dict of the pairs. JSON lets a key come twice, and TOML a quoted "model.width" beside [model]."""
    content: dict[str, Any] = {}
    for key, value in pairs:
        if key in content:
            raise UserError(f"{ascii_unless_printable(key[:80])}: is given twice")
        content[key] = value
    return content


# Settings that have to fit each other.


def assembled(given: Mapping[str, Any], base: Run) -> Run:
    """The base with what was given, if it all fits together."""
    if "model.preset" in given:
        base = replace(base, model=start(given["model.preset"], base.model))
    run: Run = changed(base, given)
    check_heads(run.model)
    check_positions(run.model)
    return run


def start(preset: str | None, model: Tower) -> Tower:
    """What the other model settings start from."""
    if preset is None:
        return model if model.preset is None else Tower()
    if preset not in PRESETS:
        near = get_close_matches(preset[:80], PRESETS, n=1)
        hint = f"did you mean {near[0]}? There are" if near else "there are"
        raise UserError(f"model.preset: no preset called {shown(preset)}; {hint} {', '.join(PRESETS)}")
    return PRESETS[preset]()


def changed(section: Any, given: Mapping[str, Any], prefix: str = "") -> Any:
    values = {}
    for field in fields(section):
        path, old = prefix + field.name, getattr(section, field.name)
        values[field.name] = changed(old, given, f"{path}.") if is_dataclass(old) else given.get(path, old)
    return replace(section, **values)


def check_heads(model: Tower) -> None:
    width, heads, key_heads = model.width, model.heads, model.key_heads
    if model.head_width is None and width % heads:
        other_heads = divisor(width, near=heads)
        other_width = max(1, (width + heads // 2) // heads) * heads
        raise UserError(f"model.heads: {heads} heads do not divide model.width {width}; "
                        f"take {other_heads} heads, or a width of {other_width}, or give model.head_width")
    if key_heads is not None and heads % key_heads:
        raise UserError(f"model.key_heads: {key_heads} does not divide model.heads {heads}; "
                        f"take {divisor(heads, near=key_heads)}")


def divisor(number: int, *, near: int) -> int:
    near = min(near, number)
    found = [d for d in range(max(1, near - 100), near + 100) if number % d == 0]
    return min(found, key=lambda d: abs(d - near), default=1)


def check_positions(model: Tower) -> None:
    kind, width, position_width = model.positions, model.width, model.position_width
    if position_width is not None:
        if kind not in ("sinusoidal", "fourier", "learned"):
            raise UserError(f"model.position_width: {kind} positions are not concatenated to the tokens; "
                            "leave it out, or take model.positions sinusoidal, fourier or learned")
        if position_width >= width:
            raise UserError(f"model.position_width: {position_width} leaves the token no room "
                            f"in model.width {width}; take less")
        if position_width % 2:
            raise UserError(f"model.position_width: wants an even number, got {position_width}; "
                            f"take {position_width - 1}")
    elif kind in ("sinusoidal", "fourier") and width % 2:
        raise UserError(f"model.width: {kind} positions come in pairs and want an even width, got {width}; "
                        f"take {width + 1}, or other model.positions")
    head_width = model.head_width or width // model.heads
    if kind == "rotary" and head_width % 2:
        raise UserError(f"model.heads: rotary positions come in pairs and want an even width per head, "
                        f"got {head_width}; change model.heads, model.width or model.head_width, "
                        "or take other model.positions")
