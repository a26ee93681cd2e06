"""A bare encoder gives a vector for each text, whatever else is in its batch, and learns nothing."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.check.consistency import checks
from regard.checkpoint import named_tensors, write_json
from regard.convert.import_export import import_run, write_run_model
from regard.data.text.rows import by_length
from regard.data.tokenizer import train
from regard.generate.text_vectors import vectors
from regard.models.encoder_only import EncoderOnly
from regard.nn.head import pooled
from regard.nn.init import initialize
from regard.predictor import Predictor
from regard.settings.errors import NotFinite, UserError
from regard.settings.load import to_json
from regard.settings.presets import PRESETS
from regard.settings.schema import Data, Run

WORDS = ["the", "theory", "of", "it", "is", "then", "the", "theme", "of", "other", "people", "who", "sleep"]
TEXTS = [" ".join(WORDS[: 1 + number % 11]) for number in range(40)] + ["", "the " * 200]
MINILM = Path(os.environ.get("REGARD_MINILM", Path(__file__).parents[3] / "shared" / "weights" / "all-MiniLM-L6-v2"))
SENTENCES = Path(__file__).parents[3] / "shared" / "data" / "sst2"


@pytest.fixture
def encoder(tmp_path: Path) -> Callable[..., Predictor]:
    def made(**head: Any) -> Predictor:
        tower = replace(PRESETS["bert-base"](), width=24, heads=3, depth=2, max_positions=64)
        run = Run(task="encode", model=replace(tower, head=replace(tower.head, **head)), data=Data(max_tokens=32))
        tokens = train(TEXTS, kind="bpe", vocabulary=300, mask=True)
        model = EncoderOnly(run.model, vocabulary=320)
        initialize(model, seed=0)
        tokens.save(tmp_path / "tokenizer.json")
        write_json(tmp_path / "run.json", to_json(run))
        write_run_model(tmp_path, run, {"vocabulary": 320}, named_tensors(model))
        return regard.load(tmp_path, device="cpu")

    return made


@pytest.mark.parametrize("pool", ["first", "mean"])
@pytest.mark.parametrize("unit", [True, False])
@torch.no_grad()
def test_a_vector_is_that_of_the_text_alone(encoder: Callable[..., Predictor], pool: str, unit: bool) -> None:
    predictor = encoder(pool=pool, normalize=unit)
    found = predictor.embed(TEXTS)
    for text, vector in zip(TEXTS, found, strict=True):
        (row,) = predictor.task.data.rows([text])
        assert len(row) <= 32
        states = predictor.model(torch.tensor([row]))
        alone = pooled(states, torch.ones(1, len(row)).bool(), how=pool)[0]
        alone = alone / alone.norm() if unit else alone
        assert np.abs(vector - alone.numpy()).max() <= 1e-5 * alone.abs().max()


def test_an_answer_is_the_vector_as_json(encoder: Callable[..., Predictor]) -> None:
    predictor = encoder()
    (answer,) = predictor.predict(["the theory"])
    assert np.allclose(json.loads(answer), predictor.embed(["the theory"])[0], rtol=1e-5)


def test_what_must_hold_of_every_model_holds_of_an_encoder(encoder: Callable[..., Predictor]) -> None:
    predictor = encoder()
    found = list(checks(predictor.task.probe(predictor.model)))
    assert len(found) >= 4
    assert all(check.holds for check in found)


def test_an_encoder_shows_what_it_looks_at(encoder: Callable[..., Predictor]) -> None:
    record = encoder().look("the theory")
    assert list(record) == ["encoder.blocks.0.self", "encoder.blocks.1.self"]
    assert record.axes["encoder.blocks.0.self"].sources[0] == "<s>"


def test_an_encoder_learns_nothing_and_says_so(encoder: Callable[..., Predictor], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="only computes vectors; to train, start another task"):
        encoder().evaluate("test")
    with pytest.raises(UserError, match="only computes vectors"):
        regard.train(regard.recipe(overrides=["task=encode"]), tmp_path / "run", quiet=True)


def test_vectors_that_are_no_numbers_are_refused(encoder: Callable[..., Predictor]) -> None:
    predictor = encoder()
    with torch.no_grad():
        predictor.model.encoder.blocks[1].self.out.weight.fill_(torch.nan)
    with pytest.raises(NotFinite):
        predictor.embed(["the theory"])


@pytest.mark.parametrize(("options", "least"), [({"quantize": "int8"}, 0.99), ({"precision": "bfloat16"}, 0.999)])
def test_narrow_numbers_point_the_same_way(encoder: Callable[..., Predictor], options: dict[str, str],
                                           least: float) -> None:
    exact = encoder(normalize=True, pool="mean")
    narrow = regard.load(exact.folder, device="cpu", **options)
    assert (exact.embed(TEXTS) * narrow.embed(TEXTS)).sum(1).min() > least


def test_rows_of_one_length_are_read_together() -> None:
    rows = [[1] * length for length in [3] * 500 + [5] * 100 + [7, 9, 11]]
    batches = list(by_length(rows, pad=0, device=torch.device("cpu")))
    assert sorted(place for places, _ in batches for place in places) == list(range(603))
    assert all(tokens.numel() <= 1_024 for _, tokens in batches)
    padding = sum(int((tokens == 0).sum()) for _, tokens in batches)
    assert padding < 0.1 * sum(map(len, rows))


@pytest.fixture
def threads() -> Iterator[None]:
    """As many as there were, whatever a test says."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
def test_threads_that_read_side_by_side_find_what_one_finds(encoder: Callable[..., Predictor]) -> None:
    predictor, texts = encoder(pool="mean"), 5 * TEXTS
    found = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append(predictor.embed(texts))
        assert torch.get_num_threads() == threads
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


@pytest.mark.usefixtures("threads")
def test_what_fails_in_one_of_the_threads_is_said(encoder: Callable[..., Predictor]) -> None:
    predictor = encoder()
    torch.set_num_threads(2)
    with pytest.raises(IndexError):
        vectors(predictor.model, [[5] * 30] * 99 + [[100_000]], pad=predictor.task.data.tokens.pad, pool="mean")
    assert torch.get_num_threads() == 2


@pytest.mark.skipif(not (MINILM.is_dir() and SENTENCES.is_dir()), reason="needs all-MiniLM-L6-v2 and SST-2")
@torch.no_grad()
def test_minilms_vectors_are_those_of_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    texts = sentences(1_000)
    import_run(MINILM, tmp_path / "run")
    found = regard.load(tmp_path / "run", device="cpu").embed(texts)
    model, tokens = transformers.AutoModel.from_pretrained(MINILM), transformers.AutoTokenizer.from_pretrained(MINILM)
    wanted = []
    for start in range(0, len(texts), 100):
        read = tokens(texts[start : start + 100], padding=True, truncation=True, max_length=256, return_tensors="pt")
        states, real = model(**read).last_hidden_state, read["attention_mask"][..., None]
        wanted.append(torch.nn.functional.normalize((states * real).sum(1) / real.sum(1)).numpy())
    assert np.abs(found - np.concatenate(wanted)).max() <= 1e-4


def sentences(count: int) -> list[str]:
    import gzip

    with gzip.open(SENTENCES / "stsa.binary.train.gz", "rt", encoding="utf-8") as file:
        return [line.partition(" ")[2].strip() for line in file][:count]
