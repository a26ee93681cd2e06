"""A generator fills blanks, a detector finds what it filled wrongly."""

import re
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from killing import killed_at
from regard.check.consistency import checks
from regard.data.batch import IGNORED, BatchSpec
from regard.data.text.masked_text import MaskedBatch
from regard.mistakes import mistakes
from regard.models.electra import Detector
from regard.nn.init import initialize
from regard.settings.errors import UserError
from regard.settings.load import load
from regard.settings.presets import PRESETS
from regard.settings.schema import Run
from regard.tasks.detect import Detect, drawn
from regard.tasks.traits import defaults
from regard.training.loop import train

DOCUMENTS = ["the cat sat on the mat.\nit was a small cat.\nthe mat was red.\n" * 2, "a dög barks.\n",
             "why does it bark? nobody knows, for it is a dog.\n" * 4]


def tiny(data: Path, *overrides: str) -> Run:
    return load(None, ["model.width=16", "model.depth=1", "model.heads=2", "model.dropout=0", "tokens.vocabulary=300",
                       "train.steps=2", "train.batch_tokens=64", "data.max_tokens=24", "device=cpu", "masking.rate=0.3",
                       "train.precision=float32", f"data.paths={data}", *overrides],
                base=defaults("detect", built_in=False))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for number, text in enumerate(DOCUMENTS):
        (folder / f"{number}.txt").write_text(text, encoding="utf-8")
    (folder / "val.txt").write_text(DOCUMENTS[0] + DOCUMENTS[2], encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def made(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Detect, Detector]:
    task = Detect(tiny(data))
    model = task.build(task.data.prepare(tmp_path_factory.mktemp("run")))
    initialize(model, seed=0)
    return task, model.eval()


def everything(task: Detect, split: str = "train") -> MaskedBatch:
    """All rows, and an empty one besides."""
    lengths = task.data.lengths(split)
    return task.data.collate(split, BatchSpec(np.arange(len(lengths)), len(lengths) + 1, int(lengths.max()) + 2))


def original(batch: MaskedBatch) -> torch.Tensor:
    asked = batch.targets != IGNORED
    return batch.tokens.scatter(1, batch.places, batch.targets.where(asked, batch.tokens.gather(1, batch.places)))


# What the detector reads.


def test_all_that_is_asked_for_is_hidden_from_the_generator(made: tuple[Detect, Detector]) -> None:
    task, _ = made
    batch = everything(task)
    asked = batch.targets != IGNORED
    assert (batch.tokens.gather(1, batch.places)[asked] == task.data.tokens.mask).all()
    assert int((batch.tokens == task.data.tokens.mask).sum()) == int(asked.sum()) == batch.counts["nll"]


def test_a_filling_that_is_what_stood_there_counts_as_the_original(made: tuple[Detect, Detector]) -> None:
    task, model = made
    batch = everything(task)
    asked = batch.targets != IGNORED
    whole = original(batch)

    def half_right(features: torch.Tensor, output: object, random: object) -> torch.Tensor:
        targets = batch.targets.flatten()
        return targets.where(torch.arange(len(targets)) % 2 == 0, (targets + 1) % 300)

    with patch("regard.tasks.detect.drawn", half_right), torch.no_grad():
        filled = task._filled(model, batch)
    wrong = asked & (torch.arange(asked.numel()).view_as(asked) % 2 == 1)
    assert torch.equal(filled.replaced, filled.tokens != whole)
    assert int(filled.replaced.sum()) == int(wrong.sum())
    assert filled.replaced.gather(1, batch.places)[asked].tolist() == wrong[asked].tolist()


def test_only_blanks_are_filled_and_a_label_says_whether_a_token_differs(made: tuple[Detect, Detector]) -> None:
    task, model = made
    batch = everything(task)
    with torch.no_grad():
        filled = task._filled(model, batch)
    whole = original(batch)
    assert torch.equal(filled.replaced, filled.tokens != whole)
    assert filled.replaced.any()
    hidden = batch.tokens == task.data.tokens.mask
    assert (filled.tokens == whole)[~hidden].all()


def test_tokens_are_drawn_by_their_probabilities() -> None:
    output = torch.nn.Linear(1, 4)
    with torch.no_grad():
        output.weight.zero_()
        output.bias.copy_(torch.tensor([0.1, 0.2, 0.3, 0.4]).log())
        counts = drawn(torch.zeros(200_000, 1), output).bincount(minlength=4) / 200_000
    assert counts.tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4], abs=0.005)


# The loss.


def test_the_loss_is_the_generator_s_at_the_blanks_and_the_detector_s_at_every_token(
        made: tuple[Detect, Detector]) -> None:
    task, model = made
    batch = everything(task)
    with torch.no_grad():
        torch.manual_seed(7)
        filled = task._filled(model, batch)
        torch.manual_seed(7)
        loss, nll, detector = task.loss(model, batch)
        generated = found = tokens = 0.0
        for row, places, targets, read, wrong in zip(batch.tokens, batch.places, batch.targets, filled.tokens,
                                                     filled.replaced, strict=True):
            real = row != task.data.tokens.pad
            if not real.any():
                continue
            logits = model.generator.logits(model.generator(row[real][None]))[0]
            asked = targets != IGNORED
            generated += float(F.cross_entropy(logits[places[asked]], targets[asked], reduction="sum"))
            chances = model(read[real][None])[0].sigmoid()
            found -= float(torch.where(wrong[real], chances, 1 - chances).log().sum())
            tokens += int(real.sum())
    assert batch.counts["detector"] == tokens
    assert float(loss.total) == pytest.approx(generated, rel=1e-4)
    assert float(nll.total) == pytest.approx(generated, rel=1e-4)
    assert float(detector.total) == pytest.approx(found, rel=1e-4)
    assert (loss.weight, nll.weight, detector.weight) == (1.0, 0.0, 50.0)


def test_padding_that_the_generator_draws_is_seen_as_any_other_token_is(made: tuple[Detect, Detector]) -> None:
    task, model = made
    batch, bias, total = everything(task), model.generator.words.output.bias, 0.0
    before = bias.detach().clone()
    with torch.no_grad():
        bias[task.data.tokens.pad] = 1e3
        filled, detector = task._filled(model, batch), task.loss(model, batch)[2]
        bias.copy_(before)
        for row, read, wrong in zip(batch.tokens, filled.tokens, filled.replaced, strict=True):
            if (real := row != task.data.tokens.pad).any():
                logits = model(read[real][None])[0]
                total += float(F.binary_cross_entropy_with_logits(logits, wrong[real].float(), reduction="sum"))
    assert (filled.tokens[batch.tokens == task.data.tokens.mask] == task.data.tokens.pad).all()
    assert float(detector.total) == pytest.approx(total, rel=1e-5)


def test_the_detector_teaches_the_generator_nothing_but_the_tokens_that_they_share(
        made: tuple[Detect, Detector]) -> None:
    task, model = made
    detector = task.loss(model, everything(task))[2]
    names = dict(model.named_parameters())
    gradients = torch.autograd.grad(detector.total, list(names.values()), allow_unused=True)
    taught = {name for name, gradient in zip(names, gradients, strict=True) if gradient is not None}
    assert not any(name.startswith("generator.") for name in taught)
    assert taught == {name for name in names if not name.startswith("generator.")}


@pytest.mark.parametrize("rough", [False, True])
def test_every_parameter_learns_from_the_loss(made: tuple[Detect, Detector], rough: bool) -> None:
    task, model = made
    with torch.autocast("cpu", torch.bfloat16, enabled=rough):
        terms = task.loss(model, everything(task))
    sum(term.weight * term.total for term in terms).backward()
    assert [name for name, each in model.named_parameters() if each.grad is None or not each.grad.any()] == []
    model.zero_grad()


# Scores.


def test_scores_are_the_same_each_time_and_leave_the_dice_alone(made: tuple[Detect, Detector]) -> None:
    task, model = made
    torch.manual_seed(3)
    first = task.score(model, "val")
    after = torch.rand(1)
    torch.manual_seed(3)
    assert torch.rand(1) == after
    assert first == task.score(model, "val")
    assert first["blanks"] == everything(task, "val").counts["nll"]
    assert first["tokens"] == everything(task, "val").counts["detector"]
    assert all(0 <= first[name] <= 1 for name in ("generator_accuracy", "detector_accuracy", "precision", "recall"))
    assert 0 < first["replaced"] <= 0.3


# What does not belong.


def test_a_text_comes_back_with_marks_around_what_does_not_belong(made: tuple[Detect, Detector]) -> None:
    task, model = made
    texts = ["the cat sat", "a dög barks.\nwhy?  nobody", "x", ""]
    for text, answer in zip(texts, task.predict(model, texts), strict=True):
        assert re.sub(r"\[\[(.+?)\]\]", r"\1", answer.text) == text
        assert all(0 <= choice.probability <= 1 for choice in answer.choices)
        [ids] = task.data.tokens.encode([text])
        assert [choice.token for choice in answer.choices] == task.data.tokens.pieces(ids)
        [alone] = task.predict(model, [text])
        assert alone.text == answer.text
    with patch.object(Detector, "forward", lambda self, tokens, **_: torch.full(tokens.shape, 3.0)):
        assert task.predict(model, ["the cat sat.\nit"])[0].text == "[[the]] [[cat]] [[sat]][[.]]\n[[it]]"


def test_that_a_text_was_cut_is_said(made: tuple[Detect, Detector]) -> None:
    task, model = made
    for read in (task.predict, task.embed):
        task.notes.clear()
        read(model, ["x" * 100, "a cat"])
        assert task.notes == ["1 of 2 texts cut to data.max_tokens=24 tokens"]
    task.notes.clear()


def test_an_example_has_one_word_that_does_not_belong(made: tuple[Detect, Detector]) -> None:
    task, model = made
    examples = task.data.examples("val")
    assert examples
    answers = task.greedy_answers(model, examples)
    for example, answer in zip(examples, answers, strict=True):
        [batch] = task.batches([example.input], [example.wanted])
        assert example.wanted.count("[[") == 1
        assert example.wanted.replace("[[", "").replace("]]", "") == example.input
        assert batch.counts["nll"] == batch.tokens.shape[1]
        assert 1 <= int(batch.replaced.sum()) < batch.counts["nll"] - 2
        [own] = task.batches([example.input], [answer])
        assert task.matches_greedy(model, own).shape == own.tokens.shape
        loss, nll = task.loss(model, own)
        assert float(loss.total.detach()) == float(nll.total)
    with pytest.raises(UserError, match="around some of its words"):
        list(task.batches(["the cat"], ["a [[cat]]"]))
    assert mistakes(task, model, "val", limit=3).examples == 3


def test_a_mistake_shows_all_that_each_token_looked_at_where_the_first_has_an_attention_of_its_own(
        data: Path, tmp_path: Path) -> None:
    task = Detect(tiny(data, "model.window=2", "model.global_projections=true"))
    model = task.build(task.data.prepare(tmp_path))
    initialize(model, seed=0)
    [worst, *_] = mistakes(task, model.eval(), "val").worst
    assert worst.attention is not None
    assert len(worst.attention.axes.targets) > 5
    assert np.allclose(worst.attention.weights.sum(1), 1, atol=1e-5)


def test_a_look_and_the_choices_are_of_the_detector(made: tuple[Detect, Detector]) -> None:
    task, model = made
    [record], [output] = task.look(model, ["the cat sat"], only=task.acting), task.choices(model, ["the cat sat"])
    assert all(site.startswith("encoder.") for site in record)
    labels = next(iter(record.axes.values()))
    assert labels.targets == tuple(choice.token for choice in output.choices)
    assert all(sum(chance for _, chance in choice.best) == pytest.approx(1) for choice in output.choices)
    assert all(check.holds for check in checks(task.probe(model)))
    assert task.embed(model, ["the cat", "a"]).shape == (2, 16)


# Runs.


def test_a_run_that_was_killed_draws_what_it_would_have_drawn(data: Path, tmp_path: Path) -> None:
    run = tiny(data, "train.steps=5", "train.save_every=2", "train.evaluate_every=2", "model.dropout=0.2",
               "train.accumulate=2")
    with killed_at(3):
        train(run, tmp_path / "killed", quiet=True)
    for folder in ("killed", "whole"):
        train(run, tmp_path / folder, quiet=True)
    for name in ("model.safetensors", "scores.json", "checkpoints/step-00000005/optimizer.safetensors"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_second_sentence_is_refused(data: Path) -> None:
    with pytest.raises(UserError, match="next_sentence: has no effect on detect"):
        Detect(tiny(data, "masking.next_sentence=true"))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_built_in_run_finds_what_does_not_belong(tmp_path: Path) -> None:
    run = load(None, ["device=cpu", "train.steps=400"], base=defaults("detect", built_in=True))
    scores = train(run, tmp_path, quiet=True)["test"]
    assert scores["precision"] > 3 * scores["replaced"]
    assert scores["detector_accuracy"] > 1 - scores["replaced"]


@pytest.mark.parametrize("preset", ["elman", "bilstm", "elmo"])
def test_a_generator_without_heads_is_as_much_narrower_as_is_asked(preset: str) -> None:
    model = Detector(replace(PRESETS[preset](), width=28), vocabulary=32, generator=0.25)
    initialize(model, seed=0)
    assert model.generator is not None
    assert model.generator.encoder.width == 8  # 7, and even: half of it may be for each of two ways
    tokens = torch.arange(6)[None]
    assert model.generator.logits(model.fill(tokens)).shape == (1, 6, 32)
