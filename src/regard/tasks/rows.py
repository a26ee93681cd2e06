"""rows: raw text in files becomes the ids that a task cuts its examples from."""

import hashlib
import itertools
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from regard.checkpoint import read_json, write_json
from regard.data import tokenizer as tokenizers
from regard.data.corpus import Corpus, Found, Text, find_texts, pieces, read_corpus, read_tests
from regard.data.layout import kind
from regard.data.progress import progress
from regard.data.shards import Counts, Shards, write_shards
from regard.data.tokenizer import Tokenizer
from regard.settings.errors import Failure, UserError
from regard.settings.opening import own_folder, to_read
from regard.settings.schema import Run
from regard.tasks.base import FIRST_SHOWN, B, Sizes, Task
from regard.tasks.notes import Notes

__all__ = ["BROKEN", "CONTEXT", "IGNORED", "Rows"]

KEY = "key.json"  # of the cache: what it was made from
LEARN_FROM = 1 << 27  # characters that tokens are learned from, at the most: more text would not give others
IGNORED = -1  # a target that counts nothing
CONTEXT = 48  # tokens of an example that are read
BROKEN = "\ufffd"  # what part of a character is decoded to


class Rows(Task[B]):
    """A task whose examples are cut from a long text: the half of it that is about files and ids."""

    hides = False
    """Whether one of its tokens stands for a hidden one."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.ids: dict[str, Shards] = {}
        self.counts: dict[str, Counts] = {}

    # Files -> ids

    def prepare(self, folder: Path) -> Sizes:
        cache = folder / "data"
        found = self._files()
        key = _digest(self.run, found)
        if (cache / KEY).exists() and read_json(cache / KEY)["key"] == key:
            return self.restore(folder)
        if (folder / "checkpoints").exists():
            raise UserError(f"{folder}: the data has changed since this run began; train anew with --out DIR")
        corpus = self.corpus(found)
        self.notes += corpus.notes
        self.first = _first_line(corpus.splits["train"])
        self.tokens = self._tokens(corpus.splits["train"])
        own_folder(cache)
        for old in [cache / KEY, *cache.glob("*.npy")]:
            old.unlink(missing_ok=True)
        self.tokens.save(folder / "tokenizer.json")
        self._write(corpus, cache)
        # Last: where it is, the cache is whole.
        write_json(cache / KEY, {"key": key, "splits": {name: asdict(counts) for name, counts in self.counts.items()},
                                 "notes": self.notes, "first": self.first})
        return self._sizes()

    def restore(self, folder: Path) -> Sizes:
        self.tokens = Tokenizer.load(folder / "tokenizer.json")
        if (folder / "data" / KEY).exists():
            about = read_json(folder / "data" / KEY)
            self.notes, self.first = Notes(about["notes"]), about.get("first", "")
            self.counts = {split: Counts(**counts) for split, counts in about["splits"].items()}
            self.ids = {split: Shards.load(folder / "data" / split, each.ids) for split, each in self.counts.items()}
        return self._sizes()

    def more(self, paths: Sequence[Path], *, source: str | None = None, target: str | None = None) -> list[str]:
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
                self.ids[name] = Shards.load(ids, self.counts[name].ids)
        return list(texts)

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
        """What is read where no data is named; none: `corpus` makes it."""
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
            learned = tokenizers.train(_told(itertools.islice(parts, 0, None, every), tell), kind=how.kind,
                                       vocabulary=how.vocabulary, lowercase=how.lowercase, mask=self.hides)
        if len(learned) < how.vocabulary:
            self.notes.append(f"the text has fewer distinct pieces than tokens.vocabulary={how.vocabulary}: "
                              f"{len(learned)} tokens are used")
        return learned

    def _write(self, corpus: Corpus, cache: Path) -> None:
        total = sum(text.characters for text in corpus.splits.values())
        with progress("encoding the text", total) as tell:
            for split, text in corpus.splits.items():
                self.counts[split] = write_shards(cache / split, text.documents(), self.tokens, tell)
                self.ids[split] = Shards.load(cache / split, self.counts[split].ids)

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
    return next((line for line in lines if line.strip()), "")[:FIRST_SHOWN]


def _told(texts: Iterator[str], tell: Callable[[int], None]) -> Iterator[str]:
    for text in texts:
        yield text
        tell(len(text))


def _digest(run: Run, found: Sequence[Found]) -> str:
    """Changes when the files or what is made of them change."""
    digest = hashlib.sha256(json.dumps([asdict(run.data), asdict(run.tokens)]).encode())
    published = [] if run.tokens.file is None else find_texts([Path(run.tokens.file)])
    for text in [*found, *published]:
        digest.update(f"{text.path.name}\0{text.split}".encode(errors="surrogateescape"))
        if os.access(text.path, os.R_OK):  # else it will be left out with a note
            with open(text.path, "rb", opener=to_read) as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()
