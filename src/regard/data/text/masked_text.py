"""MaskedText: raw text becomes rows with masked tokens, for an encoder to learn from."""

import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batch import IGNORED, Batch, BatchSampler, BatchSpec
from regard.data.builtin import passages
from regard.data.corpus import Corpus, Found
from regard.data.dataset import Example, Sizes, no_such_split
from regard.data.masking import NOISE, MaskingPolicy
from regard.data.text.rows import rows_of
from regard.data.text.token_stream import BROKEN, CONTEXT, TokenStream
from regard.settings.errors import UserError
from regard.settings.schema import Run

__all__ = ["MaskedBatch", "MaskedText", "at"]

MIN_ROW_TOKENS = 8  # tokens of a row, at least
FOLLOWS, ELSEWHERE = 0, 1  # the numbers of the published heads
SENTENCE_END = re.compile(r"[.?!。？！\n]")
SCORED = 1 << 13  # tokens that are scored at once


@dataclass(frozen=True)
class MaskedBatch(Batch):
    """Texts with blanks, and the original tokens."""

    tokens: Int[Tensor, "rows length"]
    places: Int[Tensor, "rows asked"]
    targets: Int[Tensor, "rows asked"]
    order: Int[Tensor, " rows"] | None = None
    """Whether the second half of a row follows the first, or is from elsewhere."""
    replaced: Int[Tensor, "rows length"] | None = None
    """Which tokens are replaced, if that is given instead of blanks."""


class MaskedRow(NamedTuple):
    ids: list[int]
    order: int
    """FOLLOWS, ELSEWHERE, or IGNORED where there is no second half."""


class MaskedText(TokenStream[MaskedBatch]):
    """Rows of a long text in which some tokens are masked."""

    hides = True

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        how = run.masking
        if run.data.max_tokens < MIN_ROW_TOKENS:
            raise UserError(f"data.max_tokens={run.data.max_tokens}: {run.task} needs rows of at least "
                            f"{MIN_ROW_TOKENS} tokens")
        if how.mask_share + how.random_share > 1:
            raise UserError(f"masking.mask_share={how.mask_share} and masking.random_share={how.random_share}: "
                            "their sum must be at most 1")
        if how.next_sentence and run.model.embedding.segments < 2:
            raise UserError("masking.next_sentence: two sentences need model.embedding.segments=2, not "
                            f"{run.model.embedding.segments}")
        self._spans: dict[str, NDArray[np.int64]] = {}

    def corpus(self, found: Sequence[Found]) -> Corpus:
        return super().corpus(found) if self.run.data.paths else passages.corpus(self.run.data.built_in_size)

    def _sizes(self) -> Sizes:
        if self.tokens.mask is None:
            raise UserError(f"{self.run.tokens.file or 'tokenizer.json'}: has no mask token, such as [MASK] or "
                            f"<mask>; {self.run.task} needs one")
        return super()._sizes()

    @cached_property
    def masking_policy(self) -> MaskingPolicy:
        return MaskingPolicy.of(self.run.masking, self.tokens)

    # Ids -> rows

    @property
    def _room(self) -> int:
        """Tokens of text in a row, without its start and its end, and the end of its first half."""
        return self.run.data.max_tokens - (3 if self.run.masking.next_sentence else 2)

    @property
    def _is_apart(self) -> bool:
        return self.run.data.documents == "apart" or self.run.masking.next_sentence  # both halves are from one document

    def spans(self, split: str) -> Int[np.ndarray, "rows 2"]:
        """Where the text of each row begins in the split, and how many ids it has."""
        if split not in self._spans:
            ids = self.ids[split]
            if self._is_apart:
                self._spans[split] = _of_documents(ids.parts, self.tokens.start, self.tokens.end, self._room)
            else:
                # A very short rest is dropped.
                firsts = np.arange(0, max(1, len(ids) - MIN_ROW_TOKENS // 2), self._room)
                self._spans[split] = np.stack([firsts, np.minimum(self._room, len(ids) - firsts)], 1)
        return self._spans[split]

    def lengths(self, split: str) -> NDArray[np.int64]:
        counts = self.spans(split)[:, 1]
        # Rows of a text without document ends have one length; the shorter last one gets no shape of its own.
        counts = counts if self._is_apart else np.full_like(counts, counts.max())
        return counts + self.run.data.max_tokens - self._room

    def text(self, split: str, row: int) -> list[int]:
        """Documents in one row are separated by an end token, without a second start token."""
        tokens = self.tokens
        ids: list[int] = self.ids[split].around(*self.spans(split)[row].tolist()).tolist()
        if tokens.start != tokens.end:
            ids = [id for id in ids if id != tokens.start]
        while ids and ids[-1] == tokens.end:
            ids.pop()
        return ids[1:] if ids[:1] == [tokens.end] else ids

    def _row(self, split: str, row: int, random: np.random.Generator) -> MaskedRow:
        tokens, first = self.tokens, self.text(split, row)
        if not self.run.masking.next_sentence or len(first) < 2:
            return MaskedRow([tokens.start, *first, tokens.end], IGNORED)
        first, second = self._halves(first, random)
        order = FOLLOWS
        others = len(self.spans(split)) - 1
        if random.random() < 0.5 and others:
            other = int(random.integers(others))
            found = self.text(split, other + (other >= row))
            second, order = (self._halves(found, random)[1] if len(found) > 1 else found)[: len(second)], ELSEWHERE
        return MaskedRow([tokens.start, *first, tokens.end, *second, tokens.end], order)

    def _halves(self, ids: list[int], random: np.random.Generator) -> tuple[list[int], list[int]]:
        """Cut at the end of a sentence; without one, anywhere."""
        ends = np.flatnonzero(self._ends_sentence[ids[:-1]])
        cut = 1 + int(random.choice(ends) if len(ends) else random.integers(len(ids) - 1))
        return ids[:cut], ids[cut:]

    @cached_property
    def _ends_sentence(self) -> NDArray[np.bool_]:
        return np.array([bool(SENTENCE_END.search(text)) for text in self.masking_policy.words.written])

    # Rows -> batches

    def collate(self, split: str, chosen: BatchSpec) -> MaskedBatch:
        """The blanks of a row are a function of the seed, the row and, with dynamic masking, the epoch."""
        how = self.run.masking
        epoch = 0 if split != "train" else chosen.epoch if how.dynamic else chosen.epoch % how.copies
        whole = np.full((chosen.rows, chosen.length), self.tokens.pad, dtype=np.int64)
        noise = np.zeros((chosen.rows, NOISE, chosen.length))
        orders = np.full(chosen.rows, IGNORED, dtype=np.int64)
        for number, row in enumerate(chosen.indices.tolist()):
            random = np.random.Generator(np.random.PCG64([self.run.seed, epoch, row]))
            ids, orders[number] = self._row(split, row, random)
            whole[number, : len(ids)] = ids
            noise[number, :, : len(ids)] = random.random((NOISE, len(ids)))
        tokens, places, targets = self.masking_policy.hide(whole, noise)
        return self.batch(tokens, places, targets, orders if self.run.masking.next_sentence else None)

    def batch(self, tokens: NDArray[np.int64], places: NDArray[np.int64], targets: NDArray[np.int64],
               orders: NDArray[np.int64] | None = None) -> MaskedBatch:
        asked = int((targets != IGNORED).sum())
        counts = {"loss": asked, "nll": asked}
        if orders is not None:
            counts["order"] = int((orders != IGNORED).sum())
        return MaskedBatch(counts, torch.from_numpy(tokens), torch.from_numpy(places), torch.from_numpy(targets),
                          None if orders is None else torch.from_numpy(orders))

    def segments(self, tokens: Int[Tensor, "rows length"]) -> Int[Tensor, "rows length"]:
        """The second half comes after the first end."""
        ends = tokens == self.tokens.end
        return ((ends.cumsum(1) - ends.long()) > 0).long()

    def scored(self, split: str, limit: int | None, device: torch.device) -> Iterator[MaskedBatch]:
        """The (first `limit`) rows of a split, each once, and always with the same blanks."""
        if split not in self.ids:
            raise no_such_split(split, list(self.ids))
        how, lengths = self.run.train, self.lengths(split)[:limit]
        # At most one piece of a batch: if training fits, so does scoring.
        plan = BatchSampler(lengths, tokens=max(1, min(SCORED, how.batch_tokens // how.accumulate)), seed=0)
        for step in range(plan.steps_per_epoch):
            yield self.collate(split, plan[step]).to(device)

    def nothing_asked(self, split: str) -> UserError:
        return UserError(f"{split}: none of its tokens can be masked: they are all unknown to the tokenizer")

    # Ids -> texts

    def examples(self, split: str, limit: int | None = None) -> list[Example[str]]:
        """Some text of one document from each row. Not for the training text."""
        others = [name for name in self.ids if name != "train"]
        if split not in others:
            raise no_such_split(split, others)
        every = (self._example(split, row) for row in range(len(self.spans(split))))
        found = list(islice((example for example in every if example is not None), limit))
        if not found:
            raise UserError(f"{split}: its text is too short for an example")
        return found

    def _example(self, split: str, row: int) -> Example[str] | None:
        ids = self.text(split, row)
        ids = ids[: ids.index(self.tokens.end)] if self.tokens.end in ids else ids
        texts = self.added(ids[:CONTEXT])
        if len(texts) < 2 or BROKEN in "".join(texts) or not "".join(texts).strip():
            return None
        return self.asked(texts, np.random.Generator(np.random.PCG64([self.run.seed, 0, row])))

    @abstractmethod
    def asked(self, texts: Sequence[str], random: np.random.Generator) -> Example[str] | None:
        """The input and the target for a text of these tokens; None if nothing can be predicted."""

    def added(self, ids: Sequence[int]) -> list[str]:
        """The text that each token adds to those before it."""
        whole = self.tokens.decode([ids[:count] for count in range(len(ids) + 1)])
        return [after[len(before) :] for before, after in pairwise(whole)]

    def rows(self, texts: Sequence[str]) -> list[list[int]]:
        """The user's texts as ids."""
        return rows_of(self.tokens, texts, longest=self.run.data.max_tokens, notes=self.notes)

    def excerpts(self, lengths: Sequence[int]) -> list[list[int]]:
        """Some text of these lengths from the validation set; none if the run has no data."""
        if "val" not in self.ids:
            return []
        rows = len(self.spans("val"))
        return [self.text("val", number * rows // len(lengths))[:length] for number, length in enumerate(lengths)]


def at(states: Float[Tensor, "rows length width"], places: Int[Tensor, "rows asked"]) -> Float[Tensor, "_ width"]:
    """The states at these places, row after row."""
    return states.gather(1, places[..., None].expand(-1, -1, states.shape[2])).flatten(0, 1)


def _of_documents(parts: Sequence[NDArray[np.integer]], start: int, end: int, room: int) -> NDArray[np.int64]:
    """The rows of documents, each cut into as few rows as possible, of similar lengths."""
    before = np.cumsum([0, *map(len, parts)])
    starts = np.concatenate([np.flatnonzero(part == start) + first for part, first in zip(parts, before, strict=False)])
    firsts, ends = starts + 1, np.append(starts[1:], before[-1]) - (start != end)
    firsts, sizes = firsts[ends > firsts], (ends - firsts)[ends > firsts]
    counts = -(-sizes // room)
    each = -(-sizes // counts)
    number = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    offsets = number * np.repeat(each, counts)
    return np.stack([np.repeat(firsts, counts) + offsets,
                     np.minimum(np.repeat(each, counts), np.repeat(sizes, counts) - offsets)], 1)
