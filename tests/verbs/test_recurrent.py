"""Models of recurrent blocks through the command line: every verb works on them, or says in a line why not."""

import json
from pathlib import Path

import pytest

from typed import regard_says

TINY = ("model.width=16", "tokens.vocabulary=300", "data.max_tokens=32", "train.steps=3", "train.batch_tokens=128",
        "train.log_every=1", "train.warmup=1", "search.max_tokens=8", "device=cpu", "train.precision=float32")
NO_ATTENTION = ("regard: this model has no attention to look at: its blocks read one token after the other; `regard "
                "predict` gives its answers and `regard wrong` its mistakes\n")


def train(task: str, out: Path, *settings: str, start: Path | None = None) -> tuple[int, str, str]:
    """On a few sentences that end well or badly."""
    data = out.with_name(f"{task}-data")
    data.mkdir(exist_ok=True)
    for split in ("train", "val"):
        ends = [("so " * (n % 5), *end) for n in range(30) for end in (("good", "fine"), ("bad", "awful"))]
        match task:
            case "tag":
                lines = ["it PRON\nis AUX\n" + "so ADV\n" * (len(so) // 3) + f"{word} ADJ\n\n" for so, _, word in ends]
            case "classify":
                lines = ["label\ttext\n", *(f"{label}\tit is {so}{word}\n" for so, label, word in ends)]
            case _:
                lines = [f"it is {so}{word}\n" for so, _, word in ends]
        (data / f"{split}.{'tsv' if task == 'classify' else 'txt'}").write_text("".join(lines))
    words = [word for setting in (*TINY, *settings) for word in ("--set", setting)]
    return regard_says("train", task, "--data", data, "--out", out, *words, *(("--from", start) if start else ()))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tagger, a classifier, a filler of blanks and a language model."""
    folder = tmp_path_factory.mktemp("recurrent")
    for task, preset in (("tag", "elman"), ("classify", "bilstm"), ("mask", "bilstm"), ("language", "lstm")):
        code, _, said = train(task, folder / task, f"model.preset={preset}")
        assert code == 0, said
    return folder


TASKS = ["tag", "classify", "mask", "language"]


@pytest.mark.parametrize("task", TASKS)
def test_what_must_hold_of_every_model_holds_of_recurrent_ones(runs: Path, task: str) -> None:
    code, said, _ = regard_says("check", "--run", runs / task, "--json")
    assert code == 0, said
    names = [each["name"] for each in json.loads(said)["checks"]]
    assert "padded = unpadded" in names
    assert "fused = explicit" not in names
    assert ("reordered = fresh" in names) == (task == "language")


@pytest.mark.parametrize("task", TASKS)
def test_mistakes_are_shown_without_attention(runs: Path, tmp_path: Path, task: str) -> None:
    code, said, _ = regard_says("wrong", "--run", runs / task, "--limit", "4", "--out", tmp_path / "x.html", "--json")
    assert code == 0
    worst = json.loads(said)["worst"]
    assert [each["spread"] for each in worst] == [None] * len(worst)
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert page.count("<article") == len(worst) > 0
    assert "<svg" not in page


@pytest.mark.parametrize("words", [
    ["look"], ["look", "--terminal"], ["explain"], ["explain", "--word", "1"], ["measure"], ["measure", "--ablate"]])
def test_without_attention_there_is_nothing_to_look_at_and_a_line_says_so(runs: Path, words: list[str]) -> None:
    for task in ("tag", "language"):
        text = [] if words[0] == "measure" else ["it is fine"]
        code, out, said = regard_says(*words, "--run", runs / task, *text)
        assert (code, out) == (2, "")
        assert said.endswith(NO_ATTENTION)
        assert said.count("\n") <= 2


def test_a_tagger_says_how_likely_each_tag_is_and_is_measured_beside_its_baseline(runs: Path) -> None:
    code, said, _ = regard_says("predict", "--run", runs / "tag", "--json", "it is fine")
    assert code == 0
    assert [choice["token"] for choice in json.loads(said)["choices"]] == ["it", "is", "fine"]
    code, said, _ = regard_says("eval", "--run", runs / "tag", "--limit", "5", "--json")
    assert code == 0
    assert json.loads(said)["baseline"] == 1.0


def test_the_same_command_again_changes_nothing(runs: Path) -> None:
    before = (runs / "tag" / "model.safetensors").read_bytes()
    assert train("tag", runs / "tag", "model.preset=elman")[0] == 0
    assert (runs / "tag" / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize(("settings", "said"), [
    (("train.trainable=lora",),
     "train.trainable=lora: the blocks of this model have none of train.lora.targets=q,v, so there would be no "
     "adapter; take train.trainable=all or head"),
    (("train.optimizer=muon",), "train.optimizer=muon: this model has no separate matrices"),
    (("train.activation_checkpointing=true",), "train.activation_checkpointing: saves no memory with the blocks"),
    (("model.recurrent.bptt=4",), "model.recurrent.bptt=4: only a language model uses this"),
])
def test_what_recurrent_blocks_cannot_have_is_refused_in_a_line(
    runs: Path, tmp_path: Path, settings: tuple[str, ...], said: str
) -> None:
    code, _, error = train("tag", tmp_path / "run", *settings, start=runs / "mask")
    assert code == 2
    assert error.splitlines()[-1].startswith(f"regard: {said}")


@pytest.mark.parametrize("settings", [
    (), ("train.trainable=head",), ("train.freeze_layers=1", "train.layer_decay=0.8"),
    ("train.accumulate=2", "train.average_checkpoints=2")])
def test_a_run_goes_on_from_the_body_of_another(runs: Path, tmp_path: Path, settings: tuple[str, ...]) -> None:
    code, _, said = train("tag", tmp_path / "run", *settings, start=runs / "mask")
    assert code == 0, said
    assert json.loads((tmp_path / "run" / "run.json").read_text())["model"]["recurrent"]["cell"] == "lstm"


def test_no_published_family_is_made_of_recurrent_blocks(runs: Path, tmp_path: Path) -> None:
    code, _, said = regard_says("convert", runs / "tag", "--out", tmp_path / "out")
    assert code == 2
    assert "does not have model.recurrent.cell=elman" in said
    assert said.endswith("only regard opens this model\n")


@pytest.mark.parametrize(("settings", "said"), [
    (("model.preset=bilstm",),
     "regard: model.recurrent.direction=bidirectional: a language model can only read forward"),
    (("model.preset=lstm", "data.documents=apart"),
     "regard: data.documents=apart: recurrent blocks read on from one text to the next; take joined"),
])
def test_a_language_model_that_could_not_be_one_is_refused(
    tmp_path: Path, settings: tuple[str, ...], said: str
) -> None:
    code, _, error = train("language", tmp_path / "run", *settings)
    assert (code, error.splitlines()[-1]) == (2, said)


@pytest.mark.parametrize("preset", ["elman", "gru", "lstm", "bilstm"])
def test_a_classifier_learns_by_any_of_them(tmp_path: Path, preset: str) -> None:
    """What stands for a text must have read all of it, whichever way it was read."""
    code, _, said = train("classify", tmp_path / "run", "train.steps=30", "train.learning_rate=0.02",
                          f"model.preset={preset}", "model.dropout=0")
    assert code == 0, said
    scores = json.loads((tmp_path / "run" / "scores.json").read_text())
    assert scores["val"]["accuracy"] == 1.0
