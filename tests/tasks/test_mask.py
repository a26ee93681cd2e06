"""From raw text to rows with blanks to a loss to filled texts."""

import io
import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer as Library
from tokenizers import models, normalizers, pre_tokenizers

from killing import killed_at
from regard.data.batch import IGNORED, BatchSampler, BatchSpec
from regard.data.text.masked_text import ELSEWHERE, FOLLOWS
from regard.mistakes import mistakes
from regard.models.masked_lm import MaskedLM
from regard.nn.init import initialize
from regard.predictor import Predictor
from regard.settings.errors import UserError
from regard.settings.load import load, to_json
from regard.settings.schema import Run
from regard.tasks.language import Language
from regard.tasks.mask import Fill
from regard.tasks.traits import defaults
from regard.training.estimate import estimate
from regard.training.loop import train
from regard.training.update import Update
from regard.verbs.predict import main

DOCUMENTS = ["the cat sat on the mat.\nit was a small cat.\nthe mat was red.\n" * 2, "a dög barks.\n",
             "x = [1, 2]\nfor y in x:\n    print(y)\n" * 3, "why does it bark? nobody knows, for it is a dog.\n" * 3]


def tiny(data: Path, *overrides: str) -> Run:
    return load(None, ["model.width=16", "model.depth=1", "model.heads=2", "model.dropout=0", "tokens.vocabulary=300",
                       "train.steps=2", "train.batch_tokens=64", "data.max_tokens=24", "device=cpu",
                       "train.precision=float32", f"data.paths={data}", *overrides],
                base=defaults("mask", built_in=False))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for number, text in enumerate(DOCUMENTS):
        (folder / f"{number}.txt").write_text(text, encoding="utf-8")
    (folder / "val.txt").write_text(DOCUMENTS[0] + DOCUMENTS[3], encoding="utf-8")
    return folder


def prepared(run: Run, folder: Path) -> tuple[Fill, MaskedLM]:
    task = Fill(run)
    model = task.build(task.data.prepare(folder))
    initialize(model, seed=0)
    return task, model.eval()


@pytest.fixture(scope="module")
def made(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Fill, MaskedLM]:
    return prepared(tiny(data), tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def paired(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Fill, MaskedLM]:
    return prepared(tiny(data, "masking.next_sentence=true"), tmp_path_factory.mktemp("pairs"))


def everything(task: Fill, split: str = "train", *, epoch: int = 0, length: int | None = None) -> BatchSpec:
    lengths = task.data.lengths(split)
    return BatchSpec(np.arange(len(lengths)), len(lengths), length or int(lengths.max()), epoch)


def originals(task: Fill, split: str, **more: int) -> list[list[int]]:
    """The rows of a batch with their blanks undone."""
    batch = task.data.collate(split, everything(task, split, **more))
    rows = []
    for row, places, targets in zip(batch.tokens.tolist(), batch.places.tolist(), batch.targets.tolist(), strict=True):
        for place, target in zip(places, targets, strict=True):
            row[place] = row[place] if target == IGNORED else target
        rows.append([id for id in row if id != task.data.tokens.pad])
    return rows


# Rows.


def test_rows_hold_all_of_the_text_between_their_start_and_their_end(made: tuple[Fill, MaskedLM]) -> None:
    task, _ = made
    tokens, rows = task.data.tokens, originals(task, "train")
    assert all(row[0] == tokens.start and row[-1] == tokens.end and len(row) <= 24 for row in rows)
    inner = [id for row in rows for id in row if id not in (tokens.start, tokens.end)]
    [flat] = task.data.ids["train"].parts
    text = [id for id in flat.tolist() if id not in (tokens.start, tokens.end)]
    assert inner == text[: len(inner)]
    assert len(text) - len(inner) < 4  # a rest that is no text is no row


def test_rows_apart_are_of_one_document_each(data: Path, tmp_path: Path) -> None:
    task, _ = prepared(tiny(data, "data.documents=apart"), tmp_path)
    texts = task.data.tokens.decode(originals(task, "train"))
    whole = [(data / f"{number}.txt").read_text(encoding="utf-8") for number in range(4)]
    assert all(any(text.strip() in document for document in whole) for text in texts)
    documents = task.data.tokens.decode([[id for row in originals(task, "train") for id in row]])
    assert "".join("".join(documents).split()) == "".join("".join(whole).split())
    assert (task.data.lengths("train") <= 24).all()
    assert [len(row) for row in originals(task, "train")] == task.data.lengths("train").tolist()


# Blanks.


def test_a_batch_is_a_function_of_the_seed_and_the_step_alone(data: Path, tmp_path: Path,
                                                              made: tuple[Fill, MaskedLM]) -> None:
    task, again = made[0], prepared(tiny(data), tmp_path)[0]
    plan = BatchSampler(task.data.lengths("train"), tokens=64, seed=0)
    for step in (7, 0, 7):
        one, other = (each.data.collate("train", plan[step]).tensors() for each in (task, again))
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_padding_and_company_do_not_change_what_is_hidden_of_a_row(made: tuple[Fill, MaskedLM]) -> None:
    task, _ = made
    together = task.data.collate("train", everything(task))
    alone = task.data.collate("train", BatchSpec(np.array([3]), 2, 40))
    asked, own = (each.targets[row] != IGNORED for each, row in ((together, 3), (alone, 0)))
    assert alone.places[0][own].tolist() == together.places[3][asked].tolist()
    assert alone.tokens[0, : together.tokens.shape[1]].tolist() == together.tokens[3].tolist()
    assert (alone.targets[1] == IGNORED).all()


def test_dynamic_blanks_differ_by_epoch_static_ones_come_in_turns_and_those_of_a_test_stay(
        data: Path, made: tuple[Fill, MaskedLM], tmp_path: Path) -> None:
    dynamic = made[0]
    one, three = (prepared(tiny(data, "masking.dynamic=false", f"masking.copies={copies}"), tmp_path / str(copies))[0]
                  for copies in (1, 3))
    for task, split, epoch, same in (
            (dynamic, "train", 1, False), (dynamic, "train", 3, False), (dynamic, "val", 1, True),
            (one, "train", 1, True), (three, "train", 1, False), (three, "train", 3, True)):
        first, later = (task.data.collate(split, everything(task, split, epoch=each)) for each in (0, epoch))
        assert torch.equal(first.places, later.places) == same
        assert originals(task, split) == originals(task, split, epoch=epoch)


def test_the_loss_is_the_mean_over_the_blanks_alone(made: tuple[Fill, MaskedLM]) -> None:
    task, model = made
    batch = task.data.collate("train", everything(task))
    loss, nll = (replace(term, total=term.total.detach()) for term in task.loss(model, batch))
    total, count = 0.0, 0
    for row, places, targets in zip(batch.tokens, batch.places.tolist(), batch.targets.tolist(), strict=True):
        alone = row[row != task.data.tokens.pad][None]
        chances = model.logits(model(alone))[0].log_softmax(-1).detach()
        for place, target in zip(places, targets, strict=True):
            if target != IGNORED:
                total, count = total - float(chances[place, target]), count + 1
    assert batch.counts == {"loss": count, "nll": count}
    assert float(loss.total) == pytest.approx(total, rel=1e-5)
    assert (nll.weight, float(nll.total)) == (0.0, pytest.approx(total, rel=1e-5))


def test_every_parameter_learns_from_the_loss(paired: tuple[Fill, MaskedLM]) -> None:
    task, model = paired
    sum(term.weight * term.total for term in task.loss(model, task.data.collate("train", everything(task)))).backward()
    assert [name for name, each in model.named_parameters() if each.grad is None or not each.grad.any()] == []
    model.zero_grad()


def test_a_step_with_a_window_waits_for_no_number(data: Path, tmp_path: Path) -> None:
    run = tiny(data, "model.window=2")
    task = Fill(run)
    sizes = task.data.prepare(tmp_path)
    batch = task.data.collate("train", everything(task))
    # It is traced without any; a step that is recorded on a GPU could not wait, either.
    foretold = estimate(task, sizes, batch, run.train, device="cuda", precision=torch.bfloat16)
    assert foretold.traced.operations > 0


# Next sentences.


def test_a_second_half_follows_the_first_exactly_where_it_is_said_to(paired: tuple[Fill, MaskedLM]) -> None:
    task, _ = paired
    start, end = task.data.tokens.start, task.data.tokens.end
    text = task.data.ids["train"].parts[0].tolist()
    said = []
    for epoch in range(12):
        orders = task.data.collate("train", everything(task, epoch=epoch)).order.tolist()
        for row, order in zip(originals(task, "train", epoch=epoch), orders, strict=True):
            first, second = row[1 : row.index(end)], row[row.index(end) + 1 : -1]
            together = [*first, *second]
            follows = any(text[at : at + len(together)] == together for at in range(len(text)))
            assert row[0] == start
            assert second
            assert follows or order == ELSEWHERE  # what is from elsewhere may be the same by chance
            said.append(order)
    assert set(said) == {FOLLOWS, ELSEWHERE}
    assert np.mean(said) == pytest.approx(0.5, abs=0.12)


def test_halves_are_cut_where_a_sentence_ends(paired: tuple[Fill, MaskedLM]) -> None:
    task, _ = paired
    ids = task.data.tokens.encode(["it was red.\nwhy? a dog"])[0]
    found = {task.data.tokens.decode([task.data._halves(ids, np.random.default_rng(seed))[0]])[0] for seed in range(30)}
    assert found == {"it was red.", "it was red.\n", "it was red.\nwhy?"}


def test_segments_and_the_order_s_loss_are_those_of_the_definition(paired: tuple[Fill, MaskedLM]) -> None:
    task, model = paired
    batch = task.data.collate("train", everything(task))
    order = next(term for term in task.loss(model, batch) if term.name == "order")
    total = 0.0
    for row, wanted in zip(batch.tokens, batch.order.tolist(), strict=True):
        alone = row[row != task.data.tokens.pad].tolist()
        first = alone.index(task.data.tokens.end) + 1
        segments = torch.tensor([[0] * first + [1] * (len(alone) - first)])
        state = model(torch.tensor([alone]), segments=segments)[:, 0]
        total -= float(model.head(state).log_softmax(-1)[0, wanted].detach())
    assert batch.counts["order"] == len(batch.order)
    assert float(order.total.detach()) == pytest.approx(total, rel=1e-5)


def test_a_batch_in_which_no_row_has_a_second_half_is_learned_from(data: Path, tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"text": "yes"}\n' * 8, encoding="utf-8")
    (tmp_path / "val.jsonl").write_text('{"text": "yes, it is so."}\n', encoding="utf-8")
    run = tiny(tmp_path, "masking.next_sentence=true")
    task, model = prepared(run, tmp_path / "run")
    batch = task.data.collate("train", everything(task))
    assert batch.counts["order"] == 0
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    before = model.words.output.bias.detach().clone()
    report = Update(model, task, optimizer, run.train, precision=torch.float32)(batch, 0)
    assert report.norm.isfinite()
    assert not torch.equal(model.words.output.bias, before)


# Scores.


def test_a_score_is_of_all_blanks_and_always_the_same(paired: tuple[Fill, MaskedLM]) -> None:
    task, model = paired
    scores = task.score(model, "val")
    assert scores == task.score(model, "val")
    batch = task.data.collate("val", everything(task, "val"))
    terms = {term.name: float(term.total.detach()) for term in task.loss(model, batch)}
    assert scores["loss"] == pytest.approx(terms["nll"] / batch.counts["nll"], rel=1e-5)
    assert scores["perplexity"] == pytest.approx(math.exp(scores["loss"]))
    assert scores["blanks"] == batch.counts["nll"]
    targets = batch.targets[batch.targets != IGNORED]
    assert scores["most_frequent"] == pytest.approx(targets.bincount().max() / len(targets))
    assert 0 <= scores["next_sentence"] <= 1
    with pytest.raises(UserError, match="tset: no such split"):
        task.score(model, "tset")


# Filling.


def test_both_names_of_a_blank_are_understood_and_each_is_filled(made: tuple[Fill, MaskedLM]) -> None:
    task, model = made
    one, other = task.predict(model, ["the [MASK] sat on the [MASK].", "the <mask> sat on the <mask>."])
    assert one == other
    assert len(one.choices) == 2
    for choice in one.choices:
        assert len(choice.best) == 5 == task.run.search.best
        assert choice.best[0] == (choice.token, choice.probability)
        assert [chance for _, chance in choice.best] == sorted((chance for _, chance in choice.best), reverse=True)
    assert one.text.startswith("the")
    assert "MASK" not in one.text
    assert one.score == pytest.approx(np.mean([math.log(choice.probability) for choice in one.choices]))


def test_an_answer_depends_neither_on_the_batch_nor_on_the_order(made: tuple[Fill, MaskedLM]) -> None:
    task, model = made
    texts = ["the [MASK] sat", "[MASK]", "why does it [MASK]? nobody [MASK], for", "a [MASK] barks.\nit [MASK]"]
    alone = [task.predict(model, [text])[0] for text in texts]
    for answer, expected in zip(task.predict(model, texts), alone, strict=True):
        assert answer.text == expected.text
        assert [c.probability for c in answer.choices] == pytest.approx([c.probability for c in expected.choices])


def test_the_separator_parts_two_texts_with_segments_of_their_own(made: tuple[Fill, MaskedLM]) -> None:
    task, _ = made
    asked = task._read("the [MASK] sat! [SEP] it [MASK] on")
    tokens = task.data.tokens
    ends = [place for place, id in enumerate(asked.ids) if id == tokens.end]
    assert len(ends) == 2
    assert asked.ids[0] == tokens.start
    assert [asked.ids[place] for place in asked.blanks] == [tokens.mask] * 2
    assert tokens.decode([asked.ids[: ends[0]], asked.ids[ends[0] :]]) == ["the sat!", "it on"]
    segments = task.data.segments(torch.tensor([asked.ids]))[0].tolist()
    assert segments == [0] * (ends[0] + 1) + [1] * (len(asked.ids) - ends[0] - 1)


def test_a_filled_text_is_the_text_around_its_fillings(made: tuple[Fill, MaskedLM]) -> None:
    task, _ = made
    words = task.data.masking_policy.words
    cat, s = words.id_of(" cat"), words.id_of("s")
    assert cat is not None
    assert s is not None
    assert task._filled("the [MASK] sat, a <mask>.", [cat, cat]) == "the cat sat, a cat."
    assert task._filled("[MASK] sat; the cat[MASK] sat", [cat, s]) == "cat sat; the cats sat"
    for text, output in (("the [MASK] sat, a <mask>.", "the cat sat, a cat."), ("[MASK] sat", "cat sat")):
        assert set(task._fillings(text, output)) == {cat}
    with pytest.raises(UserError, match="is not the text with its blanks filled"):
        task._fillings("the [MASK] sat", "a cat sat")


def published(folder: Path) -> tuple[list[str], str]:
    """Word pieces as BERT has them: their names, and the setting that takes them."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "mat", "a", "##s", "small", "."]
    library = Library(models.WordPiece({name: id for id, name in enumerate(names)}, unk_token="[UNK]"))
    library.normalizer, library.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    library.add_special_tokens(names[:5])
    library.save(str(folder / "tokenizer.json"))
    return names, f"tokens.file={folder / 'tokenizer.json'}"


def test_a_test_of_which_no_token_is_known_is_refused(tmp_path: Path) -> None:
    _, setting = published(tmp_path)
    (tmp_path / "train.txt").write_text("the cat sat on the mat. " * 9, encoding="utf-8")
    (tmp_path / "val.txt").write_text("zzz", encoding="utf-8")
    run = tiny(tmp_path / "train.txt", f"data.paths={tmp_path / 'train.txt'},{tmp_path / 'val.txt'}", setting)
    task, model = prepared(run, tmp_path / "run")
    with pytest.raises(UserError, match="val: none of its tokens can be masked"):
        task.score(model, "val")
    with pytest.raises(UserError, match="val: contains no targets"):
        train(run, tmp_path / "run", quiet=True)


def test_published_word_pieces_are_filled_as_words_are_written(data: Path, tmp_path: Path) -> None:
    names, setting = published(tmp_path)
    task, model = prepared(tiny(data, setting), tmp_path / "run")
    asked = task._read("The [MASK] sat. [SEP] A small <mask>.")
    pieces = task.data.tokens.pieces(asked.ids)
    assert pieces == ["[CLS]", " the", "[MASK]", " sat", ".", "[SEP]", " a", " small", "[MASK]",
                                             ".", "[SEP]"]
    cat, s, dot = (names.index(name) for name in ("cat", "##s", "."))
    assert task._filled("The [MASK] sat on cat[MASK] [MASK]", [cat, s, dot]) == "The cat sat on cats."
    assert task._fillings("The [MASK] sat on cat[MASK] [MASK]", "The cat sat on cats.") == [cat, s, dot]
    [answer] = task.predict(model, ["The [MASK] sat."])
    assert {*range(5), *range(len(names), 64)} <= set(task._never(64))
    assert answer.choices[0].token not in names[:5]
    assert task.loss(model, task.data.collate("train", everything(task)))[0].total.isfinite()


def test_what_cannot_be_filled_is_said(made: tuple[Fill, MaskedLM]) -> None:
    task, model = made
    with pytest.raises(UserError, match=r"no blank in .*: write \[MASK\]"):
        task.predict(model, ["the cat sat"])
    with pytest.raises(UserError, match="a blank is not within"):
        task.predict(model, ["the cat " * 40 + "[MASK]"])
    with pytest.raises(UserError, match="a blank is not within"):
        task.choices(model, ["the cat " * 40 + "[MASK]"])
    with pytest.raises(UserError, match="a blank is not within"):
        task.look(model, ["the cat " * 40 + "[MASK]"], ["the cat " * 40 + "sat"])
    task.notes.clear()
    [answer] = task.predict(model, ["the [MASK] " + "cat " * 40])
    assert "cut to 24" in task.notes.pop()
    assert len(answer.choices) == 1


def test_the_verb_prints_the_best_five_of_each_blank(made: tuple[Fill, MaskedLM], monkeypatch: pytest.MonkeyPatch,
                                                     capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    task, model = made
    predictor = Predictor(task.run, task, model, tmp_path)
    text = "the [MASK] sat on the [MASK]."
    [answer] = predictor.answers([text])
    (tmp_path / "run.json").write_text(json.dumps(to_json(task.run)))
    with patch("regard.predictor.load", lambda *_, **__: predictor):
        main([text], tmp_path, [], [], False, "cpu", "float32", None, False)
        printed, first, second = capsys.readouterr().out.removesuffix("\n").split("\t")
        main([text], tmp_path, [], [], False, "cpu", "float32", None, True)
        told = json.loads(capsys.readouterr().out)
        screen = io.StringIO()
        monkeypatch.setattr(screen, "isatty", lambda: True)
        monkeypatch.setattr(sys, "stdout", screen)
        main([text], tmp_path, ["search.best=2"], [], False, "cpu", "float32", None, False)
    assert printed == answer.text.replace("\n", " ")
    assert [line.count("P(") for line in (first, second)] == [5, 5]
    assert [len(choice["best"]) for choice in told["choices"]] == [5, 5]
    assert [line.startswith("  ") for line in screen.getvalue().splitlines()] == [False, True, True]


# Examples, and given outputs.


def test_an_example_wants_the_text_that_stood_there(made: tuple[Fill, MaskedLM]) -> None:
    task, model = made
    examples = task.data.examples("val")
    assert len(examples) == len(task.data.spans("val"))
    answers = task.greedy_answers(model, examples)
    for example, answer in zip(examples, answers, strict=True):
        [fill] = task._fillings(example.input, example.wanted)
        assert task._filled(example.input, [fill]) == example.wanted
        [batch] = task.batches([example.input], [example.wanted])
        assert (batch.counts, batch.targets.tolist()) == ({"loss": 1, "nll": 1}, [[fill]])
        [own] = task.batches([example.input], [answer])
        assert task.matches_greedy(model, own).tolist() == [[True]]
        assert bool(task.matches_greedy(model, batch)) == (answer == example.wanted)
    assert task.data.examples("val", 2) == examples[:2]
    with pytest.raises(UserError, match="train: no such split"):
        task.data.examples("train")


def test_a_mistake_shows_where_its_blank_looked(made: tuple[Fill, MaskedLM]) -> None:
    task, model = made
    found = mistakes(task, model, "val", limit=4)
    assert found.wrong
    for each in found.worst:
        assert each.attention is not None
        assert each.attention.weights.shape == (1, len(each.attention.axes.sources))
        assert "<mask>" in each.attention.axes.sources


def test_a_look_names_a_blank_s_row_by_its_filling(made: tuple[Fill, MaskedLM]) -> None:
    task, model = made
    text = "the [MASK] sat [SEP] on it"
    [record], [output] = task.look(model, [text]), task.choices(model, [text])
    labels = next(iter(record.axes.values()))
    assert labels.targets == tuple(choice.token for choice in output.choices)
    assert [source for source, target in zip(labels.sources, labels.targets, strict=True) if source != target] == [
        "<mask>"]
    assert output.text == task.predict(model, [text])[0].text
    [told] = task.choices(model, [text], ["the cat sat [SEP] on it"])
    assert " cat" in [choice.token for choice in told.choices]
    [plain] = task.look(model, ["no blank at all"])
    assert len(set(map(str, plain.axes.values()))) == 1


def test_a_first_token_s_own_attention_has_one_row(data: Path, tmp_path: Path) -> None:
    task, model = prepared(tiny(data, "model.window=2", "model.global_projections=true"), tmp_path)
    [record] = task.look(model, ["the [MASK] sat on the mat."])
    near, whole = "encoder.blocks.0.self", "encoder.blocks.0.self.global_attend"
    assert {site: (len(record.axes[site].targets), len(record.axes[site].sources)) for site in record} == {
        near: record[near].shape[1:], whole: (1, record[near].shape[2])}
    assert record.axes[whole].targets == record.axes[near].targets[:1]


def test_a_text_has_a_vector(made: tuple[Fill, MaskedLM]) -> None:
    task, model = made
    vectors = task.embed(model, ["the cat", "a dog barks", "the cat"])
    assert vectors.shape == (3, 16)
    assert np.allclose(vectors[0], vectors[2], atol=1e-6)
    assert task.embed(model, []).shape == (0, 16)


# Runs.


@pytest.mark.parametrize("settings", [(), ("masking.next_sentence=true", "masking.whole_words=true")])
def test_a_run_that_was_killed_ends_as_if_it_had_not_been(
        data: Path, tmp_path: Path, settings: tuple[str, ...]) -> None:
    run = tiny(data, "train.steps=5", "train.save_every=2", "train.evaluate_every=2", "model.dropout=0.2",
               "train.accumulate=2", *settings)
    with killed_at(3):
        train(run, tmp_path / "killed", quiet=True)
    for folder in ("killed", "whole"):
        train(run, tmp_path / folder, quiet=True)
    for name in ("model.safetensors", "scores.json", "checkpoints/step-00000005/optimizer.safetensors"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_settings_that_cannot_be_are_refused(data: Path, tmp_path: Path) -> None:
    for settings, message in ((["masking.mask_share=0.9", "masking.random_share=0.2"], "must be at most 1"),
                              (["masking.next_sentence=true", "model.embedding.segments=1"],
                               "model.embedding.segments=2"),
                              (["data.max_tokens=4"], "at least 8 tokens")):
        with pytest.raises(UserError, match=message):
            Fill(tiny(data, *settings))
    plain = tiny(data)
    language = load(None, ["tokens.vocabulary=300", f"data.paths={data}"], base=defaults("language", built_in=False))
    Language(language).data.prepare(tmp_path / "language")
    tokens = replace(plain.tokens, file=str(tmp_path / "language" / "tokenizer.json"))
    with pytest.raises(UserError, match="has no mask token"):
        Fill(replace(plain, tokens=tokens)).data.prepare(tmp_path / "mask")


def test_the_built_in_text_has_passages_and_nothing_is_tested_that_was_trained(tmp_path: Path) -> None:
    task = Fill(load(None, ["data.built_in_size=60", "tokens.vocabulary=400"], base=defaults("mask", built_in=True)))
    task.data.prepare(tmp_path)
    assert list(task.data.splits()) == ["train", "val", "test"]
    lines = {split: {line for text in task.data.tokens.decode(originals(task, split)) for line in text.splitlines()}
             for split in task.data.splits()}
    assert not lines["train"] & (lines["val"] | lines["test"])
    assert len(lines["train"]) > 50


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_built_in_run_fills_blanks_far_better_than_the_most_frequent_token(tmp_path: Path) -> None:
    run = load(None, ["device=cpu", "train.steps=250"], base=defaults("mask", built_in=True))
    scores = train(run, tmp_path, quiet=True)
    assert scores["test"]["accuracy"] > 2 * scores["test"]["most_frequent"]
