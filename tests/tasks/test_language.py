"""From text to rows to a loss to more text, whatever the row, the document and the batch."""

import gc
import gzip
import json
import math
import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.data.batch import IGNORED, BatchSampler, BatchSpec
from regard.data.shards import Counts, Shards
from regard.data.text import token_stream as module
from regard.models.decoder import Decoder
from regard.nn.init import initialize
from regard.predictor import load as load_predictor
from regard.settings.errors import Failure, NotFinite, UserError
from regard.settings.load import load
from regard.settings.schema import Run, Search
from regard.tasks.language import Language
from regard.tasks.traits import defaults
from regard.training.loop import train

DOCUMENTS = ["the cat sat on the mat\n" * 4, "a dog, a dög\n", "x = [1, 2]\nfor y in x:\n    print(y)\n" * 3, "end"]


def tiny(data: Path, *overrides: str) -> Run:
    return load(None, ["model.width=16", "model.depth=2", "model.heads=2", "model.kv_heads=1", "model.dropout=0",
                       "tokens.vocabulary=300", "train.steps=2", "train.batch_tokens=64", "search.max_tokens=8",
                       "data.max_tokens=16", "device=cpu", f"data.paths={data}", *overrides],
                base=defaults("language", built_in=False))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for number, text in enumerate(DOCUMENTS):
        (folder / f"{number}.txt").write_text(text, encoding="utf-8")
    (folder / "val.txt").write_text(DOCUMENTS[0] + DOCUMENTS[1], encoding="utf-8")
    return folder


def prepared(run: Run, folder: Path) -> tuple[Language, Decoder]:
    task = Language(run)
    model = task.build(task.data.prepare(folder))
    initialize(model, seed=0)
    return task, model.eval()


@pytest.fixture(scope="module")
def made(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Language, Decoder]:
    return prepared(tiny(data), tmp_path_factory.mktemp("run"))


def how(task: Language, **search: object) -> Search:
    return replace(task.run.search, **search)  # type: ignore[arg-type]


class Plain:
    """Tokens that are numbers."""

    def __init__(self, start: int, end: int) -> None:
        self.pad, self.start, self.end = 0, start, end


def ring(ids: list[int], longest: int, *, start: int = 1, end: int = 2) -> Language:
    """A task whose training text is these ids."""
    task = Language(load(None, [f"data.max_tokens={longest}"], base=defaults("language", built_in=False)))
    task.data.tokens = Plain(start, end)  # type: ignore[assignment]
    task.data.ids = {"train": Shards([np.array(ids, dtype=np.uint16)])}
    return task


# Rows.

IDS = st.lists(st.integers(3, 9), min_size=2, max_size=60)


@given(IDS, st.integers(2, 20), st.integers(0, 3), st.integers(1, 4))
def test_every_token_is_written_once_in_every_epoch_after_the_one_before_it(
        text: list[int], longest: int, epoch: int, rows: int) -> None:
    numbered = list(range(3, 3 + len(text)))
    task = ring(numbered, longest)
    plan = BatchSampler(task.data.lengths("train"), tokens=rows * longest, seed=0)
    met: list[int] = []
    for step in range(epoch * plan.steps_per_epoch, (epoch + 1) * plan.steps_per_epoch):
        batch = task.data.collate("train", plan[step])
        real = batch.write != IGNORED
        assert batch.counts == {"loss": int(real.sum()), "nll": int(real.sum())}
        follows = {id: numbered[(place + 1) % len(numbered)] for place, id in enumerate(numbered)}
        for read, write in zip(batch.read[real].tolist(), batch.write[real].tolist(), strict=True):
            assert follows[read] == write
            met.append(write)
    assert sorted(met) == numbered


def test_rows_are_cut_elsewhere_in_every_epoch() -> None:
    task = ring(list(range(3, 200)), 20)
    plan = BatchSampler(task.data.lengths("train"), tokens=1000, seed=0)
    firsts = [task.data.collate("train", plan[epoch * plan.steps_per_epoch]).read[:, 0].sort().values.tolist()
              for epoch in range(6)]
    assert len({tuple(first) for first in firsts}) == 6
    assert 3 in firsts[0]  # the first token of the text


def test_a_batch_depends_on_the_seed_and_the_step_alone() -> None:
    batches = []
    for _ in range(2):
        task = ring(list(range(3, 100)), 7)
        plan = BatchSampler(task.data.lengths("train"), tokens=28, seed=3)
        batches.append([task.data.collate("train", plan[step]).read.tolist() for step in (40, 3, 0, 11)])
    assert batches[0] == batches[1]


@pytest.mark.parametrize("size", [2, 3])
def test_the_shares_of_several_processes_are_the_batch(size: int) -> None:
    task = ring(list(range(3, 100)), 7)
    chosen = BatchSampler(task.data.lengths("train"), tokens=35, seed=3)[17]
    whole = task.data.collate("train", chosen)
    parts = [task.data.collate("train", chosen.share(rank, size)) for rank in range(size)]
    assert sum(part.counts["nll"] for part in parts) == whole.counts["nll"]
    read = sorted(row for part in parts for row, write in zip(part.read.tolist(), part.write.tolist(), strict=True)
                  if set(write) != {IGNORED})
    assert read == sorted(row for row, write in zip(whole.read.tolist(), whole.write.tolist(), strict=True)
                          if set(write) != {IGNORED})


def test_the_start_of_a_document_is_no_text_to_be_learned() -> None:
    task = ring([1, 5, 6, 2, 1, 7, 2], 7)
    batch = task.data.collate("train", BatchSpec(np.array([0]), 1, 7))
    assert batch.write.tolist() == [[5, 6, 2, IGNORED, 7, 2, IGNORED]]


def test_where_one_token_is_start_and_end_it_is_learned_as_the_end() -> None:
    task = ring([1, 5, 6, 1, 7], 5, start=1, end=1)
    assert task.data.collate("train", BatchSpec(np.array([0]), 1, 5)).write.tolist() == [[5, 6, 1, 7, 1]]


def test_of_no_rows_nothing_is_counted(made: tuple[Language, Decoder]) -> None:
    batch = made[0].data.collate("train", BatchSpec(np.zeros(0, dtype=np.int64), 2, 8))
    assert batch.counts == {"loss": 0, "nll": 0}
    assert (batch.write == IGNORED).all()


def test_rows_fit_learned_positions(data: Path) -> None:
    with pytest.raises(UserError, match=r"model\.max_positions=8: .* data\.max_tokens=16"):
        Language(tiny(data, "model.positions=learned", "model.max_positions=8"))


# Loss and scores.


@pytest.mark.parametrize("positions", ["rotary", "learned", "sinusoidal", "relative", "alibi", "none"])
def test_documents_apart_are_as_each_alone(data: Path, tmp_path: Path, positions: str) -> None:
    task, model = prepared(tiny(data, "data.documents=apart", f"model.positions={positions}", "data.max_tokens=300"),
                           tmp_path)
    batch = task.data.collate("train", BatchSpec(np.array([0]), 1, int(task.data.lengths("train")[0])))
    states = task._states(model, batch.read)[0]
    starts = [*(batch.read[0] == task.data.tokens.start).nonzero()[:, 0].tolist(), batch.read.shape[1]]
    assert len(starts) == len(DOCUMENTS) + 1
    for first, stop in pairwise(starts):
        alone = task._states(model, batch.read[:, first:stop])[0]
        torch.testing.assert_close(states[first:stop], alone, rtol=1e-5, atol=1e-5)


def test_joined_documents_see_each_other(made: tuple[Language, Decoder]) -> None:
    task, model = made
    read = torch.tensor([[1, 5, 2, 1, 6]])
    assert not torch.allclose(task._states(model, read)[0, 3:], task._states(model, read[:, 3:])[0])


@torch.no_grad()
def test_the_loss_of_a_batch_is_the_sum_over_its_pieces(made: tuple[Language, Decoder]) -> None:
    task, model = made
    batch = task.data.collate("train", BatchSpec(np.array([0, 2, 3]), 4, 16))
    whole = [float(term.total) for term in task.loss(model, batch)]
    parts = np.sum([[float(term.total) for term in task.loss(model, part)] for part in batch.pieces(3)], 0)
    assert whole == pytest.approx(parts.tolist(), rel=1e-5)
    assert whole[0] == pytest.approx(whole[1])  # nothing is smoothed


@torch.no_grad()
def test_scores_are_those_of_a_plain_loop_over_the_text(made: tuple[Language, Decoder], data: Path) -> None:
    task, model = made
    text = (data / "val.txt").read_text(encoding="utf-8")
    ids = [task.data.tokens.start, *task.data.tokens.encode([text])[0], task.data.tokens.end]
    total = 0.0
    for first in range(0, len(ids) - 1, 16):
        read, write = ids[first : first + 16][: len(ids) - 1 - first], ids[first + 1 : first + 17]
        chances = model.logits(model(model.embed(torch.tensor([read]))))[0].log_softmax(-1)
        total -= float(chances[torch.arange(len(write)), write].sum())
    scores = task.score(model, "val")
    assert scores["loss"] == pytest.approx(total / (len(ids) - 1), rel=1e-5)
    assert scores["perplexity"] == pytest.approx(math.exp(total / (len(ids) - 1)), rel=1e-4)
    assert scores["bits_per_byte"] == pytest.approx(total / len(text.encode()) / math.log(2), rel=1e-5)
    assert (scores["tokens"], scores["bytes"]) == (len(ids) - 1, len(text.encode()))


def test_no_more_is_scored_at_once_than_was_trained_at_once(made: tuple[Language, Decoder]) -> None:
    task, model = made
    sizes = list[tuple[int, ...]]()
    hook = model.register_forward_pre_hook(lambda _, inputs: sizes.append(tuple(inputs[0].shape[:2])))
    whole = task.score(model, "val")
    task.run, kept = replace(task.run, train=replace(task.run.train, accumulate=2)), task.run
    halves = task.score(model, "val")
    task.run = kept
    hook.remove()
    assert 2 < max(rows for rows, _ in sizes) <= 64 // 16
    assert sizes[-1] <= (64 // 2 // 16, 16)
    assert halves["loss"] == pytest.approx(whole["loss"])


def test_scoring_that_does_not_fit_says_what_decides_its_size(made: tuple[Language, Decoder]) -> None:
    task, model = made
    hook = model.register_forward_pre_hook(lambda *_: torch.empty(2**50) and None)
    with pytest.raises(Failure, match=r"^scoring \d × 16 tokens does not fit into memory; train.batch_tokens=64 / "
                                      r"train.accumulate=1 and data.max_tokens=16 determine"):
        task.score(model, "val")
    hook.remove()


def test_a_few_rows_are_scored_by_their_own_bytes(made: tuple[Language, Decoder], data: Path) -> None:
    task, model = made
    text = (data / "val.txt").read_text(encoding="utf-8")
    rows = len(task.data.lengths("val"))
    ids = task.data.tokens.encode([text])[0]
    for limit in range(1, rows):
        some = task.score(model, "val", limit=limit)
        text = task.data.tokens.decode([ids[: 16 * limit]])[0]
        assert (some["tokens"], some["bytes"]) == (16 * limit, len(text.encode()))
    assert task.score(model, "val", limit=rows) == task.score(model, "val")


def test_a_split_that_is_not_there_is_refused(made: tuple[Language, Decoder]) -> None:
    with pytest.raises(UserError, match="nowhere: no such split; there are train, val"):
        made[0].score(made[1], "nowhere")


# Text.

PROMPTS = ["the cat", "", "x = [1", "a dög and the", "the cat", "for y in x:\n    "]


@torch.no_grad()
def test_the_likeliest_text_is_what_the_model_says_token_by_token(made: tuple[Language, Decoder]) -> None:
    task, model = made
    answers = task.predict(model, PROMPTS, search=how(task, temperature=0.0, max_tokens=12))
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        ids = [task.data.tokens.start, *task.data.tokens.encode([prompt])[0]]
        begun = len(ids)
        while len(ids) < begun + 12 and ids[-1] != task.data.tokens.end:
            logits = model.logits(model(model.embed(torch.tensor([ids]))))[0, -1]
            tokens = task.data.tokens
            logits[[tokens.pad, tokens.start, *range(len(tokens), len(logits))]] = -math.inf
            ids.append(int(logits.argmax()))
        assert prompt + answer.text == task.data.tokens.decode([ids])[0]


def test_a_prompt_alone_is_gone_on_with_as_among_others(made: tuple[Language, Decoder]) -> None:
    task, model = made
    greedy = how(task, temperature=0.0)
    together = task.predict(model, PROMPTS, search=greedy)
    alone = [task.predict(model, [prompt], search=greedy)[0] for prompt in PROMPTS]
    assert [answer.text for answer in together] == [answer.text for answer in alone]


def test_text_is_drawn_unless_it_is_said_otherwise_and_the_seed_decides(made: tuple[Language, Decoder]) -> None:
    task, model = made
    drawn = [task.predict(model, ["the"], search=how(task, seed=seed, best=3, max_tokens=20))[0] for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]
    assert len({answer.text for answer in (drawn[0], *drawn[0].others)}) == 3


def test_learned_positions_bound_the_prompt_and_the_text(data: Path, tmp_path: Path) -> None:
    task, model = prepared(tiny(data, "model.positions=learned", "model.max_positions=16"), tmp_path)
    greedy = how(task, max_tokens=1000, temperature=0.0)
    (answer,) = task.predict(model, ["the cat sat " * 20], search=greedy)
    assert len(task.data.tokens.encode([answer.text])[0]) <= 2
    assert "cut to its last 16" in task.notes[-2]
    assert task.notes[-1] == "answers that were cut at the last learned position: 1 (model.max_positions=16)"
    assert len(task._written(model, [[1, 5, 6]], greedy)[0].tokens) <= 14
    said = len(task.notes)
    task.predict(model, ["the cat"], search=replace(greedy, max_tokens=3))
    assert len(task.notes) == said


@pytest.mark.parametrize("text", ["the cat", "the cat sat on the mat, a dog and the mat, x = [1", ""])
@pytest.mark.parametrize("output", [" sat on", " sat on the mat " * 9, ""])
def test_a_given_output_is_what_counts_however_much_of_its_prompt_the_positions_leave(
        data: Path, tmp_path: Path, text: str, output: str) -> None:
    task, _ = prepared(tiny(data, "model.positions=learned", "model.max_positions=16"), tmp_path)
    tokens = task.data.tokens
    whole = [tokens.start, *tokens.encode([text + output])[0], *([] if output else [tokens.end])]
    prompt, new = task._read(text, output)
    assert [*prompt, *new] == whole[-17:]
    expected = whole[len(task.data.tokens.encode([text])[0]) + 1 :]
    assert new == expected[-16:]


def test_an_ending_that_is_longer_than_the_positions_is_refused(data: Path, tmp_path: Path) -> None:
    task, model = prepared(tiny(data, "model.positions=learned", "model.max_positions=16"), tmp_path)
    assert task.compare(model, ["the cat " * 20], [" sat", " x = [1, 2]"]).shape == (1, 2)
    with pytest.raises(UserError, match=r"an ending of .* tokens: the model reads at most 16"):
        task.compare(model, ["the cat"], [" sat", " x = [1, 2]" * 9])


def test_a_model_whose_numbers_are_none_says_so_whatever_it_is_asked(data: Path, tmp_path: Path) -> None:
    task, model = prepared(tiny(data), tmp_path)
    with torch.no_grad():
        model.output.weight.fill_(math.nan)
    for ask in (lambda: task.predict(model, ["the cat"]), lambda: list(task.stream(model, "the cat")),
                lambda: task.likelihoods(model, ["the cat"]), lambda: task.compare(model, ["the"], [" cat", " dog"])):
        with pytest.raises(NotFinite, match="not finite"):
            ask()


# A look inside.


@pytest.mark.parametrize("outputs", [None, ["s are", "y"]])
def test_rows_of_a_look_are_what_came_next_and_columns_what_was_read(
        made: tuple[Language, Decoder], outputs: list[str] | None) -> None:
    task, model = made
    for text, record in zip(["the cat", "x"], task.look(model, ["the cat", "x"], outputs), strict=True):
        assert set(record) == {"blocks.0.self", "blocks.1.self"}
        for site, weights in record.items():
            targets, sources = record.axes[site].targets, record.axes[site].sources
            assert sources[0] == "<s>"
            assert sources[1:] == targets[:-1]
            assert "".join(targets).startswith(f" {text}")
            assert weights.shape == (2, len(targets), len(sources))
            assert np.allclose(weights.sum(-1), 1, atol=1e-5)
            assert (np.triu(weights, 1) == 0).all()


def test_choices_are_the_chances_of_each_token_of_the_prompt_and_the_output(made: tuple[Language, Decoder]) -> None:
    task, model = made
    greedy = how(task, temperature=0.0)
    own, given = (task.choices(model, ["the cat"], outputs, search=greedy)[0] for outputs in (None, [" sat on"]))
    assert own.text == task.predict(model, ["the cat"], search=greedy)[0].text
    assert given.text == " sat on"
    assert "".join(choice.token for choice in given.choices) == " the cat sat on"
    for choice in own.choices[len(task.data.tokens.encode(["the cat"])[0]) :]:
        assert choice.token == choice.best[0][0]
        assert choice.probability == pytest.approx(choice.best[0][1])
        assert len(choice.best) == 5


# What is kept on the disk.


def test_the_ids_are_made_once(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = prepared(tiny(data), tmp_path)
    monkeypatch.setattr(module, "read_corpus", None)
    again, _ = prepared(tiny(data, "train.steps=9"), tmp_path)
    assert again.notes == first.notes
    assert again.data.splits() == first.data.splits() == ["train", "val"]
    assert again.data.counts == first.data.counts
    for split in first.data.splits():
        whole = len(first.data.ids[split])
        assert again.data.ids[split].around(0, whole).tolist() == first.data.ids[split].around(0, whole).tolist()


def test_the_ids_are_made_again_when_the_data_changes(data: Path, tmp_path: Path) -> None:
    copy = tmp_path / "data"
    copy.mkdir()
    for file in data.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    before = prepared(tiny(copy), tmp_path / "run")[0].data.counts["train"]
    (copy / "new.txt").write_text("more", encoding="utf-8")
    after = prepared(tiny(copy), tmp_path / "run")[0].data.counts["train"]
    assert (after.documents, after.bytes) == (before.documents + 1, before.bytes + 4)
    (copy / "new.txt").write_text("MORE", encoding="utf-8")
    os.utime(copy / "new.txt", (1, 1))
    task = prepared(tiny(copy, "tokens.kind=bytes"), tmp_path / "run")[0]
    assert "MORE" in task.data.tokens.decode([task.data.ids["train"].around(0, 2000).tolist()])[0]


def test_files_that_become_another_split_are_read_anew(tmp_path: Path) -> None:
    for split in ("train", "test"):
        (tmp_path / "data" / split).mkdir(parents=True)
        (tmp_path / "data" / split / "a.txt").write_text(f"{split} " * 100, encoding="utf-8")
    assert set(prepared(tiny(tmp_path / "data"), tmp_path / "run")[0].data.ids) == {"train", "val", "test"}
    (tmp_path / "data" / "test").rename(tmp_path / "data" / "val")
    assert set(prepared(tiny(tmp_path / "data"), tmp_path / "run")[0].data.ids) == {"train", "val"}


def test_a_cache_that_was_not_finished_is_made_anew(
        data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _ = prepared(tiny(data), tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(module, "write_shards", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            prepared(tiny(data, "tokens.kind=bytes"), tmp_path)
    again, _ = prepared(tiny(data), tmp_path)
    assert again.data.counts == whole.data.counts
    assert all(isinstance(counts, Counts) for counts in again.data.counts.values())


# Other data.


def test_a_text_scores_the_same_whether_it_is_the_runs_own_or_another(
        made: tuple[Language, Decoder], data: Path, tmp_path: Path) -> None:
    task, model = made
    (tmp_path / "new.jsonl").write_text(json.dumps({"body": (data / "val.txt").read_text(encoding="utf-8")}))
    (tmp_path / "new.txt.gz").write_bytes(gzip.compress((data / "val.txt").read_bytes()))
    names = task.data.add_test_data([data / "val.txt", tmp_path / "new.txt.gz"])
    names += task.data.add_test_data([tmp_path / "new.jsonl"], source="body")
    assert names == [str(data / "val.txt"), str(tmp_path / "new.txt.gz"), str(tmp_path / "new.jsonl")]
    gc.collect()  # the files that the ids were mapped from are gone
    for limit in (None, 2):
        assert [task.score(model, name, limit=limit) for name in names] == 3 * [task.score(model, "val", limit=limit)]


# End to end.


@pytest.mark.parametrize("kind", ["bpe", "unigram", "characters", "bytes", "words"])
def test_every_kind_of_token_trains_scores_and_goes_on(data: Path, tmp_path: Path, kind: str) -> None:
    scores = train(tiny(data, f"tokens.kind={kind}"), tmp_path / "run", quiet=True)
    predictor = load_predictor(tmp_path / "run", device="cpu")
    assert predictor.evaluate("val") == scores["val"]
    assert len(predictor.predict(PROMPTS)) == len(PROMPTS)
    assert scores["val"]["bytes"] == len((data / "val.txt").read_bytes())
    assert scores["val"]["bits_per_byte"] > 0
