"""Prompts and the settings of the search become streams of text: the completions of a decoder."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from regard.data.tokenizer import Tokenizer
from regard.generate.detokenize import Completion, stream_texts
from regard.generate.filters import Filters
from regard.generate.sampler import Sampler, Sampling, padded, sample
from regard.kernels.cuda_graphs import Captures
from regard.models.autoregressive import AutoregressiveDecoder
from regard.settings.schema import Search

__all__ = ["TextGenerator"]

TEMPERATURE = 0.8  # of the drawing, where search.temperature is not set: likely text, and not always the same


class TextGenerator:
    """Completes prompts. It keeps the graphs that were captured on a GPU from one batch to the next."""

    def __init__(self) -> None:
        self.filters = Filters()
        self.captures: Captures[Sampler] = Captures()
        self.spaces: Spaces | None = None

    def generate(
        self, model: AutoregressiveDecoder, prompts: Sequence[Sequence[int]], how: Search, *, tokens: Tokenizer,
        never: Sequence[int], longest: Sequence[int],
    ) -> tuple[list[Completion], Iterator[tuple[int, str]]]:
        """`how.best` answers to each prompt, written while their pieces are asked for: which answer, and what is new.

        `never` are ids that do not come; `longest` is the most tokens that each prompt's answers may have.
        """
        trimmed = [self.trim_last_space(prompt, tokens) for prompt in prompts]
        written = [Completion(lambda ids: tokens.decode([ids])[0], end=tokens.end, longest=most, after=read,
                           known=" " * (len(prompt) - len(read)), stop=how.stop)
                   for prompt, read, most in zip(prompts, trimmed, longest, strict=True) for _ in range(how.best)]
        device, enough = next(model.parameters()).device, set[int]()
        filters = self.filters.of(never=never, vocabulary=model.output.out_features, device=device,
                                  no_repeat_ngram=how.no_repeat_ngram, repetition_penalty=how.repetition_penalty)
        sampling = Sampling(
            end=tokens.end, longest=max(longest), samples=how.best, top_k=how.top_k, top_p=how.top_p, min_p=how.min_p,
            temperature=TEMPERATURE if how.temperature is None else how.temperature, seed=how.seed)
        steps = sample(model, padded(trimmed, device=device), lengths=[*map(len, trimmed)], how=sampling,
                       filters=filters, barred=self._barred(prompts, trimmed, model.output.out_features, device),
                       seeds=prompts, captures=self.captures, enough=enough)
        return written, stream_texts(steps, written, enough=enough)

    def trim_last_space(self, prompt: Sequence[int], tokens: Tokenizer) -> Sequence[int]:
        """The part of a prompt to read: all but a single space at its end, which belongs to the next token."""
        if not tokens.decode([list(prompt)])[0].endswith(" "):
            return prompt
        if self.spaces is None:
            self.spaces = Spaces.of(tokens)
        return prompt[:-1] if self.spaces.ends(prompt) else prompt

    def _barred(self, prompts: Sequence[Sequence[int]], trimmed: Sequence[Sequence[int]], vocabulary: int,
                device: torch.device) -> Bool[Tensor, "prompts vocabulary"] | None:
        """After a prompt without its space, whatever does not begin with one."""
        shorter = torch.tensor([len(prompt) > len(read) for prompt, read in zip(prompts, trimmed, strict=True)])
        if self.spaces is None or not shorter.any():
            return None
        others = torch.ones(vocabulary, dtype=torch.bool)
        others[self.spaces.openers] = False
        return (shorter[:, None] & others).to(device)


@dataclass(frozen=True)
class Spaces:
    """How spaces are spelled. If a word's token includes the space before it, a separate space is rare in training:
    a model continues `def` well, but not `def `."""

    alone: int | None
    """The token that is one space."""
    openers: list[int]
    """Tokens that begin with a space."""
    blank: frozenset[int]
    """Tokens that are nothing but white space, or no text."""

    @classmethod
    def of(cls, tokens: Tokenizer) -> "Spaces":
        anchor = tokens.encode(["a"])[0]
        before, *wholes = tokens.decode([anchor, *([*anchor, id] for id in range(len(tokens)))])
        texts = [whole[len(before) :] for whole in wholes]
        return cls(next((id for id, text in enumerate(texts) if text == " "), None),
                   [id for id, text in enumerate(texts) if text.startswith(" ")],
                   frozenset(id for id, text in enumerate(texts) if not text.strip()))

    def ends(self, prompt: Sequence[int]) -> bool:
        """Whether a prompt ends with a single space after a word."""
        return len(self.openers) > 1 and len(prompt) > 1 and prompt[-1] == self.alone and prompt[-2] not in self.blank
