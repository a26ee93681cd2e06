"""Fine-tuning: a body is taken over, some of it learns, and the rest stays what it was to the last bit."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from killing import killed_at
from regard.checkpoint import Checkpoint, average, read_json
from regard.convert.import_export import read_run_model
from regard.models.electra import Detector
from regard.nn.lora import merged
from regard.predictor import load as load_run
from regard.settings.errors import UserError
from regard.settings.load import from_json, load
from regard.settings.schema import Run, Tower, Train
from regard.tasks import make
from regard.training import loop
from regard.training.init_from import taken
from regard.training.loop import train
from regard.training.optimizer import adamw, layer_ratios
from regard.training.trainable import learns, trainable_model
from regard.training.update import Update
from regard.verbs.train import settled

SMALL = ("model.preset=bert-base", "model.width=16", "model.depth=2", "model.heads=2", "model.max_positions=32",
         "model.dropout=0.1", "data.max_tokens=32", "tokens.vocabulary=300")
SHORT = ("train.steps=4", "train.batch_tokens=64", "train.warmup=1", "train.save_every=2", "train.evaluate_every=2",
         "device=cpu", "train.precision=float32")


def labelled(folder: Path, kinds: dict[str, str]) -> Path:
    folder.mkdir()
    for split, numbers in (("train", range(30)), ("val", range(30, 36))):
        lines = [f"{text} {n}\t{label}\n" for n in numbers for label, text in kinds.items()]
        (folder / f"{split}.tsv").write_text("".join(lines), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return labelled(tmp_path_factory.mktemp("data") / "own", {"red": "the red one", "blue": "a blue one",
                                                              "none": "neither of them"})


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the same task with other labels, as many as the next one has."""
    folder = tmp_path_factory.mktemp("source")
    kinds = {"cat": "the cat sleeps", "dog": "a dog runs", "bird": "birds neither sleep nor run"}
    where = labelled(folder / "data", kinds)
    train(settled("classify", [where], None, None, None, [*SMALL, *SHORT]), folder / "run", quiet=True)
    return folder / "run"


def tuned(data: Path, source: Path, *overrides: str) -> Run:
    return settled("classify", [data], None, None, None, [*SHORT, f"train.init_from={source}", *overrides])


def tensors(folder: Path) -> dict[str, Tensor]:
    return read_run_model(folder, from_json(read_json(folder / "run.json")))[1]


def moved(folder: Path, source: Path) -> set[str]:
    before, after = tensors(source), tensors(folder)
    assert before.keys() == after.keys()
    return {name for name in before if not torch.equal(before[name], after[name])}


# What is taken over.


def test_a_run_starts_with_the_body_and_the_tokens_of_another(
    data: Path, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tuned(data, source, "train.learning_rate=1e-30")  # as good as not moving
    train(run, tmp_path)
    body, own = tensors(source), tensors(tmp_path)
    for name in body:
        assert torch.allclose(body[name], own[name], atol=1e-12) != name.startswith("head.output."), name
    assert (tmp_path / "tokenizer.json").read_bytes() == (source / "tokenizer.json").read_bytes()
    count = sum(tensor.numel() for tensor in own.values())
    new = own["head.output.weight"].numel() + own["head.output.bias"].numel()
    said = capsys.readouterr().err
    assert f"{count - new:,} of {count:,} weights from {source}; new: head.output ({new})" in said
    assert "frozen: nothing" in said


def test_the_shape_comes_from_the_source_and_can_be_changed(data: Path, source: Path, tmp_path: Path) -> None:
    assert tuned(data, source).model == load(source / "run.json").model
    shallow = tuned(data, source, "model.depth=1", "model.head.pool=mean", "model.head.hidden=none")
    train(shallow, tmp_path, quiet=True)
    kept = {name for name in tensors(tmp_path) if ".blocks." in name}
    assert all(".blocks.0." in name for name in kept)
    assert "head.hidden.weight" not in tensors(tmp_path)


def test_a_pooling_by_a_learned_query_is_part_of_the_head(data: Path, source: Path, tmp_path: Path) -> None:
    """It may be new, and it learns where only the head does."""
    for number, place in enumerate((source, tmp_path / "0")):
        train(tuned(data, place, "model.head.pool=learned", "train.trainable=head"), tmp_path / str(number), quiet=True)
    assert {"pool.query", "head.output.weight"} <= moved(tmp_path / "1", tmp_path / "0")
    assert not any(name.startswith("encoder.") for name in moved(tmp_path / "1", tmp_path / "0"))


def test_a_published_directory_is_a_source_like_a_run(data: Path, source: Path, tmp_path: Path) -> None:
    published = tmp_path / "published"
    published.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        (published / name).write_bytes((source / name).read_bytes())
    for name, place in (("run", source), ("directory", published)):
        train(tuned(data, place), tmp_path / name, quiet=True)
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("run", "directory"))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(("other", "says"), [
    ({"width": 32}, r"encoder\.\S+: \(.*16.*\) instead of \(.*32"),
    ({"max_positions": 40}, r"encoder\.inputs\.positions\.table: \(32, 16\) instead of \(40, 16\)$"),
    ({"depth": 3}, r"encoder\.blocks\.2\.\S+: missing"),
])
def test_what_does_not_fit_is_named_and_leaves_no_run_behind(
    data: Path, source: Path, tmp_path: Path, other: dict[str, int], says: str
) -> None:
    run = tuned(data, source)
    with pytest.raises(UserError, match=f"does not fit the model: .*{says}"):
        train(replace(run, model=replace(run.model, **other)), tmp_path, quiet=True)
    assert not (tmp_path / "run.json").exists()


def test_ids_by_which_a_vocabulary_is_rounded_up_are_no_likelier_than_others(
    data: Path, source: Path
) -> None:
    """Published models have as many vectors as there are tokens."""
    run, before = tuned(data, source), tensors(source)["encoder.inputs.tokens.table.weight"]
    sizes = {"vocabulary": len(before) + 3, "labels": 3}
    found = taken(trainable_model(make(run), sizes), run, sizes)["encoder.inputs.tokens.table.weight"]
    assert torch.equal(found[:-3], before)
    torch.testing.assert_close(found[-3:], before.mean(0).expand(3, 16))


# What learns.


def test_with_all_everything_learns(data: Path, source: Path, tmp_path: Path) -> None:
    train(tuned(data, source), tmp_path, quiet=True)
    assert moved(tmp_path, source) == tensors(source).keys()


def test_with_head_the_body_stays_to_the_last_bit(data: Path, source: Path, tmp_path: Path) -> None:
    train(tuned(data, source, "train.trainable=head"), tmp_path, quiet=True)
    assert moved(tmp_path, source) == {f"head.{part}.{kind}" for part in ("hidden", "output")
                                       for kind in ("weight", "bias")}


def test_with_lora_only_what_has_an_adapter_moves_and_only_its_rows(data: Path, source: Path, tmp_path: Path) -> None:
    train(tuned(data, source, "train.trainable=lora"), tmp_path, quiet=True)
    changed = {name for name in moved(tmp_path, source) if name.startswith("encoder.")}
    assert changed == {f"encoder.blocks.{block}.self.qkv.weight" for block in (0, 1)}
    before, after = tensors(source), tensors(tmp_path)
    for name in changed:
        same = (before[name] == after[name]).all(1).view(3, 16).all(1)
        assert same.tolist() == [False, True, False]  # queries, keys, values


def test_frozen_blocks_and_what_is_below_them_stay(data: Path, source: Path, tmp_path: Path) -> None:
    train(tuned(data, source, "train.freeze_layers=1"), tmp_path, quiet=True)
    changed = moved(tmp_path, source)
    assert {name for name in changed if name.startswith("encoder.")} == {
        name for name in tensors(source) if name.startswith("encoder.blocks.1.")}
    assert {"head.hidden.weight", "head.output.weight"} <= changed


@pytest.mark.parametrize("how", [Train(init_from="runs/mask", freeze_layers=2),
                                 Train(init_from="runs/mask", trainable="head"),
                                 Train(init_from="runs/mask", trainable="lora")])
def test_a_generator_that_a_detector_s_body_came_without_learns_whatever_of_the_body_does(how: Train) -> None:
    with torch.device("meta"):
        model = Detector(Tower(width=16, depth=2, heads=2), vocabulary=32, generator=0.5)
    names = [name for name, _ in model.named_parameters() if name.startswith("generator.")]
    assert all(learns(name, how) for name in names)
    assert set(layer_ratios(names, 0.5).values()) == {1.0}
    assert not learns("encoder.blocks.1.self.out.weight", how)


def test_an_adapter_of_a_frozen_block_does_not_learn() -> None:
    how = Train(trainable="lora", init_from="there", freeze_layers=1)
    names = [f"encoder.blocks.{block}.self.qkv.adapters.v.b" for block in (0, 1)]
    assert [learns(name, how) for name in names] == [False, True]


def test_the_optimizer_keeps_nothing_of_what_does_not_learn(data: Path, source: Path, tmp_path: Path) -> None:
    train(tuned(data, source, "train.trainable=lora"), tmp_path, quiet=True)
    newest = Checkpoint.all(tmp_path)[0]
    numbers = {key.split(".")[0] for key in newest.optimizer()}
    learning = {name for name in newest.weights() if ".adapters." in name or name.startswith("head.")}
    assert len(numbers) == len(learning) == 2 * 2 * 2 + 4


def test_a_run_says_what_learns_and_what_is_frozen(
    data: Path, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tuned(data, source, "train.trainable=lora", "train.lora.rank=2"), tmp_path)
    said = capsys.readouterr().err
    own = tensors(tmp_path)
    adapters = 2 * 2 * 2 * (16 + 16)
    encoder = sum(tensor.numel() for name, tensor in own.items() if name.startswith("encoder.blocks."))
    assert f"new: adapters ({adapters}), head.output (51)" in said
    assert f"adapters {adapters} (" in said
    assert "learning: head 272, output 51, " in said
    assert f"encoder {encoder:,}" in said.partition("frozen: ")[2]


# Adapters.


def test_the_model_of_a_run_with_adapters_has_them_merged(data: Path, source: Path, tmp_path: Path) -> None:
    train(tuned(data, source, "train.trainable=lora", "train.average_checkpoints=1"), tmp_path, quiet=True)
    found = [merged(checkpoint.weights(), scale=2.0) for checkpoint in Checkpoint.all(tmp_path)]
    own = tensors(tmp_path)
    assert any(all(torch.equal(own[name], weights[name]) for name in own) for weights in found)
    predictor = load_run(tmp_path, device="cpu")
    assert not any(".adapters." in name for name, _ in predictor.model.named_parameters())
    assert predictor.predict(["the red one 5"])[0] in ("red", "blue", "none")


@pytest.mark.parametrize(("tune", "step"), [("all", 3), ("head", 1), ("lora", 1), ("lora", 3)])
def test_a_killed_run_ends_as_if_it_had_not_been(
    data: Path, source: Path, tmp_path: Path, tune: str, step: int
) -> None:
    run = tuned(data, source, f"train.trainable={tune}", "train.layer_decay=0.8")
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # sums on a CPU depend on the number of threads
    train(run, tmp_path / "whole", quiet=True)
    with killed_at(step):
        train(run, tmp_path / "killed", quiet=True)
    train(run, tmp_path / "killed", quiet=True)
    torch.set_num_threads(before)
    for name in ("model.safetensors", "checkpoints/step-00000004/optimizer.safetensors", "scores.json"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_a_run_that_goes_on_does_not_need_its_source_any_more(data: Path, source: Path, tmp_path: Path) -> None:
    place = tmp_path / "source"
    place.mkdir()
    for name in ("run.json", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
                 "labels.json"):
        (place / name).write_bytes((source / name).read_bytes())
    run = tuned(data, place)
    with killed_at(3):
        train(run, tmp_path / "run", quiet=True)
    (place / "model.safetensors").unlink()
    assert train(run, tmp_path / "run", quiet=True)["val"]


def test_recomputed_and_in_pieces_adapters_learn_the_same(data: Path, source: Path, tmp_path: Path) -> None:
    still = ("model.dropout=0", "model.attention_dropout=0", "train.trainable=lora", "train.learning_rate=0.01")
    train(tuned(data, source, *still), tmp_path / "plain", quiet=True)
    less = ["train.activation_checkpointing=true", "train.accumulate=2"]  # memory
    train(tuned(data, source, *still, *less), tmp_path / "other", quiet=True)
    one, two = tensors(tmp_path / "plain"), tensors(tmp_path / "other")
    for name in one:
        torch.testing.assert_close(two[name], one[name], rtol=1e-4, atol=1e-5, msg=name)


def started(data: Path, source: Path, out: Path, *overrides: str) -> list[str]:
    """The words of a command line."""
    settings = [word for setting in [*SHORT, *overrides] for word in ("--set", setting)]
    return ["-m", "regard", "train", "classify", "--data", str(data), "--from", str(source), "--out", str(out),
            *settings]


@pytest.mark.slow
def test_adapters_survive_kills_at_any_moment(data: Path, source: Path, tmp_path: Path) -> None:
    how = ("train.trainable=lora", "train.steps=40", "train.log_every=1", "train.save_every=3")
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, *started(data, source, tmp_path / "whole", *how)], check=True, env=alone,
                   capture_output=True)
    command = [sys.executable, *started(data, source, tmp_path / "killed", *how)]
    written = tmp_path / "killed" / "metrics.jsonl"
    for lines in (1, 5, 20, 45):  # of its metrics, before it is killed
        process = subprocess.Popen(command, env=alone, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and not (written.exists() and written.read_bytes().count(b"\n") >= lines):
            time.sleep(0.01)
        process.kill()
        process.wait()
    subprocess.run(command, check=True, env=alone, capture_output=True)
    for name in ("model.safetensors", "checkpoints/step-00000040/optimizer.safetensors", "scores.json",
                 "adapter/adapter_model.safetensors"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


@pytest.mark.slow
@pytest.mark.parametrize("shard", [False, True])
def test_two_processes_learn_the_adapters_that_one_does(data: Path, source: Path, tmp_path: Path, shard: bool) -> None:
    still = ["model.dropout=0", "model.attention_dropout=0", "train.trainable=lora", "train.learning_rate=0.01"]
    train(tuned(data, source, *still), tmp_path / "one", quiet=True)
    processes = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = started(data, source, tmp_path / "two", *still, f"train.fsdp={str(shard).lower()}")
    subprocess.run([*processes, *command], check=True, capture_output=True,
                   env={**os.environ, "OMP_NUM_THREADS": "1"})
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    for name in one:
        torch.testing.assert_close(two[name], one[name], rtol=1e-4, atol=1e-5, msg=name)


# Rates.


def test_a_layer_s_rate_falls_with_its_depth_and_nothing_else_changes(source: Path, data: Path) -> None:
    run = tuned(data, source, "train.layer_decay=0.5")
    model = trainable_model(make(run), {"vocabulary": 320, "labels": 3})
    optimizer = adamw(model, run.train, device=torch.device("cpu"))
    names = {parameter: name for name, parameter in model.named_parameters()}
    rates = {names[parameter]: group["lr"] / run.train.learning_rate for group in optimizer.param_groups
             for parameter in group["params"]}
    assert rates["head.output.weight"] == rates["head.hidden.bias"] == 1
    assert rates["encoder.blocks.1.self.qkv.weight"] == rates["encoder.blocks.1.self_norm.bias"] == 0.5
    assert rates["encoder.blocks.0.feed_forward.up.bias"] == 0.25
    assert rates["encoder.inputs.tokens.table.weight"] == rates["encoder.inputs.positions.table"] == 0.125
    assert len(rates) == len(names)


def test_one_rate_for_all_needs_no_more_groups_than_before() -> None:
    names = ["encoder.inputs.tokens.table.weight", "encoder.blocks.7.self.out.bias"]
    assert set(layer_ratios(names, 1.0).values()) == {1.0}


def test_every_group_follows_the_schedule_at_its_height(data: Path, source: Path, tmp_path: Path) -> None:
    seen: list[list[float]] = []
    whole = Update.step

    def step(self: Update) -> Tensor:
        seen.append([group["lr"] / group["ratio"] for group in self.optimizer.param_groups])
        return whole(self)

    run = tuned(data, source, "train.layer_decay=0.5", "train.schedule=constant", "train.learning_rate=5e-5")
    with patch.object(Update, "step", step):
        train(run, tmp_path, quiet=True)
    assert all(rate == pytest.approx(5e-5) for rates in seen for rate in rates)


# Early stopping.


def test_a_run_without_patience_left_stops_and_keeps_its_best(data: Path, source: Path, tmp_path: Path) -> None:
    losses = iter([1.0, 0.5, 0.6, 0.7, 0.1])
    run = tuned(data, source, "train.patience=2", "train.steps=20", "train.evaluate_every=1", "train.trainable=lora",
                "train.average_checkpoints=1")
    with patch.object(loop, "validation_loss", lambda *_, **__: next(losses)):
        train(run, tmp_path, quiet=True)
    kept = {checkpoint.step: merged(checkpoint.weights(), scale=2.0) for checkpoint in Checkpoint.all(tmp_path)}
    own = tensors(tmp_path)
    assert max(kept) == 4
    assert torch.equal(kept[2]["head.output.weight"], own["head.output.weight"])


def test_a_classifier_is_the_mean_of_its_last_checkpoints_whatever_their_loss(
    data: Path, source: Path, tmp_path: Path
) -> None:
    losses = iter([0.5, 0.6, 0.7, 0.8])
    run = tuned(data, source, "train.evaluate_every=1", "train.save_every=1")
    with patch.object(loop, "validation_loss", lambda *_, **__: next(losses)):
        train(run, tmp_path, quiet=True)
    *last, best = Checkpoint.all(tmp_path)
    assert ([checkpoint.step for checkpoint in last], best.step) == ([4, 3, 2], 1)
    expected, own = average(last), tensors(tmp_path)
    assert all(torch.equal(own[name], expected[name]) for name in own)


def test_what_is_not_counted_by_its_errors_is_the_checkpoint_of_the_least_loss(data: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the cat sees the dog\n", encoding="utf-8")
    assert settled("classify", [data], None, None, None, []).train.average_checkpoints == 3
    assert settled("mask", [tmp_path / "text.txt"], None, None, None, []).train.average_checkpoints == 1
    assert settled("language", [tmp_path / "text.txt"], None, None, None, []).train.average_checkpoints == 1


# A language model.


def test_a_language_model_goes_on_with_another_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the cat sees the dog\n" * 60)
    (tmp_path / "b.txt").write_text("a bird sings in a tree\n" * 60)
    small = ["model.width=16", "model.depth=1", "model.heads=2", "tokens.vocabulary=300", "data.max_tokens=16",
             "search.max_tokens=4", *SHORT]
    train(settled("language", [tmp_path / "a.txt"], None, None, None, small), tmp_path / "first", quiet=True)
    start = [*SHORT, f"train.init_from={tmp_path / 'first'}", "search.max_tokens=4"]
    for tune in ("all", "lora"):
        run = settled("language", [tmp_path / "b.txt"], None, None, None, [*start, f"train.trainable={tune}"])
        assert run.model == load(tmp_path / "first" / "run.json").model
        train(run, tmp_path / tune, quiet=True)
        changed = moved(tmp_path / tune, tmp_path / "first")
        assert "blocks.0.self.qkv.weight" in changed
        assert ("tokens.table.weight" in changed) == (tune == "all")
