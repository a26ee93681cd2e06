"""Packing: the text of a split, cut into rows of equal length without regard for where a document ends."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batch import IGNORED, Batch, BatchSpec
from regard.data.builtin import standard_library
from regard.data.dataset import Example, no_such_split
from regard.data.text.token_stream import BROKEN, CONTEXT, TokenStream
from regard.settings.errors import UserError

__all__ = ["WANTED", "PackedBatch", "PackedText"]

WANTED = 8  # tokens of an example to predict


@dataclass(frozen=True)
class PackedBatch(Batch):
    """The input and the target of the decoder: the same row shifted by one."""

    read: Int[Tensor, "rows length"]
    write: Int[Tensor, "rows length"]


class PackedText(TokenStream[PackedBatch]):
    """Rows of equal length, cut from the text of a split without padding."""

    def built_in_files(self) -> list[Path]:
        return standard_library.files(self.run.data.built_in_size)

    # Ids -> rows

    def lengths(self, split: str) -> NDArray[np.int64]:
        whole, length = len(self.ids[split]), self.row_length(split)
        return np.full(-(-whole // length), length)

    def row_length(self, split: str) -> int:
        """The length of a row; a shorter text is one shorter row."""
        return min(self.run.data.max_tokens, len(self.ids[split]))

    def collate(self, split: str, chosen: BatchSpec) -> PackedBatch:
        """Rows of the split, which is a ring. The last row wraps around; the wrapped part does not count."""
        ids, length = self.ids[split], self.row_length(split)
        first = self._offset(chosen.epoch, length)
        whole = np.full((chosen.rows, chosen.length + 1), self.tokens.start, dtype=np.int64)
        write = np.full((chosen.rows, chosen.length), IGNORED, dtype=np.int64)
        for row, index in enumerate(chosen.indices.tolist()):
            whole[row, : length + 1] = ids.around(first + index * length, length + 1)
            once = min(length, len(ids) - index * length)
            write[row, :once] = whole[row, 1 : once + 1]
        if self.tokens.start != self.tokens.end:
            write[write == self.tokens.start] = IGNORED  # a start always follows an end: nothing to predict
        count = int((write != IGNORED).sum())
        return PackedBatch({"loss": count, "nll": count}, torch.from_numpy(whole[:, :-1].copy()),
                           torch.from_numpy(write))

    def _offset(self, epoch: int, length: int) -> int:
        """The place where the first row of an epoch begins: first 0, then another one in each epoch."""
        order = np.random.default_rng(self.run.seed).permutation(length)
        return int(order[epoch % length] - order[0]) % length

    # Ids -> texts

    def examples(self, split: str, limit: int | None = None) -> list[Example[str]]:
        """Some text from the beginning of each row, and its continuation. Not for the training text."""
        others = [name for name in self.ids if name != "train"]
        if split not in others:
            raise no_such_split(split, others)
        every = (self._example(split, place) for place in range(0, len(self.ids[split]), self.row_length(split)))
        found = list(itertools.islice((example for example in every if example is not None), limit))
        if not found:
            raise UserError(f"{split}: its text is too short for an example")
        return found

    def _example(self, split: str, place: int) -> Example[str] | None:
        """An example from one document; None if it ends there, or a character would be split."""
        ids = self.ids[split].around(place, CONTEXT + WANTED).tolist()
        ends = [i for i, id in enumerate(ids) if id in (self.tokens.start, self.tokens.end)]
        begin = max((i + 1 for i in ends if i < CONTEXT), default=0)
        end = min((i for i in ends if i >= CONTEXT), default=len(ids))
        text, wanted = self.tokens.decode([ids[begin:CONTEXT]])[0], self.added(ids[begin:CONTEXT], ids[CONTEXT:end])
        is_whole = text.strip() and wanted.strip() and BROKEN not in text + wanted
        return Example(text, wanted) if is_whole else None

    def added(self, before: Sequence[int], new: Sequence[int]) -> str:
        """The text that new tokens add: decoded separately, they might lose a space at their beginning."""
        text, whole = self.tokens.decode([list(before), [*before, *new]])
        return whole[len(text) :]
