"""regard: the transformer as a tool. Train it on your own files, run it, open it up.

Three names are all one needs: `recipe` makes settings, `train` a run of them, `load` something that answers.

>>> import regard, tempfile
>>> settings = regard.recipe(overrides=["data.built_in_size=50", "train.steps=2", "model.width=16",
...                                     "search.max_tokens=8", "tokens.vocabulary=400"])
>>> folder = tempfile.mkdtemp()
>>> scores = regard.train(settings, folder, quiet=True)
>>> sorted(scores)
['test', 'test_combinations', 'val']
>>> run = regard.load(folder)
>>> [type(answer) for answer in run.predict(["je suis étudiant", "il dort"])]
[<class 'str'>, <class 'str'>]

Importing regard draws in no torch; using it does. With scikit-learn (the extra `sklearn`) there are also two estimators
of attention pooling, `NadarayaWatsonRegressor` and `NadarayaWatsonClassifier`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.pooling.estimators import NadarayaWatsonClassifier as NadarayaWatsonClassifier
    from regard.pooling.estimators import NadarayaWatsonRegressor as NadarayaWatsonRegressor
    from regard.predictor import load
    from regard.tasks.traits import for_task as recipe
    from regard.training.loop import train

__version__ = "0.1.0"
__all__ = ["load", "recipe", "train"]  # what is there without an extra

_HOME = {"load": ("regard.predictor", "load"), "recipe": ("regard.tasks.traits", "for_task"),
         "train": ("regard.training.loop", "train"),
         "NadarayaWatsonClassifier": ("regard.pooling.estimators", "NadarayaWatsonClassifier"),
         "NadarayaWatsonRegressor": ("regard.pooling.estimators", "NadarayaWatsonRegressor")}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _HOME[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
