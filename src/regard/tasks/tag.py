"""tag: words, and a tag for each of them, such as its part of speech."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.check.probe import MAX_PROBE_LENGTH, Probe, made_up, of_all_lengths, of_encoder
from regard.checkpoint import read_json, write_json
from regard.data.batch import IGNORED
from regard.data.conllu import ENDINGS, Tagged, find_treebank, read_sentences, read_treebank
from regard.data.dataset import MAX_FIRST_EXAMPLE
from regard.data.ragged import damaged
from regard.data.reader import TextReader
from regard.data.split_words import Words, plain_words, words_for_tags
from regard.data.splits import find_tests
from regard.data.tagging_windows import tagging_windows
from regard.data.text.labelled_text import LabelBatch, LabelledText, Sample
from regard.data.text.rows import by_length, encoder_mask
from regard.generate.text_vectors import vectors
from regard.look.choices import Choice, Output
from regard.look.confusion import Confusion
from regard.look.encoder_states import attention
from regard.look.record import Record
from regard.models.build import text_encoder
from regard.models.classifier import Tagger, label_token_index
from regard.settings.errors import UserError, out_of
from regard.settings.schema import Data, Run, Search
from regard.tasks.base import Answer, Example, Loss, Scores, Sizes, Task, Term

__all__ = ["Tag"]

BUILT_IN_CHECK = 1_000  # built-in sentences in the validation set and in each test set
USUAL = "usual.json"  # in the cache: the most frequent tag of each word
PROBE_CANDIDATES = 64  # examples from which those for the checks are chosen
BEST = 5  # candidate tags of each word, by default


class TaggedRow(NamedTuple):
    """A sentence as the model reads it, from its start to its end."""

    ids: list[int]
    targets: list[int]
    is_cut: bool


class TaggedWords(LabelledText):
    """Sentences with a tag for each word.

    The words of a `Sample` are separated by single spaces; a space inside a word is a no-break space. A word may be
    several tokens: only one has its tag, the first (Devlin et al. 2019, 5.3), if it can see the others.
    """

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        if run.data.max_tokens < 3:
            raise UserError(f"data.max_tokens={run.data.max_tokens}: leaves no room for a word between start and end; "
                            "take 3 or more")
        self.label_token_index = label_token_index(run.model)
        self.usual: dict[str, str] = {}
        self.most_usual = ""

    def files(self) -> Iterable[Path]:
        paths = [Path(path) for path in self.run.data.paths]
        return find_treebank(paths)[0].values() if paths else ()

    def read(self) -> dict[str, Sequence[Sample]]:
        data = self.run.data
        if not data.paths:
            from regard.data.builtin import phrasebook  # a lexicon that few runs need

            check = min(BUILT_IN_CHECK, data.built_in_size)
            sizes = {split: data.built_in_size if split == "train" else check for split in phrasebook.SPLITS}
            return {split: [Sample(" ".join(one.words), one.tags) for one in phrasebook.taggings(split, size)]
                    for split, size in sizes.items()}
        if data.source is not None:
            raise UserError(f"--source {data.source}: has no effect on tag, because the words' column is fixed; remove "
                            "it. --target chooses the column of the tags")
        found = read_treebank([Path(path) for path in data.paths], column=data.target, held_out=data.held_out)
        self.notes += found.notes
        return {split: _samples(sentences) for split, sentences in found.splits.items()}

    def tests(self, path: Path, data: Data) -> dict[str, Sequence[Sample]]:
        found: dict[str, Sequence[Sample]] = {
            str(file): _samples(read_sentences(file, data.target)) for file in find_tests(path, kinds=ENDINGS)}
        self.note_unknown(found)
        return found

    def told(self, sample: Sample) -> str:
        words = zip(sample.text.split(" "), sample.labels, strict=True)
        return " ".join(f"{word}/{tag}" for word, tag in islice(words, MAX_FIRST_EXAMPLE))[:MAX_FIRST_EXAMPLE]

    def changed(self, sample: Sample, text: str) -> Sample:
        """The remaining words keep their tags."""
        return Sample(text, sample.labels[: len(text.split(" "))])

    def _learn_labels(self, splits: dict[str, Sequence[Sample]]) -> None:
        """Learn the labels of the training data. A test may have others: they count as wrong."""
        super()._learn_labels({"train": splits["train"]})
        self.note_unknown(splits)

    def note_unknown(self, splits: Mapping[str, Sequence[Sample]]) -> None:
        known = set(self.labels)
        for split, samples in splits.items():
            tags = Counter(tag for sample in samples for tag in sample.labels)
            unknown = [tag for tag in tags if tag not in known]
            if len(unknown) == len(tags):
                raise UserError(f"{split}: train has none of its tags, such as {unknown[0]}; are they from the same "
                                "column?")
            if unknown:
                words = out_of(sum(tags[tag] for tag in unknown), tags.total(), "word", f"of {split} has",
                               f"of {split} have")
                self.notes.append(f"{words} a tag that is not in train, such as {unknown[0]}: counted as wrong")

    def keep(self, cache: Path, splits: dict[str, Sequence[Sample]]) -> None:
        tags = Counter(pair for sample in splits["train"]
                       for pair in zip(sample.text.split(" "), sample.labels, strict=True))
        self.usual = {}
        for word, tag in sorted(tags, key=lambda pair: (-tags[pair], pair)):
            self.usual.setdefault(word, tag)
        self.most_usual = Counter(self.usual.values()).most_common(1)[0][0]  # a new word is like most words, not tokens
        write_json(cache / USUAL, {"words": self.usual, "otherwise": self.most_usual})

    def restore_data(self, folder: Path, about: Mapping[str, Any]) -> None:
        super().restore_data(folder, about)
        place = folder / "data" / USUAL
        match read_json(place):
            case {"words": dict(words), "otherwise": str(otherwise)} if all(isinstance(t, str) for t in words.values()):
                self.usual, self.most_usual = words, otherwise
            case _:
                raise damaged(place, "must be the most frequent tag of each word")

    def encoded(self, samples: Sequence[Sample]) -> list[tuple[list[int], list[int]]]:
        rows = self.tagged_rows([sample.text.split(" ") for sample in samples], [sample.labels for sample in samples])
        cut = sum(row.is_cut for row in rows)
        self.notes.count_up("sentences", cut, len(rows), lambda part, whole, _: (
            f"{out_of(part, whole, 'sentence')} cut to data.max_tokens={self.run.data.max_tokens} tokens for the loss; "
            "every word is given a tag"))
        return [(row.ids, row.targets) for row in rows]

    def tagged_rows(self, sentences: Sequence[Words], tags: Sequence[Sequence[str]]) -> list[TaggedRow]:
        places, longest, found = {tag: place for place, tag in enumerate(self.labels)}, self.run.data.max_tokens, []
        for words, wanted in zip(self.tokens.encode_words(sentences), tags, strict=True):
            ids, targets = [self.tokens.start], [IGNORED]
            for word, tag in zip(words, wanted, strict=True):
                ids += word
                own = [IGNORED] * len(word)
                own[self.label_token_index] = places.get(tag, IGNORED)
                targets += own
            found.append(TaggedRow([*ids[: longest - 1], self.tokens.end], [*targets[: longest - 1], IGNORED],
                             len(ids) >= longest))
        return found

    def rows(self, texts: Sequence[str]) -> list[list[int]]:
        return self.word_rows([plain_words(text) for text in texts])

    def word_rows(self, sentences: Sequence[Words]) -> list[list[int]]:
        return [row.ids for row in self.tagged_rows(sentences, [[""] * len(words) for words in sentences])]

    def target_places(self, length: int) -> int:
        return length


class Tag(Task[str, LabelBatch]):
    """A tag for each word."""

    inputs = TextReader()
    counted = "words"

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.data: TaggedWords = TaggedWords(run)

    # Batches -> loss

    def build(self, sizes: Sizes) -> Tagger:
        tower = self.run.model
        return Tagger(text_encoder(tower, vocabulary=sizes["vocabulary"]), tower, labels=sizes["labels"])

    def _logits(self, model: nn.Module, tokens: Tensor) -> Float[Tensor, "rows length labels"]:
        return model(tokens, mask=encoder_mask(tokens, pad=self.data.tokens.pad, window=self.run.model.window))  # type: ignore[no-any-return]

    def loss(self, model: nn.Module, batch: LabelBatch) -> Loss:
        logs, smoothing = self._logits(model, batch.tokens).float().log_softmax(-1), self.run.train.label_smoothing
        # Multiply by 0 instead of leaving out: a gradient that is not finite must not be lost where nothing counts.
        counted = (batch.targets != IGNORED).float()
        plain = -(logs.gather(-1, batch.targets.clamp(min=0)[..., None])[..., 0] * counted).sum()
        spread = -(logs.mean(-1) * counted).sum()
        return Term("loss", (1 - smoothing) * plain + smoothing * spread), Term("nll", plain.detach(), weight=0.0)

    def batches(self, inputs: Sequence[str], outputs: Sequence[str]) -> Iterator[LabelBatch]:
        tags = [output.split(" ") for output in outputs]
        rows = self.data.tagged_rows([words_for_tags(*told) for told in zip(inputs, tags, strict=True)], tags)
        pad, cpu = self.data.tokens.pad, torch.device("cpu")
        for places, tokens in by_length([row.ids for row in rows], pad=pad, device=cpu):
            yield self.data.batch([rows[i].ids for i in places], [rows[i].targets for i in places],
                             shape=(len(places), tokens.shape[1]))

    @torch.no_grad()
    def matches_greedy(self, model: nn.Module, batch: LabelBatch) -> Bool[Tensor, "rows places"]:
        return self._logits(model, batch.tokens).argmax(-1) == batch.targets

    # Words -> tags

    def predict(self, model: nn.Module, inputs: Sequence[str], *, search: Search | None = None) -> list[Answer]:
        """The words of each text with their tags, as in `the/DET cat/NOUN`; `plain_words` splits the text."""
        sentences, best = [plain_words(text) for text in inputs], (search or self.run.search).best
        return [self._answer(words, logs, best if best > 1 else BEST)
                for words, logs in zip(sentences, self._logs(model, sentences), strict=True)]

    def _answer(self, words: Words, logs: Float[Tensor, "words labels"], best: int) -> Answer:
        tags = self._likeliest(logs)
        score = float(logs.amax(-1).mean()) if words else None
        return Answer(_together(words, tags), score, choices=self._choices(words, tags, logs, best))

    def greedy_answers(self, model: nn.Module, examples: Sequence[Example[str]], *,
                       search: Search | None = None) -> list[str]:
        """Only the tags, of the words as the examples split them."""
        sentences = [example.input.split(" ") for example in examples]
        return [" ".join(self._likeliest(logs)) for logs in self._logs(model, sentences)]

    @torch.no_grad()
    def _logs(self, model: nn.Module, sentences: Sequence[Words]) -> list[Float[Tensor, "words labels"]]:
        """The log-probability of each tag for each word. A sentence that is too long is read in windows."""
        room, device = self.run.data.max_tokens - 2, next(model.parameters()).device
        found = [torch.zeros(len(words), len(self.data.labels)) for words in sentences]
        rows, tagged = list[list[int]](), list[tuple[int, range, list[int]]]()
        for sentence, words in enumerate(self.data.tokens.encode_words(sentences)):
            for window in tagging_windows([min(len(word), room) for word in words], room):
                row, label_tokens = [self.data.tokens.start], list[int]()
                for place in window.read:
                    word = words[place][:room]
                    if place in window.tagged:
                        of_word = range(len(row), len(row) + len(word))
                        label_tokens.append(of_word[self.data.label_token_index])
                    row += word
                rows.append([*row, self.data.tokens.end])
                tagged.append((sentence, window.tagged, label_tokens))
        for places, tokens in by_length(rows, pad=self.data.tokens.pad, device=device):
            logs = self._logits(model, tokens).float().log_softmax(-1).cpu()
            for place, of_row in zip(places, logs, strict=True):
                sentence, words_tagged, label_tokens = tagged[place]
                found[sentence][words_tagged.start : words_tagged.stop] = of_row[label_tokens]
        return found

    def _likeliest(self, logs: Float[Tensor, "words labels"]) -> list[str]:
        return [self.data.labels[place] for place in logs.argmax(-1).tolist()]

    def score(self, model: nn.Module, split: str, *, limit: int | None = None,
              search: Search | None = None) -> Scores:
        """Shares of the words; `baseline` is the accuracy of each word's most frequent tag in training, if known."""
        samples = self.data.of(split)[:limit]
        sentences = [sample.text.split(" ") for sample in samples]
        logs = self._logs(model, sentences)
        given = [self._likeliest(each) for each in logs]
        places = {tag: place for place, tag in enumerate(self.data.labels)}
        wanted = [tag for sample in samples for tag in sample.labels]
        usual = [self.data.usual.get(word, self.data.most_usual) for words in sentences for word in words]
        targets = torch.tensor([places.get(tag, IGNORED) for tag in wanted])
        loss = F.nll_loss(torch.cat(logs), targets, ignore_index=IGNORED, reduction="sum")
        words = Counter(wanted)
        right = Counter(tag for tag, said in zip(wanted, chain.from_iterable(given), strict=True) if tag == said)
        baseline = {"baseline": sum(map(str.__eq__, usual, wanted)) / words.total()} if self.data.usual else {}
        return {
            "accuracy": right.total() / words.total(),
            **baseline,
            "sentences_right": sum(tuple(tags) == sample.labels for tags, sample in zip(
                given, samples, strict=True)) / len(samples),
            "loss": float(loss) / max(1, int((targets != IGNORED).sum())),
            "words": words.total(),
            "sentences": len(samples),
            "accuracy_per_tag": {tag: right[tag] / words[tag] for tag in sorted(words)},
        }

    def confusion(self, model: nn.Module, split: str, *, limit: int | None = None) -> Confusion:
        """The confusion matrix of words, not of texts. A tag that is not in train has no row."""
        samples = self.data.of(split)[:limit]
        given = self._logs(model, [sample.text.split(" ") for sample in samples])
        places = {tag: place for place, tag in enumerate(self.data.labels)}
        counts = np.zeros((len(places), len(places)), int)
        for sample, logs in zip(samples, given, strict=True):
            for tag, said in zip(sample.labels, logs.argmax(-1).tolist(), strict=True):
                if tag in places:
                    counts[places[tag], said] += 1
        return Confusion(self.data.labels, counts)

    # Vectors, and a look inside

    def embed(self, model: nn.Module, inputs: Sequence[str]) -> Float[np.ndarray, "texts width"]:
        return vectors(model, self.data.rows(inputs), pad=self.data.tokens.pad, pool=self.run.model.head.pool,
                       normalize=self.run.model.head.normalize)

    def look(self, model: nn.Module, inputs: Sequence[str], outputs: Sequence[str] | None = None, *,
             only: str | Sequence[str] = "*", heads: Sequence[int] | None = None,
             search: Search | None = None) -> list[Record]:
        """The attention of the tokens; it does not depend on the tags."""
        sentences = self._sentences(inputs, outputs)
        rows = self.data.tagged_rows(sentences, [[""] * len(words) for words in sentences])
        if any(row.is_cut for row in rows):
            self.notes.count_up("shown", 1, 1, lambda *_: (
                f"only the first data.max_tokens={self.run.data.max_tokens} tokens are shown"))
        return attention(model, self.data.tokens, [row.ids for row in rows], only=only, heads=heads)

    def choices(self, model: nn.Module, inputs: Sequence[str], outputs: Sequence[str] | None = None, *,
                best: int = 5, search: Search | None = None) -> list[Output]:
        sentences, found = self._sentences(inputs, outputs), list[Output]()
        for place, (words, logs) in enumerate(zip(sentences, self._logs(model, sentences), strict=True)):
            tags = self._likeliest(logs) if outputs is None else outputs[place].split(" ")
            for tag in tags:
                if tag not in self.data.labels:
                    raise UserError(f"{tag}: no such tag; the tags are {', '.join(self.data.labels)}")
            found.append(Output(_together(words, tags), self._choices(words, tags, logs, best)))
        return found

    def _choices(self, words: Words, tags: Sequence[str], logs: Float[Tensor, "words labels"],
                 best: int) -> tuple[Choice, ...]:
        """The probability of each word's tag, and the most likely tags with theirs."""
        chances = logs.exp()
        top = chances.topk(min(best, len(self.data.labels)))
        return tuple(Choice(word, float(of_word[self.data.labels.index(tag)]), tuple(
            (self.data.labels[place], chance) for place, chance in zip(places, values, strict=True)))
            for word, tag, of_word, places, values in zip(
                words, tags, chances, top.indices.tolist(), top.values.tolist(), strict=True))

    def _sentences(self, inputs: Sequence[str], outputs: Sequence[str] | None) -> list[list[str]]:
        if outputs is None:
            return [plain_words(text) for text in inputs]
        return [words_for_tags(text, output.split(" ")) for text, output in zip(inputs, outputs, strict=True)]

    def probe(self, model: nn.Module) -> Probe:
        """A probe from examples of all lengths of the validation set, or from made-up ones if the run has no data."""
        split = next(iter(self.data.samples), None)
        examples = [] if split is None else self.data.examples(split, PROBE_CANDIDATES)
        texts = of_all_lengths([one.input for one in examples if one.input.strip()], length=len)
        start, end = self.data.tokens.start, self.data.tokens.end
        found = self.data.word_rows([text.split(" ") for text in texts])
        rows = [[*row[: MAX_PROBE_LENGTH - 1], end] for row in found]
        tagger = cast(Tagger, model)
        return of_encoder(tagger, tagger.encoder, pad=self.data.tokens.pad,
                          logits=lambda read: self._logits(tagger, read.values),
                          inputs=rows or [[start, *row, end] for row in made_up(len(self.data.tokens))])


def _samples(sentences: Iterable[Tagged]) -> list[Sample]:
    return [Sample(" ".join(words), tags) for words, tags in sentences]


def _together(words: Words, tags: Sequence[str]) -> str:
    return " ".join(f"{word}/{tag}" for word, tag in zip(words, tags, strict=True))
