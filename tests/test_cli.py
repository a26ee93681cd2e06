"""What a person meets at the command line: answers on stdout, one clear line for a mistake, nothing lost."""

import ctypes
import errno
import hashlib
import importlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from safetensors.numpy import load_file

import regard
from heeding import signals_heeded
from regard.cli import main
from regard.settings.load import load, to_json
from regard.settings.setting import DEFAULTS, SECTIONS, SETTINGS, of
from regard.tasks.traits import defaults
from regard.verbs.train import settled

ROOT = Path(__file__).parents[1]
TINY = ["model.width=16", "model.depth=1", "model.heads=2", "tokens.vocabulary=300", "train.steps=3",
        "train.batch_tokens=64", "search.max_tokens=8", "device=cpu"]  # fmt: skip
TINY_OPTIONS = [word for setting in TINY for word in ("--set", setting)]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_COLOR": "1", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


def run(*arguments: str | Path, stdin: bytes = b"") -> Outcome:
    """`regard ARGUMENTS`, in this process: importing torch anew takes seconds."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    argv, source = ["regard", *map(str, arguments)], io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    with (patch.object(sys, "argv", argv), patch.object(sys, "stdin", source),
          redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended):
        main()
    for stream in (out, err):
        stream.seek(0)
    return Outcome(int(ended.value.code or 0), out.read(), err.read())


def process(*arguments: str | Path, **options: object) -> "subprocess.Popen[bytes]":
    """`regard ARGUMENTS`, in a process of its own: for pipes, signals and permissions."""
    command = [sys.executable, "-m", "regard", *map(str, arguments)]
    with signals_heeded():
        return subprocess.Popen(command, **{"env": ENVIRONMENT, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
                                | options)  # type: ignore[call-overload,no-any-return]


def contents(folder: Path) -> dict[str, str]:
    """Every file below a folder, with its digest."""
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
            for path in sorted(folder.rglob("*"))}


def refused(*arguments: str | Path, stdin: bytes = b"") -> str:
    """What is said, once it is sure that it is said well and that nothing was done."""
    before, began = contents(Path.cwd()), time.perf_counter()
    outcome = run(*arguments, stdin=stdin)
    assert time.perf_counter() - began < 5
    assert (outcome.code, outcome.out) == (2, "")
    assert_one_message(outcome.err)
    assert contents(Path.cwd()) == before
    return outcome.err


def assert_one_message(err: str) -> None:
    assert err.startswith("regard: ")
    assert err.count("regard: ") == 1
    assert err.endswith("\n")
    assert "Traceback" not in err


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test stands in an empty folder of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    path.write_text("".join(f"le chat {n} dort\tthe cat {n} sleeps\n" for n in range(30)), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def trained(pairs: Path) -> Path:
    """A run that has ended. No test may change it."""
    folder = pairs.parent / "run"
    outcome = run("train", "translate", "--data", pairs, "--out", folder, *TINY_OPTIONS)
    assert outcome.code == 0, outcome.err
    return folder


# Mistakes that are answered before torch is imported.

MISTAKES = {
    "unknown verb": (["trian"], ["trian", "Did you mean 'train'?", "regard --help"]),
    "unknown option": (["train", "--dta", "x"], ["--dta", "--data", "regard train --help"]),
    "a setting for an option": (["train", "--step", "9"], ["option: --step; did you mean --set train.steps=…?"]),
    "unknown setting": (["train", "--set", "model.widht=3"], ["model.widht", "did you mean model.width?"]),
    "unknown setting to explain": (["settings", "widht"], ["widht: in the name of no setting", "mean model.width?"]),
    "unknown word to explain": (["settings", "xyz"], ["xyz: in the name of no setting", "`regard settings` lists"]),
    "unknown section": (["train", "--set", "modle.width=3"], ["did you mean model.width?"]),
    "unknown task": (["train", "traslate"], ["traslate: no such task", "translate"]),
    "unknown preset": (["train", "--set", "model.preset=transfomer-base"], ["did you mean transformer-base?"]),
    "no value": (["train", "--set", "model.width"], ["model.width", "as in model.width=128"]),
    "no setting": (["train", "--set"], ["--set", "requires an argument"]),
    "a text for a number": (["train", "--set", "model.width=wide"], ["model.width: must be a whole number", "'wide'"]),
    "a fraction for a whole number": (["train", "--set", "model.depth=1.5"], ["model.depth", "whole number", "1.5"]),
    "a number for a switch": (["train", "--set", "model.bias=2"], ["model.bias: must be true or false", "'2'"]),
    "no such choice": (["train", "--set", "model.norm=layr"], ["model.norm", "did you mean layer?"]),
    "negative": (["train", "--set", "train.steps=-1"], ["train.steps", "at least 1", "-1"]),
    "zero": (["train", "--set", "model.heads=0"], ["model.heads", "at least 1", "got 0"]),
    "zero rate": (["train", "--set", "train.learning_rate=0"], ["train.learning_rate", "above 0", "got 0"]),
    "nan": (["train", "--set", "train.learning_rate=nan"], ["train.learning_rate", "'nan'", "not finite"]),
    "infinite": (["train", "--set", "train.grad_clip=1e400"], ["train.grad_clip", "'1e400'", "not finite"]),
    "too large": (["train", "--set", f"model.width=1{'0' * 30}"], ["model.width", "too large"]),
    "heads that do not divide": (["train", "--set", "model.heads=3"], ["3 heads do not divide model.width 128"]),
    "missing data": (["train", "--data", "nowhere.tsv"], ["nowhere.tsv: no such file or folder"]),
    "missing recipe": (["train", "--recipe", "nowhere.toml"], ["nowhere.toml: no such file"]),
    "missing run": (["eval", "--run", "nowhere"], ["nowhere: no such run directory"]),
    "no run yet": (["predict", "chat"], ["no run under runs/", "regard train", "--run DIR"]),
    "a folder for a recipe": (["train", "--recipe", "."], ["is a directory", ".toml"]),
    "an option's value of another type": (["eval", "--limit", "few"], ["--limit", "integer"]),
    "an option's value too small": (["eval", "--limit", "0"], ["--limit", "1"]),
    "unknown device": (["eval", "--device", "tpu"], ["--device", "'tpu'", "cpu"]),
    "unknown GPU": (["plan", "--on", "nonsense"], ["'--on': 'nonsense' is not one of 'h200', 'h100'"]),
    "a picture for a page": (["look", "--out", "x.JPG", "a"], ["--out x.JPG: the page is HTML; name it x.html"]),
    "a picture for mistakes": (["wrong", "--out", "x.png"], ["--out x.png: the page is HTML; name it x.html"]),
}


@pytest.mark.parametrize(("arguments", "words"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_named_with_the_way_out(arguments: list[str], words: list[str]) -> None:
    message = refused(*arguments)
    assert message.count("\n") == 1
    for word in words:
        assert word in message


AT_ONCE = """
import json, sys
from regard.cli import main
for arguments in json.load(sys.stdin):
    sys.argv = ["regard", *arguments]
    try:
        main()
    except SystemExit as ended:
        assert ended.code == 2, (arguments, ended.code)
    assert "torch" not in sys.modules, arguments
"""


def test_a_mistake_is_answered_without_importing_torch(elsewhere: Path) -> None:
    Path("empty").mkdir()
    Path("classifier").mkdir()
    Path("classifier/run.json").write_text(json.dumps(to_json(load(overrides=["task=classify"]))))
    cases = [*(arguments for arguments, _ in MISTAKES.values()), ["eval", "--run", "empty"], ["train", "--out", "file"],
             ["predict", "--run", "empty", "--set", "search.baem=1"],
             ["predict", "--run", "classifier", "--beam", "3", "chat"]]
    Path("file").touch()
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", AT_ONCE], input=json.dumps(cases), env=ENVIRONMENT, text=True,
                          capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("regard: ") == len(cases)
    assert time.perf_counter() - began < 10  # all of them together


@pytest.mark.parametrize("arguments", [["--help"], ["train", "-h"], ["--version"], ["settings"], []])
def test_help_goes_to_stdout_and_is_no_mistake(arguments: list[str]) -> None:
    outcome = run(*arguments)
    assert (outcome.code, outcome.err) == (0, "")
    assert "regard" in outcome.out or "model.width" in outcome.out


# Files and folders that are not what is wanted.


def test_a_file_where_a_run_is_wanted_is_refused(pairs: Path) -> None:
    assert f"{pairs}: a file, not a run directory" in refused("eval", "--run", pairs)


def test_a_folder_that_holds_no_run_is_refused() -> None:
    Path("empty").mkdir()
    assert "empty: not a run directory (it has no run.json)" in refused("predict", "--run", "empty", "chat")


def test_a_file_where_the_run_should_go_is_refused(pairs: Path) -> None:
    Path("taken").write_text("mine")
    message = refused("train", "--data", pairs, "--out", "taken", *TINY_OPTIONS)
    assert "taken: a file, where the run's directory should go; choose another with --out DIR" in message


def test_a_folder_that_holds_other_things_is_left_alone(pairs: Path) -> None:
    Path("thesis").mkdir()
    Path("thesis/chapter.tex").write_text("mine")
    message = refused("train", "--data", pairs, "--out", "thesis", *TINY_OPTIONS)
    assert "thesis is not empty and holds no run; choose another place with --out DIR" in message


def test_a_folder_that_holds_another_run_is_left_alone_and_the_difference_shown(pairs: Path, trained: Path) -> None:
    shutil.copytree(trained, "mine")
    changed = [*TINY_OPTIONS, "--set", "model.width=32", "--set", "train.grad_clip=none"]
    message = refused("train", "--data", pairs, "--out", "mine", *changed)
    assert "mine holds a run with other settings" in message
    assert "model.width: 16 → 32" in message
    assert "train.grad_clip: 1.0 → none" in message
    assert message.count("→") == 2
    assert "--out DIR" in message
    assert "--extend" not in message


def test_a_run_that_is_only_to_be_longer_is_told_how(pairs: Path, trained: Path) -> None:
    shutil.copytree(trained, "mine")
    steps = load(trained / "run.json").train.steps
    message = refused("train", "--data", pairs, "--out", "mine", *TINY_OPTIONS, "--set", f"train.steps={steps + 5}")
    assert f"\nResume it with --set train.steps={steps} --extend 5, or choose another place with --out" in message


def test_the_command_that_began_a_lengthened_run_goes_on_with_it(pairs: Path) -> None:
    """Where it says nothing of the steps; else it is told how."""
    settings = [setting for setting in TINY if not setting.startswith("train.steps=")]
    command = ["train", "--data", pairs, "--out", "mine", *(word for each in settings for word in ("--set", each))]
    begun = settled(None, [pairs], None, None, None, settings)
    steps, more = begun.train.steps, begun.train.steps + 100

    def hold(steps: int) -> None:
        held = replace(begun, train=replace(begun.train, steps=steps))
        Path("mine/run.json").write_text(json.dumps(to_json(held)))

    Path("mine").mkdir()
    Path("mine/model.safetensors").touch()
    Path("mine/scores.json").write_text('{"val": {"bleu": 1.0}}')
    hold(more)
    outcome = run(*command)
    assert outcome.code == 0, outcome.err
    assert f"has ended, after {more:,} steps; --set train.steps={more} --extend N trains" in outcome.err
    assert "model.width: 16 → 32\nChoose another" in refused(*command, "--set", "model.width=32")
    message = refused(*command, "--set", f"train.steps={steps}")
    assert f"train.steps: {more} → {steps}\nResume it with --set train.steps={more}, for N more steps" in message
    hold(5)
    assert f"Resume it with --set train.steps=5 --extend {steps - 5}, or choose" in refused(*command)


def test_a_run_json_that_is_broken_is_named_with_the_place(pairs: Path) -> None:
    Path("mine").mkdir()
    Path("mine/run.json").write_text('{"format": 2,')
    message = refused("train", "--data", pairs, "--out", "mine", *TINY_OPTIONS)
    assert "mine/run.json: line 1, column 14" in message


@pytest.mark.parametrize(("toml", "place"), [
    ("[model]\nwidth = \n", "line 2, column 9"), ("[model\nwidth = 3", "line 1, column 7"),
    ("seed = 1\nseed = 2\n", "line 2, column"), ("width = 'a", "line 1, column 11"),
])  # fmt: skip
def test_broken_toml_is_refused_with_line_and_column(toml: str, place: str) -> None:
    Path("recipe.toml").write_text(toml)
    assert f"recipe.toml: {place}" in refused("train", "--recipe", "recipe.toml")


def test_a_wrong_setting_in_a_recipe_is_named_with_the_file() -> None:
    Path("recipe.toml").write_text("[model]\nwidht = 3\n")
    message = refused("train", "--recipe", "recipe.toml")
    assert "model.widht: no such setting; did you mean model.width? (in recipe.toml)" in message


def test_a_place_without_permission_is_refused_before_the_work(pairs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    message = refused("train", "--data", pairs, "--out", "mine/run", *TINY_OPTIONS)
    assert "no permission to write there; choose another place with --out DIR" in message


def powerless() -> None:
    """Even for root, a folder that may not be written to stays so: capabilities 1 and 2 override permissions."""
    if os.getuid() == 0:
        for capability in (1, 2):
            ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


@pytest.mark.skipif(os.name == "nt" or (os.getuid() == 0 and sys.platform != "linux"), reason="cannot lose permissions")
@pytest.mark.parametrize(("arguments", "sentence"), [
    (["train", "--out", "locked/run"], "locked: no permission to write there"),
    (["train", "--recipe", "secret.toml"], "ath 'secret.toml' is not readable"),
    (["train", "--data", "secret.toml"], "ath 'secret.toml' is not readable"),
    (["eval", "--run", "closed"], "ath 'closed' is not readable"),
], ids=["out", "recipe", "data", "run"])  # fmt: skip
def test_what_may_not_be_read_or_written_is_named(arguments: list[str], sentence: str) -> None:
    for folder, mode in (("locked", 0o500), ("closed", 0o000)):
        Path(folder).mkdir(mode=mode)
    Path("secret.toml").touch(mode=0o000)
    with process(*arguments, preexec_fn=powerless) as child:
        out, err = child.communicate(timeout=30)
    assert (child.returncode, out) == (2, b"")
    assert_one_message(err.decode())
    assert sentence in err.decode()
    assert sorted(os.listdir()) == ["closed", "locked", "secret.toml"]
    Path("closed").chmod(0o700)


@pytest.mark.parametrize(("number", "code", "says"), [
    (errno.ENOSPC, 1, "No space left on device"), (errno.EACCES, 2, "no permission")])
def test_what_the_system_refuses_is_one_line(pairs: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: int,
                                             says: str) -> None:
    def refuse(self: Path, *_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    outcome = run("train", "--data", pairs, "--out", "mine", *TINY_OPTIONS)
    assert (outcome.code, outcome.out, outcome.err) == (code, "", f"regard: mine: {says}\n")


def test_a_device_that_is_not_there_is_refused_with_those_that_are(pairs: Path, trained: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is one")
    for arguments in (["train", "--data", pairs, *TINY_OPTIONS, "--set", "device=cuda"],
                      ["eval", "--run", trained, "--device", "cuda"]):
        message = refused(*arguments)
        assert "device=cuda: not available here; there is:" in message
        assert "cpu" in message


@pytest.mark.parametrize("there", ["", "mine", "far"])
def test_a_training_that_is_refused_after_it_has_read_its_data_leaves_all_as_it_was(there: str) -> None:
    importlib.import_module("regard.training.loop")  # which takes seconds by itself
    Path(there).mkdir(exist_ok=True)
    out = "far/away/mine" if there == "far" else "mine"
    Path("texts.tsv").write_text("".join(f"text {n}\t{'ab'[n % 2]}\n" for n in range(40)))
    recurrent = ["--set", "model.preset=lstm", "--set", "train.activation_checkpointing=true"]
    message = refused("train", "classify", "--data", "texts.tsv", "--out", out, *TINY_OPTIONS, *recurrent)
    assert "train.activation_checkpointing: saves no memory with the blocks" in message


# Training.


def test_training_prints_where_the_run_is_and_all_else_on_stderr(pairs: Path) -> None:
    outcome = run("train", "--data", pairs, *TINY_OPTIONS)
    assert outcome.code == 0
    assert outcome.out == "runs/translate-pairs\n"
    for word in ("29 examples", "validation loss", "held out as val", "bleu signature"):
        assert word in outcome.err
    assert "\x1b" not in outcome.err
    assert "\r" not in outcome.err


def test_training_prints_json_if_asked(pairs: Path) -> None:
    outcome = run("train", "translate", "--data", pairs, "--out", "mine", "--json", *TINY_OPTIONS)
    printed = json.loads(outcome.out)
    assert printed["run"] == "mine"
    assert printed["scores"]["val"]["sentences"] == 1
    assert json.loads(Path("mine/scores.json").read_text())["val"] == printed["scores"]["val"]


def test_training_says_of_which_checkpoints_the_model_is_the_mean(pairs: Path) -> None:
    several, one = (run("train", "--data", pairs, "--out", f"mean-{steps}", *TINY_OPTIONS, "--set",
                        "train.average_checkpoints=2", "--set", f"train.steps={steps}") for steps in (3, 1))
    made_of = re.search(r"the model is the mean of the checkpoints of steps (\d) and 3\n", several.err)
    assert made_of is not None
    mean, earlier, last = (load_file(f"mean-3/{where}model.safetensors") for where in (
        "", f"checkpoints/step-{int(made_of[1]):08}/", "checkpoints/step-00000003/"))
    for name, weights in mean.items():
        np.testing.assert_allclose(weights, (earlier[name] + last[name]) / 2, rtol=1e-5, atol=1e-7)
    assert any((earlier[name] != last[name]).any() for name in mean)
    assert "the model is" not in one.err


def test_a_run_of_one_step_has_ended_after_1_step(pairs: Path) -> None:
    one = ["--set", "train.steps=1", "--set", "train.batch_tokens=2048"]
    assert "29 examples, 1 step per epoch; " in run("train", "--data", pairs, *TINY_OPTIONS, *one).err
    outcome = run("train", "--data", pairs, *TINY_OPTIONS, *one)
    assert "has ended, after 1 step; " in outcome.err


def test_a_language_model_is_trained_on_a_pattern_of_files_and_ends_with_a_sample(elsewhere: Path) -> None:
    for number in range(3):
        (elsewhere / f"{number}.txt").write_text("all that is the case\n" * 20, encoding="utf-8")
    outcome = run("train", "language", "--data", "*.txt", "--set", "data.max_tokens=16", "--set", "model.kv_heads=1",
                  *TINY_OPTIONS)
    assert outcome.code == 0, outcome.err
    assert outcome.out == "runs/language-txt\n"
    assert "bits_per_byte" in outcome.err
    assert "it writes:\n" in outcome.err
    answered = run("predict", "all that", "--json")
    assert answered.code == 0, answered.err
    assert json.loads(answered.out)["input"] == "all that"
    scores = json.loads(run("eval", "--split", "val", "--json").out)
    assert scores["bytes"] == scores["splits"]["val"]["bytes"] == 126  # a tenth of all characters


def test_a_task_has_its_own_defaults_and_a_recipe_names_its_task(elsewhere: Path) -> None:
    (elsewhere / "recipe.toml").write_text('task = "language"\n[train]\nsteps = 7\n', encoding="utf-8")
    said = settled(None, [], None, None, elsewhere / "recipe.toml", ["train.learning_rate=0.5"])
    assert (said.task, said.train.steps) == ("language", 7)
    assert (said.train.learning_rate, said.train.label_smoothing) == (0.5, 0.0)
    assert said.model.positions == "rotary"
    bare = settled(None, [], None, None, None, [])
    assert (bare.task, bare.train.label_smoothing, bare.model.positions) == ("translate", 0.05, "sinusoidal")
    published = settled("language", [], None, None, None, ["model.preset=gpt2-medium", "data.max_tokens=512"])
    assert published.tokens.vocabulary == 50_257
    assert (published.data.max_tokens, published.model.max_positions) == (512, 1024)


@pytest.mark.parametrize("with_data", [True, False])
def test_a_recipe_without_data_says_that_it_learns_from_the_built_in_data(
    elsewhere: Path, pairs: Path, with_data: bool
) -> None:
    (elsewhere / "recipe.toml").write_text("[train]\nsteps = 7\n", encoding="utf-8")
    with patch("regard.verbs.train._train", return_value={"val": {"loss": 1.0}}):
        outcome = run("train", "--recipe", "recipe.toml", *["--data", pairs] * with_data)
    assert outcome.code == 0, outcome.err
    assert ("this learns from the built-in phrasebook" in outcome.err) != with_data


def test_a_run_directory_holds_what_others_rely_on(trained: Path) -> None:
    names = {path.name for path in trained.iterdir()}
    assert {"run.json", "config.json", "model.safetensors", "tokenizer.json", "metrics.jsonl", "checkpoints"} <= names
    assert json.loads((trained / "config.json").read_text())["width"] == 16


def test_the_same_command_again_after_the_end_says_so_and_changes_nothing(pairs: Path, trained: Path) -> None:
    before = contents(trained)
    outcome = run("train", "translate", "--data", pairs, "--out", trained, *TINY_OPTIONS)
    assert (outcome.code, outcome.out) == (0, f"{trained}\n")
    assert "has ended" in outcome.err
    assert "bleu" in outcome.err
    assert "tokens/s" not in outcome.err
    assert contents(trained) == before


def test_the_same_command_again_before_the_end_goes_on(pairs: Path, trained: Path) -> None:
    shutil.copytree(trained, "mine")
    shutil.rmtree("mine/checkpoints/step-00000003")
    for name in ("scores.json", "model.safetensors"):
        Path("mine", name).unlink()
    outcome = run("train", "translate", "--data", pairs, "--out", "mine", *TINY_OPTIONS)
    assert outcome.code == 0
    assert "step      3/3" in outcome.err
    assert "step      2/3" not in outcome.err
    assert Path("mine/model.safetensors").read_bytes() == (trained / "model.safetensors").read_bytes()


def test_a_run_that_has_not_ended_cannot_answer_yet(trained: Path) -> None:
    shutil.copytree(trained, "mine")
    Path("mine/model.safetensors").unlink()
    assert "mine/model.safetensors: missing, but listed" in refused("predict", "--run", "mine", "chat")
    assert "the run has not ended yet" in refused("predict", "--run", "mine", "chat", "--no-verify")


@pytest.mark.parametrize("harm", ["cut", "empty"])
def test_a_model_file_that_is_broken_is_named(trained: Path, harm: str) -> None:
    shutil.copytree(trained, "mine")
    whole = Path("mine/model.safetensors").read_bytes()
    Path("mine/model.safetensors").write_bytes(whole[: len(whole) // 2 if harm == "cut" else 0])
    assert "mine/model.safetensors: damaged: it has" in refused("predict", "--run", "mine", "chat")
    told = refused("predict", "--run", "mine", "chat", "--no-verify")
    assert "mine/model.safetensors: not a whole safetensors file" in told


def test_a_recipe_and_a_saved_run_describe_the_same_run(pairs: Path, trained: Path) -> None:
    before = contents(trained)
    outcome = run("train", "--recipe", trained / "run.json", "--out", trained)
    assert outcome.code == 0
    assert contents(trained) == before


# Measuring.


def test_eval_prints_one_json_object(trained: Path) -> None:
    outcome = run("eval", "--run", trained, "--json")
    assert (outcome.code, outcome.out.count("\n")) == (0, 1)
    scores = json.loads(outcome.out)
    assert scores["split"] == "val"
    assert 0 <= scores["bleu"] <= 100
    assert 0 <= scores["chrf"] <= 100
    assert scores["sentences"] == 1
    assert "version:" in scores["bleu_signature"]


def test_eval_prints_a_table_without_json(trained: Path) -> None:
    outcome = run("eval", "--run", trained, "--split", "val", "--limit", "1")
    assert outcome.out.split()[:2] == ["split", "bleu"]
    assert "evaluating" in outcome.err


def test_eval_takes_the_newest_run(trained: Path) -> None:
    for name, written in (("runs/old", 1), ("runs/new", 2)):
        shutil.copytree(trained, name)
        os.utime(f"{name}/run.json", (written, written))
    assert json.loads(run("eval", "--json").out)["run"] == "runs/new"


def test_a_split_that_is_not_there_is_refused_with_those_that_are(trained: Path) -> None:
    outcome = run("eval", "--run", trained, "--split", "tset")
    assert (outcome.code, outcome.out) == (2, "")
    assert "regard: tset: no such split; there are val" in outcome.err


# Answering.


def answers(trained: Path, *arguments: str, stdin: bytes = b"") -> list[str]:
    """The lines of stdout. A line ends at \\n: what a young model says may hold any other character."""
    outcome = run("predict", "--run", trained, *arguments, stdin=stdin)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == "" or outcome.out.endswith("\n")
    return outcome.out.split("\n")[:-1]


def test_arguments_and_lines_of_stdin_have_the_same_answers(trained: Path) -> None:
    texts = ["le chat 3 dort", "le chat", "un chien"]
    lines = answers(trained, *texts)
    assert len(lines) == 3
    assert answers(trained, stdin="\n".join(texts).encode()) == lines
    assert answers(trained, stdin="\r\n".join(texts).encode() + b"\r\n") == lines


def test_empty_stdin_gives_nothing(trained: Path) -> None:
    assert answers(trained, stdin=b"") == []


def test_an_empty_line_gives_an_empty_line(trained: Path) -> None:
    first, empty, blank, second = answers(trained, stdin=b"le chat\n\n  \nle chien\n")
    assert [first, second] == answers(trained, "le chat", "le chien")
    assert empty == blank == ""


def test_json_has_an_object_for_each_input(trained: Path) -> None:
    records = [json.loads(line) for line in answers(trained, "--json", "le chat", "", "été")]
    assert [record["input"] for record in records] == ["le chat", "", "été"]
    assert all({"input", "text", "score", "others"} == set(record) for record in records)
    assert records[0]["score"] < 0
    assert records[1]["text"] == ""


def test_the_search_can_be_set_for_one_answer(trained: Path) -> None:
    greedy = answers(trained, "--set", "search.beam=1", "le chat 3 dort")
    assert greedy == answers(trained, "--beam", "1", "le chat 3 dort")
    assert greedy == answers(trained, "--set", "search.temperature=0", "le chat 3 dort")
    drawn = ["--set", "search.temperature=1.5", "--set", "search.top_k=40", "--set", "search.top_p=0.9"]
    assert answers(trained, *drawn, "le chat") == answers(trained, *drawn, "le chat")
    seeds = {answers(trained, *drawn, "--set", f"search.seed={seed}", "le chat")[0] for seed in range(5)}
    assert len(seeds) > 1


@pytest.mark.parametrize("how", [["--set", "search.beam=2"], ["--set", "search.temperature=1"]])
def test_the_three_best_answers_stand_on_one_line(trained: Path, how: list[str]) -> None:
    how = [*how, "--set", "search.best=3"]
    (line,) = answers(trained, *how, "le chat 3 dort")
    assert line.count("\t") == 2
    (record,) = map(json.loads, answers(trained, *how, "--json", "le chat 3 dort"))
    assert len(record["others"]) == 2
    if "search.temperature=1" not in how:
        scores = [record["score"], *(other["score"] for other in record["others"])]
        assert scores == sorted(scores, reverse=True)


def test_an_answer_is_one_line_whatever_the_model_says(trained: Path) -> None:
    wild = ["--set", "search.temperature=100"]
    texts = [f"le chat {n}" for n in range(50)]
    assert any(len(json.loads(line)["text"].splitlines()) > 1 for line in answers(trained, *wild, "--json", *texts))
    lines = answers(trained, *wild, *texts)
    assert len(lines) == 50
    assert not any("\t" in line or "\r" in line for line in lines)


def test_only_the_search_can_change_after_training(trained: Path) -> None:
    message = refused("predict", "--run", trained, "--set", "model.width=32", "le chat")
    assert "model.width=32: only settings of the search, such as search.beam=1, can change" in message


def test_stdin_that_is_not_utf8_is_refused_with_the_offset(trained: Path) -> None:
    message = refused("predict", "--run", trained, stdin=b"le chat\nl'\xe9t\xe9\n")
    assert "stdin:2: byte 0xe9 at offset 10 is not UTF-8" in message


def test_an_input_that_is_cut_is_spoken_of(trained: Path) -> None:
    outcome = run("predict", "--run", trained, "le chat " * 1000)
    assert outcome.code == 0
    assert outcome.err == "note: 1 of 1 input cut to data.max_tokens=256 tokens\n"


def test_a_reader_that_has_seen_enough_is_no_failure(trained: Path) -> None:
    """`regard predict | head -1`, through a real pipe."""
    command = f"seq 3000 | {sys.executable} -m regard predict --run {trained} --set search.beam=1 --json | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], env=ENVIRONMENT, capture_output=True, check=False)
    assert json.loads(done.stdout)["input"] == "1"
    assert done.stderr == b""
    assert done.returncode == 0


# Signals, colours, other languages.


def test_ctrl_c_ends_a_run_with_130_and_no_traceback(pairs: Path) -> None:
    endless = ["--set", "train.steps=1000000", "--set", "train.evaluate_every=1000000"]
    with process("train", "--data", pairs, *TINY_OPTIONS, *endless) as child:
        said = iter(child.stderr.readline, b"")
        assert any(b"step" in line and b"loss" in line for line in said)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=30)
    assert (child.returncode, out) == (130, b"")
    assert b"Traceback" not in err


def test_the_help_of_train_says_what_ctrl_c_does_and_what_the_exit_codes_mean() -> None:
    said = " ".join(run("train", "--help").out.split())
    assert "Ctrl-C finishes the step and saves" in said
    assert "Exit codes: 2 usage or data, 3 loss not finite, 75" in said


def shown_on_terminal(**variables: str) -> str:
    """`regard --help` on a terminal with these variables: what the terminal receives."""
    ours, theirs = pytest.importorskip("pty").openpty()
    plain = {name: value for name, value in ENVIRONMENT.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    received = b""
    with process("--help", env={**plain, "TERM": "xterm", **variables}, stdout=theirs, stderr=theirs):
        os.close(theirs)
        with suppress(OSError):  # on Linux, how a terminal whose other side is closed ends
            while part := os.read(ours, 65536):
                received += part
    os.close(ours)
    return received.decode()


def test_settings_says_whose_defaults_it_lists() -> None:
    first, second, *_ = run("settings").out.splitlines()
    assert " = " in second
    assert "your own files" in first
    assert "built-in" in first
    assert of(DEFAULTS, "model.width") != of(defaults("translate", built_in=True), "model.width")  # which is why


def test_no_color_is_honoured() -> None:
    colour = re.compile(r"\x1b\[([0-9]+;)*[34][0-9]")
    assert colour.search(shown_on_terminal())
    assert not colour.search(shown_on_terminal(NO_COLOR="1"))


def test_settings_lists_every_setting() -> None:
    listed = json.loads(run("settings", "--json").out)
    assert [path for path in listed if path not in SECTIONS] == list(SETTINGS)
    assert listed["model.recurrent"]["default"] == "none"
    assert listed["model.width"] == {"type": "a whole number of at least 1", "default": "256",
                                     "doc": SETTINGS["model.width"].doc}
    assert all(f"{path} = " in run("settings").out for path in ("seed", "search.beam"))


@pytest.mark.parametrize(("word", "held"), [
    ("head_", {"model.head_width", "model.head_widths"}), ("train.", None), ("model.TIED", {"model.tied"}),
    ("seed", {"seed", "search.seed"}),
])  # fmt: skip
def test_settings_can_be_asked_for_by_a_part_of_their_names(word: str, held: set[str] | None) -> None:
    listed = json.loads(run("settings", word, "--json").out)
    assert set(listed) == (held or {path for path in SETTINGS if word in path})
    assert run("settings", word).out.count(" = ") == len(listed)


# The same from Python.


def test_python_gives_the_answers_of_the_command_line(trained: Path) -> None:
    texts = ["le chat 3 dort", "", "un chien"]
    predictor = regard.load(str(trained))
    assert predictor.predict(texts) == [json.loads(line)["text"] for line in answers(trained, "--json", *texts)]
    assert predictor.predict(texts, beam=1)[1] == ""
    assert [len(answer.others) for answer in predictor.answers(["le chat"], best=3)] == [2]
    assert predictor.evaluate("val")["sentences"] == 1
    with pytest.raises(TypeError, match="must be a list of texts"):
        predictor.predict("le chat")


def test_python_trains_what_the_command_line_trains(pairs: Path, trained: Path, elsewhere: Path) -> None:
    settings = load(overrides=[*TINY, f"data.paths={pairs}"])
    scores = regard.train(settings, elsewhere / "mine", quiet=True)
    assert scores == json.loads((trained / "scores.json").read_text())
    assert (elsewhere / "mine/model.safetensors").read_bytes() == (trained / "model.safetensors").read_bytes()


def test_regard_shows_the_few_names_a_user_needs() -> None:
    assert {"load", "train"} <= set(regard.__all__) <= set(dir(regard))
    with pytest.raises(AttributeError, match="module 'regard' has no attribute 'laod'"):
        regard.laod  # noqa: B018


def test_each_of_these_names_can_be_called() -> None:
    assert all(callable(getattr(regard, name)) for name in regard.__all__)
