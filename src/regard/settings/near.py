"""Unknown settings, and suggestions for the one that was meant.

>>> nearest("model.widht")
['model.width']
"""

from collections.abc import Iterable
from difflib import SequenceMatcher

from regard.settings.errors import UserError
from regard.settings.setting import SECTIONS, SETTINGS, ascii_unless_printable

__all__ = ["nearest", "setting_meant", "unknown"]


def unknown(path: str) -> UserError:
    name = ascii_unless_printable(path[:80])
    section = path
    while section not in SECTIONS and "." in section:
        section = section.rpartition(".")[0]
    inside = ", ".join(_inside(section))
    if path in SECTIONS:
        removal = f"; {name}=none removes it" if SECTIONS[path].optional else ""
        return UserError(f"{name}: is a section, not a setting; it has {inside}{removal}")
    if near := nearest(path[:80]):
        return UserError(f"{name}: no such setting; did you mean {' or '.join(near)}?")
    if section in SECTIONS:
        return UserError(f"{name}: no such setting; {section} has {inside}")
    outside = ", ".join(setting for setting in SETTINGS if "." not in setting)
    sections = [section for section in SECTIONS if "." not in section]
    return UserError(f"{name}: no such setting; there are {outside} and the sections {', '.join(sections)}")


def _inside(section: str) -> list[str]:
    """The settings of a section, and each section in it as one.

    >>> [name for name in _inside("model") if "*" in name]
    ['recurrent.*', 'image.*', 'embedding.*', 'head.*']
    """
    names = (path.removeprefix(f"{section}.") for path in SETTINGS if path.startswith(f"{section}."))
    return list(dict.fromkeys(f"{name.partition('.')[0]}.*" if "." in name else name for name in names))


def nearest(path: str) -> list[str]:
    """The settings and sections with the nearest names: usually one, several if they are equally near.

    The last part of the name counts twice, or all of model.* would be near to model.xyz. A name without a section
    usually lacks it by mistake, so settings without a section gain little from it. Of equal names, the one in fewer
    sections is nearer.
    """
    section, _, name = path.rpartition(".")
    scores = {}
    for candidate in [*SETTINGS, *SECTIONS]:
        its_section, _, its_name = candidate.rpartition(".")
        alike = name_likeness(name, its_name)
        if alike > 0.55:
            scores[candidate] = alike + section_likeness(section, its_section) - 0.2 * its_section.count(".")
    best = max(scores.values(), default=0.0)
    return [candidate for candidate, score in scores.items() if score > best - 0.1][:3]


def setting_meant(option: str, options: Iterable[str], *, section: str = "") -> str | None:
    """The setting that an unknown option stands for, if its name is nearer than that of any option.

    >>> setting_meant("--step", ["--set", "--out"]), setting_meant("--dat", ["--data", "--set"])
    ('train.steps', None)
    """
    name = option.strip("-").replace("-", "_")
    near = max((likeness(name, other.strip("-").replace("-", "_")) for other in options), default=0.0)
    found = [path for path in nearest(f"{section}.{name}" if section else name)
             if path in SETTINGS and path.startswith(section)]
    return next((path for path in found if name_likeness(name, path.rpartition(".")[2]) > near), None)


def section_likeness(a: str, b: str) -> float:
    if a == b:
        return 0.5 if a else 0.11
    if b.endswith(f".{a}") or likeness(a, b) > 0.8:  # recurrent.cell lacks its model; a letter is missing
        return 0.49
    return 0.3 * likeness(a, b)


def name_likeness(a: str, b: str) -> float:
    """Like `likeness`, but `clip_grad` equals `grad_clip`, and `rate` is near `learning_rate`: people forget words."""
    words, others = set(a.split("_")), set(b.split("_"))
    if words == others:
        return 1.0
    return max(likeness(a, b), 0.8 if words < others or others < words else 0.0)


def likeness(a: str, b: str) -> float:
    return SequenceMatcher(None, a, b).ratio()
