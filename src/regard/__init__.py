"""regard: the transformer as a tool. Train it on your own files, run it, and see what it attends to.

    import regard
    run = regard.load("runs/translate-phrasebook")
    run.predict(["je suis étudiant"])        # ["I am a student"]

Importing it draws in no torch; using it does.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.settings.load import load as recipe
    from regard.tasks.predictor import load
    from regard.training.loop import train

__version__ = "0.1.0"
__all__ = ["load", "recipe", "train"]

_HOME = {"load": ("regard.tasks.predictor", "load"), "recipe": ("regard.settings.load", "load"),
         "train": ("regard.training.loop", "train")}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _HOME[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
