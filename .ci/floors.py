"""Installs the lowest version that pyproject.toml allows of every dependency, and uses regard with them.

    python .ci/floors.py ENVIRONMENT

Torch is the exception: its lowest version brings gigabytes of CUDA where no CPU wheel of it is at hand. It comes, with
what it needs, from the environment that is named. Whatever is installed here goes before that.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".venv-floors"
EXTRAS = ("plot", "track", "sklearn")
TINY = ("device=cpu", "data.built_in_size=40", "tokens.vocabulary=300", "model.width=16", "model.depth=1",
        "model.heads=2", "train.steps=3", "train.batch_tokens=64", "search.max_tokens=8", "train.track=true")

TINY_IMAGES = ("device=cpu", "data.built_in_size=40", "model.image.size=16", "model.image.patch=8", "model.width=16",
               "model.depth=1", "model.heads=2", "train.steps=3", "train.batch_tokens=64")

VERSIONS = """
import sys
from importlib.metadata import version
for name, floor in (word.split("==") for word in sys.argv[1:]):
    padded = [(found + ".0.0").split(".")[:3] for found in (floor, version(name))]
    assert padded[0] == padded[1], (name, floor, version(name))
    print(name, version(name))
print("torch", version("torch"))
"""

PHOTO = """
from PIL import Image
Image.new("CMYK", (40, 30), (0, 255, 255, 0)).save("photo.jpg", exif=b"")
"""

ESTIMATOR = """
from regard.pooling.estimators import NadarayaWatsonRegressor
found = NadarayaWatsonRegressor(width=0.1).fit([[0.0], [1.0]], [0.0, 1.0]).predict([[1.0]])
assert abs(found[0] - 1) < 1e-6, found
"""


def floors() -> list[str]:
    """NAME==VERSION of all but torch."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *(line for extra in EXTRAS for line in project["optional-dependencies"][extra])]
    found = [re.match(r"([\w-]+)>=([\d.]+)", line) for line in wanted]
    missing = [line for line, match in zip(wanted, found, strict=True) if match is None]
    assert not missing, f"no floor: {missing}"
    return [f"{match[1]}=={match[2]}" for match in found if match and match[1] != "torch"]


def succeeds(*words: str | Path, **how: object) -> str:
    print(" ", *(f"{word}" for word in words if "\n" not in f"{word}"), flush=True)
    return subprocess.run([f"{word}" for word in words], check=True, text=True, stdout=subprocess.PIPE,
                          **how).stdout  # type: ignore[call-overload,no-any-return]


def install(lender: Path, wanted: list[str]) -> Path:
    """The Python of a new environment with these, and everything else from the lender's."""
    succeeds(sys.executable, "-m", "venv", "--clear", "--without-pip", FOLDER)
    (FOLDER / ".gitignore").write_text("*\n", encoding="utf-8")
    python = FOLDER / "bin" / "python"
    succeeds(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--only-binary", ":all:", *wanted)
    site, = (FOLDER / "lib").glob("python*/site-packages")
    lent, = (lender / "lib").glob("python*/site-packages")
    (site / "lender.pth").write_text(f"{lent.resolve()}\n", encoding="utf-8")
    return python


def use(python: Path, wanted: list[str], folder: Path) -> None:
    """One of each: help, training with events, an answer, a page, a plot, an image, an estimator."""
    how = {"cwd": folder, "env": {"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{ROOT / 'src'}", "HOME": f"{folder}"}}
    print(succeeds(python, "-c", VERSIONS, *wanted, **how), end="")
    regard, run = (python, "-m", "regard"), folder / "runs" / "tiny"
    assert "Usage" in succeeds(*regard, "--help", **how)
    succeeds(*regard, "train", "translate", "--out", run, *(word for s in TINY for word in ("--set", s)), **how)
    assert any((run / "events").iterdir())
    succeeds(*regard, "predict", "--run", run, "je suis étudiant", **how)
    succeeds(*regard, "look", "--run", run, "--no-open", "--out", "look.html", "je suis étudiant", **how)
    assert (folder / "look.html").stat().st_size > 1_000
    succeeds(*regard, "runs", "--plot", "curves.png", **how)
    assert (folder / "curves.png").stat().st_size > 1_000
    succeeds(python, "-c", PHOTO, **how)
    images = folder / "runs" / "images"
    settings = [word for s in TINY_IMAGES for word in ("--set", s)]
    succeeds(*regard, "train", "classify", "--out", images, *settings, **how)
    succeeds(*regard, "predict", "--run", images, "photo.jpg", **how)
    succeeds(python, "-c", ESTIMATOR, **how)


def main() -> None:
    if sys.version_info >= (3, 13):  # who installs there gets newer ones
        print("skipped: the lowest versions have no wheels for Python 3.13")
        return
    lender, wanted = Path(sys.argv[1]), floors()
    python = install(lender, wanted)
    with TemporaryDirectory() as folder:
        use(python, wanted, Path(folder))


if __name__ == "__main__":
    main()
