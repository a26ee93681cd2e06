"""The rules of the house: lint, types, the direction of imports, no code in data, a light `--help`.

They are tests, so that `pytest` alone checks everything.
"""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import pytest

from regard.tasks.traits import TASKS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "regard"


def outcome(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Python with these arguments, in a process of its own that has not imported what the tests have."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_COLOR": "1"}
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment, text=True,
                          encoding="utf-8", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)


def assert_succeeds(*arguments: str) -> None:
    run = outcome(*arguments)
    assert run.returncode == 0, run.stdout


def needs(tool: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(find_spec(tool) is None, reason=f"needs {tool}: pip install '.[dev]'")


@needs("ruff")
def test_the_linter_has_nothing_to_say() -> None:
    assert_succeeds("-m", "ruff", "check", ".")


@needs("mypy")
def test_the_types_hold() -> None:
    assert_succeeds("-m", "mypy", "--strict")


@needs("importlinter")
def test_imports_point_one_way() -> None:
    command = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    assert_succeeds("-c", command, "--no-logo")


def test_data_is_never_run_as_code() -> None:
    for file in PACKAGE.rglob("*.py"):
        assert not list(code_runners(ast.parse(file.read_text(encoding="utf-8")))), file


def code_runners(tree: ast.Module) -> Iterator[str]:
    """What could run code that a file carries. `model.eval()` and the word in a comment are neither."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                used = {name.name for name in names}
            case ast.ImportFrom(module=module, names=names):
                used = {str(module), *(f"{module}.{name.name}" for name in names)}
            case ast.Name(id=name) if name in ("eval", "exec", "__import__"):
                used = {name}
            case ast.Attribute():
                used = {ast.unparse(node)}
            case ast.keyword(arg="allow_pickle", value=value) if ast.unparse(value) != "False":
                used = {"allow_pickle"}
            case _:
                continue
        yield from (name for name in used if RUNS_CODE.fullmatch(name))


RUNS_CODE = re.compile(r"eval|exec|__import__|allow_pickle|builtins\.(eval|exec)|torch\.(load|save)"
                       r"|(_pickle|pickle|cPickle|cloudpickle|dill|marshal|shelve|joblib)(\..*)?")


@pytest.mark.parametrize("source", [
    "import pickle", "from pickle import loads", "import os, pickle", "import torch; torch.load('x')",
    "from torch import load", "eval('1')", "x = exec", "import numpy; numpy.load('x', allow_pickle=True)",
])
def test_running_data_as_code_would_be_noticed(source: str) -> None:
    assert list(code_runners(ast.parse(source)))


@pytest.mark.parametrize("source", [
    "model.eval()", "import torch; torch.compile", "# pickle", "'never pickle'",
    "from safetensors import torch", "import numpy; numpy.load('x', allow_pickle=False)",
])
def test_harmless_code_is_not_taken_for_it(source: str) -> None:
    assert not list(code_runners(ast.parse(source)))


OPENS = {"read_text", "read_bytes", "write_text", "write_bytes", "fromfile", "tofile"}
# The package's own pages, the system's own figures, /dev/null, and a file that the user has just named for a result.
TRUSTED = {"document.py", "linear_onednn.py", "search_memory.py", "memory.py", "wrong.py"}


def test_every_file_is_opened_by_an_opener_that_neither_hangs_nor_writes_through_a_link() -> None:
    for file in PACKAGE.rglob("*.py"):
        if file.name not in TRUSTED:
            assert not list(plain_opens(ast.parse(file.read_text(encoding="utf-8")))), file


def test_every_trusted_file_is_there() -> None:
    assert {file.name for file in PACKAGE.rglob("*.py")} >= TRUSTED


def plain_opens(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            last = name.rpartition(".")[2]
            has_opener = any(keyword.arg == "opener" for keyword in node.keywords)
            is_file = last == "open" and name not in ("os.open", "webbrowser.open", "archive.open")  # a member of it
            if (last in OPENS and "." in name) or (is_file and not has_opener and "devnull" not in ast.unparse(node)):
                yield ast.unparse(node)


@pytest.mark.parametrize("source", [
    "open('x')", "path.open('rb')", "Path('x').read_text()", "p.write_bytes(b'')", "np.fromfile(p)", "gzip.open('x')",
])
def test_opening_a_file_otherwise_would_be_noticed(source: str) -> None:
    assert list(plain_opens(ast.parse(source)))


def test_a_protocol_that_isinstance_asks_for_has_only_methods() -> None:
    """From Python 3.12 on, isinstance looks in the class: it does not find the parts that a module's instance holds."""
    asked = [node for file in PACKAGE.rglob("*.py") for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
             if isinstance(node, ast.ClassDef) and "runtime_checkable" in map(ast.unparse, node.decorator_list)]
    assert asked
    for protocol in asked:
        assert not [part for part in protocol.body if isinstance(part, (ast.AnnAssign, ast.Assign))], protocol.name


ANCESTORS = {"elman", "gru", "lstm", "bilstm", "sutskever", "bahdanau", "luong", "elmo"}
NAMING = {"models", "settings"}  # which make them, and which offer them


def test_no_module_that_uses_models_names_one_that_came_before_the_transformer() -> None:
    files = [file for file in PACKAGE.rglob("*.py") if file.relative_to(PACKAGE).parts[0] not in NAMING]
    assert len(files) > 100
    for file in files:
        assert not named(ANCESTORS, ast.parse(file.read_text(encoding="utf-8"))), file


IMAGES = {"image", "images", "photo", "photos", "pixel", "pixels", "pil", "pillow"}
PATCHES = {"patch", "patches"}
# The pixels and their places; models and tasks that read them; the tables of published weights; the settings, and the
# command line that explains them. What is looked at has axes, some of patches, and the pages hold pictures.
NAMING_IMAGES = ("data/images/", "data/builtin/", "nn/embed.py", "nn/grid.py", "nn/convolution.py", "models/", "tasks/",
                 "convert/", "settings/", "cli.py")
LOOKING = ("look/document.py", "look/heatmap.py", "look/page.py", "look/gallery.py", "look/axes.py",
           "look/picture_maps.py", "look/filters.py", "look/plots/patches.py")


def test_no_module_names_an_image_but_those_that_read_or_show_one() -> None:
    files = {file.relative_to(PACKAGE).as_posix(): file for file in PACKAGE.rglob("*.py")}
    others = {name: file for name, file in files.items() if not name.startswith((*NAMING_IMAGES, *LOOKING))}
    assert len(others) > 100
    for name, file in others.items():
        words = IMAGES if name.startswith("look/") else IMAGES | PATCHES
        assert not named(words, ast.parse(file.read_text(encoding="utf-8"))), name


def named(words: set[str], tree: ast.Module) -> set[str]:
    """Those of the words that code names, in whatever way. Docstrings may: they explain, and cite the papers."""
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in told:
                names = [text]
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
                names = [name]
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AsyncFunctionDef(name=name):
                names = [name]
            case ast.Import(names=aliases):
                names = [f"{alias.name} {alias.asname}" for alias in aliases]
            case ast.ImportFrom(module=module, names=aliases):
                names = [str(module), *(f"{alias.name} {alias.asname}" for alias in aliases)]
            case ast.keyword(arg=str(name)):
                names = [name]
            case _:
                continue
        found |= words & {word.lower() for name in names for word in WORD.findall(name)}
    return found


WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")  # of text, of snake_case and of CamelCase


@pytest.mark.parametrize("source", [
    "from regard.models.bahdanau import BahdanauDecoder", "import regard.models.elmo as features",
    "from regard.models import luong", "x = SutskeverDecoder",
    "x = nn.LSTM(4, 4)", "if tower.cell == 'gru': pass", "def of_elman(): pass", "class LuongPage: pass",
    "is_lstm = True", "f'model.preset=bilstm, {x}'", "make(sutskever=True)", "def f(elmo_run): pass",
])
def test_naming_one_would_be_noticed(source: str) -> None:
    assert named(ANCESTORS, ast.parse(source))


@pytest.mark.parametrize("source", [
    'def f():\n    """Luong et al. 2015."""', "# an LSTM", "x = 'grumble'", "from regard.models.encoder import Encoder",
    "elmore = congruent", "if model.ordered: pass",
])
def test_what_only_sounds_like_one_or_cites_it_is_not_taken_for_it(source: str) -> None:
    assert not named(ANCESTORS, ast.parse(source))


@pytest.mark.parametrize("source", [
    "from regard.data.images.decode import ImageFile", "if run.model.image is not None: pass", "x = 'of each patch'",
    "def pixels_of(): pass", "class ImagePage: pass", "read(patch=3)", "f'{n} images'",
    "from PIL import Image",
])
def test_naming_an_image_would_be_noticed(source: str) -> None:
    assert named(IMAGES | PATCHES, ast.parse(source))


@pytest.mark.parametrize("source", ['"""An image."""', "# pixels", "x = imagine", "dispatch()", "pile = patched"])
def test_a_word_that_only_sounds_like_an_image_is_not_taken_for_it(source: str) -> None:
    assert not named(IMAGES | PATCHES, ast.parse(source))


DEFAULT = "translate"  # the task of a command that names none
# Where the same words mean something else: an argument of attention, a token, columns, words of the phrase book.
OTHER_MEANINGS = {"look": {"ask", "mask"}, "data": {"caption", "language", "mask", "tag"}, "data/builtin": set(TASKS),
                  "settings/schema.py": {DEFAULT}}


def test_no_module_outside_of_tasks_knows_a_task_by_its_name() -> None:
    files = [file for file in PACKAGE.rglob("*.py") if file.relative_to(PACKAGE).parts[0] != "tasks"]
    assert len(files) > 100
    for file in files:
        place = file.relative_to(PACKAGE).as_posix()
        meant = {word for start, words in OTHER_MEANINGS.items() if place.startswith(start) for word in words}
        assert not named_tasks(ast.parse(file.read_text(encoding="utf-8"))) - meant, place


def named_tasks(tree: ast.Module) -> set[str]:
    """The tasks that code names: as a text of its own, or as the module that it imports."""
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in told:
                found |= {text, *TASK_SETTING.findall(text)} & set(TASKS)
            case ast.Import(names=aliases):
                found |= {word for alias in aliases for word in _task_modules(alias.name)}
            case ast.ImportFrom(module=str(module), names=aliases):
                found |= {word for alias in aliases for word in _task_modules(f"{module}.{alias.name}")}
    return found


TASK_SETTING = re.compile(r"\btask=(\w+)")


def _task_modules(path: str) -> set[str]:
    return set(path.split(".")) & set(TASKS) if path.startswith("regard.tasks.") else set()


@pytest.mark.parametrize("source", [
    "if run.task == 'tag': pass", "READ = {'classify': 1}", "f(task='detect')", "x = f'task=mask {y}'",
    "from regard.tasks.language import Language", "import regard.tasks.tag", "from regard.tasks.traits import mask",
    "match kind:\n    case 'encode': pass",
])
def test_knowing_a_task_by_its_name_would_be_noticed(source: str) -> None:
    assert named_tasks(ast.parse(source))


@pytest.mark.parametrize("source", [
    "text.encode()", "'a language model'", "from regard.nn import mask", "'only a language model has them'",
    "from regard.tasks.traits import traits_of", '"""classify"""', "task.look(model)",
])
def test_a_word_that_a_task_has_for_its_name_is_not_taken_for_it(source: str) -> None:
    assert not named_tasks(ast.parse(source))


def test_the_page_runs_no_text_as_code() -> None:
    for file in [*PACKAGE.rglob("*.js"), *PACKAGE.rglob("*.html")]:
        assert not re.search(r"\beval\(|new Function\(", file.read_text(encoding="utf-8")), file


def test_importing_regard_draws_in_no_torch() -> None:
    assert_succeeds("-c", "import regard, sys; assert 'torch' not in sys.modules")


HELP = """
import sys
sys.argv = ["regard", "--help"]
from regard.cli import main
try:
    main()
finally:
    assert "torch" not in sys.modules, "--help imports torch"
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows does not count the time of ended processes")
def test_help_answers_at_once_and_draws_in_no_torch() -> None:
    seconds = []
    for _ in range(5):
        start = os.times()
        assert_succeeds("-c", HELP)
        end = os.times()
        # Of a processor: a busy machine makes it wait longer.
        seconds.append(end.children_user + end.children_system - start.children_user - start.children_system)
    assert median(seconds) < 0.5, seconds
