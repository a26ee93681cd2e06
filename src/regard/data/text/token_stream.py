"""TokenStream: raw text becomes the token ids that examples are cut from."""

import hashlib
import itertools
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from regard.data import tokenizer as tokenizers
from regard.data.corpus import Corpus, Found, Text, find_texts, pieces, read_corpus, read_tests
from regard.data.dataset import MAX_FIRST_EXAMPLE, B, Dataset, Sizes
from regard.data.layout import kind
from regard.data.prepared import KEY
from regard.data.progress import progress
from regard.data.ragged import damaged
from regard.data.shards import Counts, Shards, write_shards
from regard.data.tokenizer import Tokenizer
from regard.settings.errors import Failure, UserError
from regard.settings.opening import to_read
from regard.settings.schema import Run

__all__ = ["BROKEN", "CONTEXT", "TokenStream"]

LEARN_FROM = 1 << 27  # characters that tokens are learned from, at most: more text would not give others
CONTEXT = 48  # tokens of an example that are read
BROKEN = "\ufffd"  # what part of a character is decoded to


class TokenStream(Dataset[str, B]):
    """A long text for each split, as token ids."""

    hides = False
    """Whether one of its tokens stands for a hidden one."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.ids: dict[str, Shards] = {}
        self.counts: dict[str, Counts] = {}

    # Files -> ids

    def make_data(self, folder: Path) -> dict[str, Any]:
        corpus = self.corpus(self._files())
        self.notes += corpus.notes
        self.first = _first_line(corpus.splits["train"])
        self.tokens = self._tokens(corpus.splits["train"])
        self.tokens.save(folder / "tokenizer.json")
        total = sum(text.characters for text in corpus.splits.values())
        with progress("encoding the text", total) as tell:
            counts = {split: asdict(write_shards(folder / "data" / split, text.documents(), self.tokens, tell))
                      for split, text in corpus.splits.items()}
        return {"splits": counts, "notes": self.notes, "first": self.first}

    def restore(self, folder: Path) -> Sizes:
        self.tokens = Tokenizer.load(folder / "tokenizer.json")
        return self._sizes()

    def restore_data(self, folder: Path, about: Mapping[str, Any]) -> None:
        if not isinstance(about["splits"], dict):
            raise damaged(folder / "data" / KEY, "splits: wants the counts of each")
        self.counts = {split: _counts(counts, folder / "data" / KEY) for split, counts in about["splits"].items()}
        self.ids = {split: Shards.load(folder / "data" / split, each.ids, below=len(self.tokens))
                    for split, each in self.counts.items()}

    def add_test_data(self, paths: Sequence[Path], *, source: str | None = None,
                      target: str | None = None) -> list[str]:
        """A split for each path, or for each test of a folder. `source` is the key of JSON."""
        texts = dict[str, Text]()
        _refuse_sides(source, target, [text.path for text in find_texts(paths)])
        for path in paths:
            found = read_tests(path, key=source or self.run.data.source or "text")
            self.notes += found.notes
            texts |= found.splits
        with (TemporaryDirectory(ignore_cleanup_errors=True) as folder,  # what is mapped outlives the file's name
              progress("encoding the text", sum(text.characters for text in texts.values())) as tell):
            for number, (name, text) in enumerate(texts.items()):
                ids = Path(folder, str(number))
                try:
                    self.counts[name] = write_shards(ids, text.documents(), self.tokens, tell)
                except OSError as error:
                    raise Failure(f"{folder}: the ids of {name} cannot be written there: {error.strerror or error}; "
                                  "TMPDIR may name another place") from None
                self.ids[name] = Shards.load(ids, self.counts[name].ids, below=len(self.tokens))
        return list(texts)

    def fingerprint(self) -> str:
        run = self.run
        digest = hashlib.sha256(json.dumps([asdict(run.data), asdict(run.tokens)]).encode())
        published = [] if run.tokens.file is None else find_texts([Path(run.tokens.file)])
        for text in [*self._files(), *published]:
            digest.update(f"{text.path.name}\0{text.split}".encode(errors="surrogateescape"))
            if os.access(text.path, os.R_OK):  # else it will be left out with a note
                with open(text.path, "rb", opener=to_read) as content:
                    digest.update(hashlib.file_digest(content, "sha256").digest())
        return digest.hexdigest()

    def splits(self) -> Sequence[str]:
        return list(self.ids)

    def _files(self) -> list[Found]:
        data = self.run.data
        if data.paths:
            found = find_texts([Path(path) for path in data.paths])
            _refuse_sides(data.source, data.target, [text.path for text in found])
            return found
        return [Found(file) for file in self.built_in_files()]

    def built_in_files(self) -> list[Path]:
        """The default data; None: `corpus` makes it."""
        return []

    def corpus(self, found: Sequence[Found]) -> Corpus:
        return read_corpus(found, key=self.run.data.source or "text", held_out=self.run.data.held_out)

    def _tokens(self, text: Text) -> Tokenizer:
        how = self.run.tokens
        if how.file is not None:
            return Tokenizer.load(Path(how.file))
        every = math.ceil(text.characters / LEARN_FROM)
        parts = (piece for document in text.documents() for piece in pieces(document))
        with progress("learning the tokens", text.characters // every) as tell:
            learned = tokenizers.train(_counted(itertools.islice(parts, 0, None, every), tell), kind=how.kind,
                                       vocabulary=how.vocabulary, lowercase=how.lowercase, mask=self.hides)
        if len(learned) < how.vocabulary:
            self.notes.append(f"the text has fewer distinct pieces than tokens.vocabulary={how.vocabulary}: "
                              f"{len(learned)} tokens are used")
        return learned

    def _sizes(self) -> Sizes:
        # Matrix units want multiples of 64; the ids beyond the real ones never occur.
        return {"vocabulary": -(-len(self.tokens) // 64) * 64}


def _refuse_sides(source: str | None, target: str | None, files: Sequence[Path]) -> None:
    """Raw text has no columns. They would be left out in silence."""
    if target is not None:
        raise UserError(f"--target {target}: raw text has no second side; leave it out")
    if source is not None and not any(kind(file) == "jsonl" for file in files):
        raise UserError(f"--source {source}: names the key of the text in a .jsonl, and there is none among the data; "
                        "leave it out")


def _first_line(text: Text) -> str:
    """The first line that has any text."""
    lines = (line for document in text.documents() for part in document for line in part.splitlines())
    return next((line for line in lines if line.strip()), "")[:MAX_FIRST_EXAMPLE]


def _counted(texts: Iterator[str], tell: Callable[[int], None]) -> Iterator[str]:
    for text in texts:
        yield text
        tell(len(text))


def _counts(kept: object, place: Path) -> Counts:
    match kept:
        case {"documents": int(documents), "bytes": int(size), "ids": int(ids), **more} if not more:
            if min(documents, size) >= 0 and ids > 0:
                return Counts(documents, size, ids)
    raise damaged(place, "splits: wants the counts of each")
