"""writer: how a decoder goes on with prompts, by the settings of the search."""

import hashlib
from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from regard.data.tokenizer import Tokenizer
from regard.generate.capture import Captures
from regard.generate.filters import Filter, Forbid, NoRepeat, PenalizeRepeats
from regard.generate.sample import Draws, Sampling, padded, sample
from regard.generate.text import Writing, follow
from regard.models.decoder import Decoder
from regard.settings.schema import Search

__all__ = ["Writer"]

TEMPERATURE = 0.8  # of the drawing, where search.temperature is not set: likely text, and not always the same


class Writer:
    """Keeps what was recorded on a GPU from one batch to the next."""

    def __init__(self) -> None:
        self.filters: dict[Hashable, tuple[Filter, ...]] = {}
        self.captures: Captures[Draws] = Captures()

    def write(
        self, model: Decoder, prompts: Sequence[Sequence[int]], how: Search, *, tokens: Tokenizer,
        never: Sequence[int], longest: Sequence[int],
    ) -> tuple[list[Writing], Iterator[tuple[int, str]]]:
        """`how.best` answers to each prompt, written while their pieces are asked for: which answer, and what is new.

        `never` are ids that do not come; `longest` is the most tokens that each prompt's answers may have.
        """
        written = [Writing(lambda ids: tokens.decode([ids])[0], end=tokens.end, longest=most, after=prompt,
                           stop=how.stop)
                   for prompt, most in zip(prompts, longest, strict=True) for _ in range(how.best)]
        enough: set[int] = set()
        sampling = Sampling(
            end=tokens.end, longest=max(longest), samples=how.best, top_k=how.top_k, top_p=how.top_p, min_p=how.min_p,
            temperature=TEMPERATURE if how.temperature is None else how.temperature, seed=how.seed)
        steps = sample(model, padded(prompts, device=next(model.parameters()).device), lengths=[*map(len, prompts)],
                       how=sampling, filters=self._filters(model, how, tuple(never)), captures=self.captures,
                       seeds=[[_checksum(prompt)] for prompt in prompts], enough=enough)
        return written, follow(steps, written, enough=enough)

    def _filters(self, model: Decoder, how: Search, never: tuple[int, ...]) -> tuple[Filter, ...]:
        """The same objects for every batch: a recorded step goes on reading their tensors."""
        vocabulary, device = model.output.out_features, next(model.parameters()).device
        key = (vocabulary, device, never, how.no_repeat, how.repetition_penalty)
        if key not in self.filters:
            filters: list[Filter] = [Forbid(never, vocabulary=vocabulary, device=device)] if never else []
            filters += [] if how.no_repeat is None else [NoRepeat(how.no_repeat)]
            filters += [] if how.repetition_penalty == 1 else [PenalizeRepeats(how.repetition_penalty)]
            self.filters[key] = tuple(filters)
        return self.filters[key]


def _checksum(prompt: Sequence[int]) -> int:
    """Other prompts have others: what is drawn for one tells nothing about the next."""
    ids = np.array(prompt, dtype=np.int64).tobytes()
    return int.from_bytes(hashlib.blake2b(ids, digest_size=16).digest(), "little")
