"""`regard train --from`: what cannot be gone on from is said in one line, before anything is written."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from regard.settings.errors import UserError
from regard.settings.load import load, to_json
from regard.training.loop import train
from regard.verbs.train import settled

SMALL = ["model.width=16", "model.depth=1", "model.heads=2", "tokens.vocabulary=300", "train.steps=1",
         "train.batch_tokens=64", "device=cpu", "data.max_tokens=16", "search.max_tokens=2"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier and a language model."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "a.tsv").write_text("".join(f"the text {n}\t{'ab'[n % 2]}\n" for n in range(40)))
    (folder / "a.txt").write_text("the cat sees the dog\n" * 60)
    for task, file in (("classify", "a.tsv"), ("language", "a.txt")):
        train(settled(task, [folder / file], None, None, None, SMALL), folder / task, quiet=True)
    (folder / "empty").mkdir()
    (folder / "half").mkdir()
    (folder / "half" / "run.json").write_bytes((folder / "classify" / "run.json").read_bytes())
    (folder / "strange").mkdir()
    (folder / "strange" / "config.json").write_text(json.dumps({"model_type": "t5"}))
    return folder


@pytest.mark.parametrize(("task", "source", "more", "says"), [
    ("classify", "nowhere", [], "no such folder"),
    ("classify", "a.tsv", [], "no such folder"),
    ("classify", "empty", [], "not a Hugging Face directory (it has no config.json)"),
    ("classify", "half", [], "the run has not ended yet"),
    ("classify", "strange", [], "model_type='t5': no family that regard knows"),
    ("classify", "language", [], "its model is of the task language, and classify needs an encoder"),
    ("language", "classify", [], "its model is of the task classify, and language needs a language model"),
    ("translate", "language", [], "a model of translate cannot start from another model"),
    ("language", "language", ["train.trainable=head"], "--tune head: a model of language has no separate head"),
    ("classify", "classify", ["train.freeze_layers=2"],
     "train.freeze_layers=2: the model has only model.depth=1"),
])
def test_a_source_that_cannot_be_gone_on_from_is_named(
    runs: Path, task: str, source: str, more: list[str], says: str
) -> None:
    with pytest.raises(UserError) as error:
        settled(task, [], None, None, None, [f"train.init_from={runs / source}", *more])
    assert says in str(error.value)
    assert error.value.exit_code == 2


@pytest.mark.parametrize(("options", "says"), [
    (["--from", "nowhere"], "regard: --from nowhere: no such folder"),
    (["--tune", "lora"], "regard: train.trainable=lora: the rest of the model would never learn"),
    (["--from", ".", "--tune", "some"], "regard: Invalid value for '--tune': "),
])
@pytest.mark.parametrize("verb", ["train", "plan"])
def test_wrong_options_are_refused_before_torch_is_imported(verb: str, options: list[str], says: str) -> None:
    script = ("import sys; from regard.cli import main\n"
              f"sys.argv = ['regard', {verb!r}, 'classify', *{options!r}]\n"
              "try: main()\n"
              "except SystemExit as end: print(end.code, 'torch' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "False"]
    assert done.stderr.startswith(says)


def test_settings_of_a_recipe_and_of_the_command_line_beat_those_of_the_source(runs: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "tune.toml"
    recipe.write_text(f'task = "classify"\n[train]\ninit_from = "{runs / "classify"}"\ntrainable = "lora"\nsteps = 7\n')
    run = settled(None, [], None, None, recipe, ["train.warmup=3"])
    assert run.model == load(runs / "classify" / "run.json").model
    assert (run.train.steps, run.train.warmup, run.train.learning_rate, run.train.trainable) == (7, 3, 1e-3, "lora")
    assert run.tokens.file == str(runs / "classify" / "tokenizer.json")
    assert run.data.max_tokens == 16
    again = settled("classify", [], None, None, None, [f"train.init_from={runs / 'classify'}"])
    assert again.train.learning_rate == 5e-5 * 48


@pytest.mark.parametrize(("setting", "has"), [
    ("model.width=32", "16"), ("model.depth=2", "1"), ("model.heads=4", "2"), ("model.kv_heads=1", "2"),
    ("model.ffn_width=48", "64"), ("model.positions=learned", "rotary"),
])
def test_a_shape_that_the_source_has_not_is_refused_by_the_name_of_its_setting(
    runs: Path, setting: str, has: str
) -> None:
    name, source = setting.partition("=")[0], runs / "classify"
    with pytest.raises(UserError) as error:
        settled("classify", [], None, None, None, [f"train.init_from={source}", setting])
    fits = "no more" if name == "model.depth" else "no other"
    assert str(error.value) == (f"{setting}: the model in {source} has {has}, and its weights fit {fits}; leave "
                                f"{name} out, or train from the beginning, without --from")


def test_another_preset_than_that_of_the_source_is_named_beside_it(runs: Path, tmp_path: Path) -> None:
    def refusal(task: str, source: Path, preset: str) -> str:
        with pytest.raises(UserError) as error:
            settled(task, [], None, None, None, [f"train.init_from={source}", f"model.preset={preset}"])
        return str(error.value)

    plain = runs / "language"
    assert refusal("language", plain, "gpt2") == (
        f"model.preset=gpt2: has model.width=768, and the model in {plain}, made without a preset, has 16; leave "
        "model.preset out to take that model as it is, or train from the beginning, without --from")
    train(settled("language", [runs / "a.txt"], None, None, None, ["model.preset=lstm", *SMALL]), tmp_path / "lstm",
          quiet=True)
    for other in ("gpt2", "none"):
        said = refusal("language", tmp_path / "lstm", other)
        assert said.startswith(f"model.preset={other}: has model.recurrent.cell=none, and the model in "
                               f"{tmp_path / 'lstm'}, made from model.preset=lstm, has lstm; leave model.preset out")
    taken = settled("language", [], None, None, None, [f"train.init_from={tmp_path / 'lstm'}"])
    assert (taken.model.preset, taken.model.width) == ("lstm", 16)


def test_a_hidden_layer_is_that_of_tokens_or_of_texts_and_not_of_both(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text("".join(f"the\tD\ntext\tN\n{n}\tX\n\n" for n in range(40)))
    classify = f"train.init_from={runs / 'classify'}"
    asked = settled("tag", [tmp_path / "a.conll"], None, None, None, [classify, "model.head.hidden=gelu", *SMALL[4:]])
    assert load(runs / "classify" / "run.json").model.head.hidden == "tanh"
    assert settled("tag", [], None, None, None, [classify]).model.head.hidden == "none"
    assert settled("classify", [], None, None, None, [classify]).model.head.hidden == "tanh"
    assert asked.model.head.hidden == "gelu"
    train(asked, tmp_path / "tag", quiet=True)
    tag = f"train.init_from={tmp_path / 'tag'}"
    assert settled("tag", [], None, None, None, [tag]).model.head.hidden == "gelu"
    assert settled("classify", [], None, None, None, [tag]).model.head.hidden == "tanh"


def test_the_shape_of_the_source_may_be_said_again_in_whatever_way(runs: Path) -> None:
    same = ["model.width=16", "model.kv_heads=2", "model.head_width=8", "model.ffn_width=64"]
    run = settled("classify", [], None, None, None,
                  [f"train.init_from={runs / 'classify'}", *same, "model.dropout=0.5"])
    assert (run.model.head_width, run.model.dropout) == (8, 0.5)


def test_none_takes_back_what_a_recipe_starts_from(runs: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "tune.toml"
    recipe.write_text(f'task = "classify"\n[train]\ninit_from = "{runs / "classify"}"\n')
    assert settled(None, [], None, None, recipe, ["train.init_from=none"]).train.init_from is None
    assert settled(None, [], None, None, recipe, ["train.init_from=none"]).tokens.file is None
    recipe.write_text('task = "classify"\n[train]\ninit_from = "none"\n')
    assert settled(None, [], None, None, recipe, []).train.init_from is None


def test_a_saved_run_is_the_run_it_was_though_its_source_is_gone(runs: Path, tmp_path: Path) -> None:
    run = settled("classify", [], None, None, None,
                  [f"train.init_from={runs / 'classify'}", "train.learning_rate=1e-4"])
    saved = json.loads(json.dumps(to_json(run)).replace(str(runs), "gone"))
    (tmp_path / "run.json").write_text(json.dumps(saved))
    again = settled(None, [], None, None, tmp_path / "run.json", [])
    assert again.train.init_from == "gone/classify"
    assert again.model == run.model
