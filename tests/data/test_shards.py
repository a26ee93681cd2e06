"""Documents as flat ids: whole, in order, in small files that are mapped."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models

from regard.data import shards
from regard.data.shards import Shards, write_shards
from regard.data.tokenizer import Tokenizer, train
from regard.settings.errors import UserError

DOCUMENTS = ["one two three\n" * 30, "four", "fünf six " * 200]


@pytest.fixture(scope="module")
def tokens() -> Tokenizer:
    return train(DOCUMENTS, kind="bpe", vocabulary=300)


def test_a_document_is_its_start_its_ids_and_its_end(tokens: Tokenizer, tmp_path: Path) -> None:
    counts = write_shards(tmp_path / "train", (iter([text]) for text in DOCUMENTS), tokens)
    expected = [id for row in tokens.encode(DOCUMENTS) for id in (tokens.start, *row, tokens.end)]
    ids = Shards.load(tmp_path / "train", counts.ids, below=len(tokens))
    assert ids.around(0, len(ids)).tolist() == expected
    assert counts.documents == 3
    assert counts.ids == len(ids) == len(expected)
    assert counts.bytes == sum(len(text.encode()) for text in DOCUMENTS)


def test_how_many_files_and_batches_there_are_changes_nothing(
        tokens: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    counts = write_shards(tmp_path / "one", (iter([text]) for text in DOCUMENTS), tokens)
    monkeypatch.setattr(shards, "SHARD", 100)
    monkeypatch.setattr(shards, "CHARACTERS_AT_ONCE", 50)
    write_shards(tmp_path / "many", (iter(text.splitlines(keepends=True)) for text in DOCUMENTS), tokens, told.append)
    one, many = (Shards.load(tmp_path / name, counts.ids, below=len(tokens)) for name in ("one", "many"))
    assert len(one.parts) == 1 < len(many.parts)
    assert all(len(part) <= 100 for part in many.parts)
    assert one.around(0, len(one)).tolist() == many.around(0, len(many)).tolist()
    assert sum(told) == sum(map(len, DOCUMENTS))


def test_where_tokens_reach_over_words_a_document_is_encoded_whole(tmp_path: Path) -> None:
    library = Library(models.BPE({"<s>": 0, "</s>": 1, "a": 2, " ": 3, "a ": 4, "a a": 5}, [("a", " "), ("a ", "a")]))
    library.decoder = decoders.Fuse()
    library.save(str(tmp_path / "tokenizer.json"))
    tokens, text = Tokenizer.load(tmp_path), "a a" + " a a" * 20_000  # more than one piece
    counts = write_shards(tmp_path / "train", [iter([text])], tokens)
    ids = Shards.load(tmp_path / "train", counts.ids, below=len(tokens)).around(0, counts.ids)
    assert ids.tolist() == [0, *tokens.encode([text])[0], 1]
    assert counts.bytes == len(text)


def test_ids_take_two_bytes_and_are_mapped(tokens: Tokenizer, tmp_path: Path) -> None:
    counts = write_shards(tmp_path / "train", [iter(["some text"])], tokens)
    (part,) = Shards.load(tmp_path / "train", counts.ids, below=len(tokens)).parts
    assert part.dtype == np.uint16
    assert isinstance(part, np.memmap)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(0, 40), st.integers(0, 40))
def test_shards_are_a_ring(sizes: list[int], start: int, count: int) -> None:
    flat = np.arange(sum(sizes))
    ring = Shards(np.split(flat, np.cumsum(sizes)[:-1]))
    assert len(ring) == len(flat)
    assert ring.around(start, count).tolist() == [int(flat[(start + i) % len(flat)]) for i in range(count)]


def test_ids_of_which_a_file_is_missing_or_cut_are_refused(
        tokens: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "SHARD", 100)
    counts = write_shards(tmp_path / "train", (iter([text]) for text in DOCUMENTS), tokens)
    assert len(Shards.load(tmp_path / "train", counts.ids, below=len(tokens))) == counts.ids
    second = tmp_path / "train-00001.npy"
    whole = second.read_bytes()
    for harm in (whole[:-2], whole[:9], b"", None):
        second.unlink()
        if harm is not None:
            second.write_bytes(harm)
        with pytest.raises(UserError, match=r"train.*damaged"):
            Shards.load(tmp_path / "train", counts.ids, below=len(tokens))
        second.write_bytes(whole)
