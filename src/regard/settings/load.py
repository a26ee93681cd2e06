"""A file and dotted overrides become a `Run`, or an error that names the setting, its value and the way out.

>>> load(overrides=["model.width=128", "train.grad_clip=none"]).model.width
128
>>> load(overrides=["model.widht=128"])
Traceback (most recent call last):
regard.settings.errors.UserError: model.widht: no such setting; did you mean model.width?
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from regard.settings.consistency import refuse_contradictions, refuse_ignored
from regard.settings.errors import UserError
from regard.settings.files import once_each, parsed
from regard.settings.near import unknown
from regard.settings.presets import FAMILIES, PRESETS, PRESETS_BY_KIND
from regard.settings.schema import Run, Tower
from regard.settings.setting import DEFAULTS, SECTIONS, SETTINGS, checked, none_if_said, of, shown, typed, written

__all__ = ["conflicts", "differences", "from_json", "given", "load", "refuse_another", "said_of", "sections_of",
           "task_of", "text_of", "to_json"]

FORMAT = 2  # of run.json; raised when a file of one version would be misread by another


def load(recipe: Path | None = None, overrides: Sequence[str] = (), *, base: Run = DEFAULTS) -> Run:
    """The run that a recipe (TOML, or a saved run.json) and overrides such as "model.width=128" describe.

    `base` holds the defaults. An override replaces the file's value; a later override replaces an earlier one.
    `model.preset`, in either place, only sets the defaults of the other model settings.
    """
    asked = given(recipe, overrides)
    if recipe is not None and recipe.suffix.lower() == ".json":
        # A saved run has every setting. As the base, a new preset can still replace them.
        with _named(recipe):
            base = from_json(parsed(recipe))
    run = assembled(asked, base)
    refuse_ignored(run, asked)
    return run


def given(recipe: Path | None = None, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The settings that they ask for, by path. A saved run asks for none: it has all."""
    found: dict[str, Any] = {}
    if recipe is not None and recipe.suffix.lower() != ".json":
        with _named(recipe):
            found = {path: valid(path, none_if_said(SETTINGS.get(path) or SECTIONS[path], value))
                     for path, value in once_each(flat(parsed(recipe))).items()}
    for path, value in map(override, overrides):
        if path in SECTIONS:  # absent from now on
            found = {name: known for name, known in found.items() if not name.startswith(f"{path}.")}
        found[path] = value
    return found


@contextmanager
def _named(recipe: Path) -> Iterator[None]:
    """Name the file in an error about its content."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{error} (in {recipe})") from None


def task_of(recipe: Path | None = None, overrides: Sequence[str] = ()) -> str:
    """The task that they name. The defaults depend on it."""
    return text_of("task", recipe, overrides) or DEFAULTS.task


def text_of(path: str, recipe: Path | None = None, overrides: Sequence[str] = ()) -> str | None:
    """One text setting, if they give it. `load` checks everything else."""
    value = said_of(path, recipe, overrides)
    return value if isinstance(value, str) else None


def said_of(path: str, recipe: Path | None = None, overrides: Sequence[str] = ()) -> Any:
    """One setting, unchecked if it is from the recipe; None if neither gives it."""
    value: Any = parsed(recipe) if recipe is not None else {}
    for word in path.split("."):
        value = value.get(word) if isinstance(value, dict) else None
    named = [none_if_said(SETTINGS[path], value), *(value for name, value in map(override, overrides) if name == path)]
    return named[-1]


def sections_of(recipe: Path | None = None, overrides: Sequence[str] = ()) -> set[str]:
    """The optional sections that they give settings of, or whose preset has them."""
    preset = PRESETS.get(text_of("model.preset", recipe, overrides) or "")
    model = Tower() if preset is None else preset()
    return {path for path, section in SECTIONS.items() if section.key is not None
            and (said_of(section.key, recipe, overrides) is not None or of(Run(model=model), path) is not None)}


def to_json(run: Run) -> dict[str, Any]:
    """The content of run.json: every setting, by section, and the version of the format."""
    return {"format": FORMAT, **table(run)}


def from_json(data: Any) -> Run:
    """The run that `to_json` wrote. A setting that is missing (in an older regard's file) gets its default."""
    if not isinstance(data, dict) or "format" not in data:
        raise UserError("not a saved run: it has no \"format\"")
    version = data["format"]
    if version != FORMAT or isinstance(version, bool):
        is_older = isinstance(version, int) and 0 < version < FORMAT and not isinstance(version, bool)
        way = "settings were renamed since, so train it again" if is_older else "open it with the regard that wrote it"
        raise UserError(f"format: the file has version {shown(version)}, but this regard reads version {FORMAT}; {way}")
    settings = once_each(flat({key: value for key, value in data.items() if key != "format"}))
    return assembled({path: valid(path, value) for path, value in settings.items()}, DEFAULTS)


def differences(a: Run, b: Run) -> list[str]:
    """One line for each setting that differs, as in "model.width: 128 → 256"."""
    return [f"{path}: {written(of(a, path))} → {written(of(b, path))}"
            for path in SETTINGS if of(a, path) != of(b, path)]


def conflicts(saved: Run, run: Run) -> list[str]:
    """The differences that make it another run. `train.timeout`, which changes no number, may be new at each start."""
    return differences(saved, replace(run, train=replace(run.train, timeout=saved.train.timeout)))


def refuse_another(saved: Path, run: Run) -> None:
    """Refuse to resume or overwrite a folder with another run."""
    if not saved.exists():
        return
    other = load(saved)
    if changed := conflicts(other, run):
        steps, more = other.train.steps, run.train.steps - other.train.steps
        ways = "Choose"
        if len(changed) == 1 and more > 0:
            ways = f"Resume it with --set train.steps={steps} --extend {more}, or choose"
        elif len(changed) == 1 and more < 0:
            ways = f"Resume it with --set train.steps={steps}, for N more steps also with --extend N; or choose"
        raise UserError(f"{saved.parent} holds a run with other settings:\n  " + "\n  ".join(changed)
                        + f"\n{ways} another place with --out DIR, or delete that one.")


def table(section: Any) -> dict[str, Any]:
    """A section as JSON has it: dicts and lists."""
    values = {field.name: getattr(section, field.name) for field in fields(section)}
    return {name: table(value) if is_dataclass(value) else list(value) if isinstance(value, tuple) else value
            for name, value in values.items()}


# Given settings, by dotted path.


def flat(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted path, value) of every setting in nested tables; an unknown one is an error."""
    for key, value in content.items():
        path = prefix + key
        if path in SECTIONS and isinstance(value, dict):
            if not value and (key_setting := SECTIONS[path].key):
                raise UserError(f"{path}: is empty; set {key_setting}, or remove the section")
            yield from flat(value, f"{path}.")
        elif path in SETTINGS or is_removal(path, value):
            yield path, value
        else:
            raise unknown(innermost(path, value))


def innermost(path: str, value: Any) -> str:
    """For [modle] with a width in it: modle.width, which helps more than modle."""
    while isinstance(value, dict) and value:
        key, value = next(iter(value.items()))
        path = f"{path}.{key}"
    return path


def override(text: str) -> tuple[str, Any]:
    """The path and the value of "model.width=128". Text needs no quotes; commas separate the items of a list."""
    path, equals, value = text.partition("=")
    path, value = path.strip(), value.strip()
    if not equals or not path:
        raise UserError(f"{shown(text)}: must be a setting and its value, as in model.width=128")
    if is_removal(path, value):
        return path, None
    if path not in SETTINGS:
        raise unknown(path)
    setting = SETTINGS[path]
    return path, checked(setting, typed(setting, value))


def is_removal(path: str, value: Any) -> bool:
    """Whether a section is to be absent."""
    section = SECTIONS.get(path)
    return section is not None and section.optional and none_if_said(section, value) is None


def valid(path: str, value: Any) -> Any:
    return checked(SETTINGS[path], value) if path in SETTINGS else value


# From the given settings to a run.


def assembled(given: Mapping[str, Any], base: Run) -> Run:
    """The base with the given settings, if they are consistent."""
    if "model.preset" in given:
        base = started(given["model.preset"], base)
    run: Run = changed(base, given)
    refuse_contradictions(run)
    return run


def started(preset: str | None, base: Run) -> Run:
    """The defaults that a preset sets: the shape of the model and, for a published one, its vocabulary.

    A table of learned positions is as long as a row of the language model.
    """
    model = start(preset, base.model)
    if preset not in FAMILIES:
        return replace(base, model=model)
    return replace(base, model=model, tokens=replace(base.tokens, vocabulary=FAMILIES[preset]),
                   data=replace(base.data, max_tokens=model.max_positions))


def start(preset: str | None, model: Tower) -> Tower:
    """The preset's model settings."""
    if preset is None:
        return model if model.preset is None else Tower()
    if preset not in PRESETS:
        # A cutoff below 0.7 finds elman near llama; but bert is short for bert-base.
        near = [*(name for name in PRESETS if preset and name.startswith(preset)),
                *get_close_matches(preset[:80], PRESETS, n=1, cutoff=0.7)]
        hint = f"did you mean {near[0]}? There are" if near else "there are"
        there = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in PRESETS_BY_KIND.items())
        raise UserError(f"model.preset: no preset called {shown(preset)}; {hint} {there}")
    return PRESETS[preset]()


def changed(section: Any, given: Mapping[str, Any], prefix: str = "") -> Any:
    values = {}
    for field in fields(section):
        path, old = prefix + field.name, getattr(section, field.name)
        values[field.name] = part(path, old, given) if path in SECTIONS else given.get(path, old)
    return replace(section, **values)


def part(path: str, old: Any, given: Mapping[str, Any]) -> Any:
    """A section with the given settings. A section that is absent is created by its key setting."""
    about, inside = SECTIONS[path], [name for name in given if name.startswith(f"{path}.")]
    if old is None or path in given:
        if not inside:
            return None
        assert about.key is not None, "only a section with a key setting may be absent"
        if about.key not in given:
            raise UserError(f"{inside[0]}={written(given[inside[0]])}: has no effect without {about.key}; set it too")
        old = about.type(**{about.key.rpartition(".")[2]: given[about.key]})
    return changed(old, given, f"{path}.")
