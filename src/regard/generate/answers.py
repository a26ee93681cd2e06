"""Answers: how a model answers the inputs that it has read, by the settings of the search."""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.data.tokenizer import Tokenizer
from regard.generate.beam import Beam, Hypothesis, beam
from regard.generate.beam import Search as BeamSearch
from regard.generate.filters import Filters
from regard.generate.sampler import Sampler, Sampling, gather, sample
from regard.generate.search_memory import refuse_search
from regard.kernels.cuda_graphs import Captures, weights_key
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.mixed import MixedDecoder, MixedPrompt
from regard.nn.attention import Memory
from regard.nn.mask import Mask
from regard.settings.schema import Search, Tower

__all__ = ["Answers", "never"]


class Answers:
    """By a beam search, or drawn. It keeps what was recorded on a GPU from one batch to the next."""

    def __init__(self) -> None:
        self.filters = Filters()
        self.captures: Captures[BeamSearch] = Captures()
        self.draws: Captures[Sampler] = Captures()

    def read(self, model: EncoderDecoder, inputs: Tensor, real: Tensor | None = None) -> Memory:
        """The memory of inputs; `real` marks the places that are not padding."""
        if real is None:
            return Memory(self.captures.call(lambda inputs: model.encode(inputs).states, inputs,
                                             key=weights_key(model)))
        states = self.captures.call(lambda inputs, real: model.encode(inputs, Mask(keys=real)).states, inputs, real,
                                    key=weights_key(model))
        return Memory(states, Mask(keys=real))

    @torch.no_grad()
    def find(self, model: EncoderDecoder | MixedDecoder, memory: Memory | MixedPrompt, how: Search, *,
             tokens: Tokenizer, longest: int, seeds: Sequence[Sequence[int]]) -> list[list[Hypothesis]]:
        """`how.best` answers to each input or more, the best first, each of up to `longest` tokens.

        `seeds` has a few numbers for each input, by which its answers are drawn.
        """
        rows, size, device = len(memory.states), model.decoder.output.out_features, memory.states.device
        filters = self.filters.of(never=never(tokens, size), vocabulary=size, device=device,
                                  no_repeat_ngram=how.no_repeat_ngram, repetition_penalty=how.repetition_penalty)
        prompt = torch.full((rows, 1), tokens.start, device=device)
        if how.temperature is None:
            return beam(model, prompt, memory=memory, filters=filters, captures=self.captures, how=Beam(
                end=tokens.end, longest=longest, size=max(how.beam, how.best), length_penalty=how.length_penalty))
        drawn = gather(sample(
            model, prompt, memory=memory, filters=filters, captures=self.draws, seeds=seeds, how=Sampling(
                end=tokens.end, longest=longest, samples=how.best, temperature=how.temperature, top_k=how.top_k,
                top_p=how.top_p, min_p=how.min_p, seed=how.seed)), end=tokens.end)
        return [drawn[first : first + how.best] for first in range(0, len(drawn), how.best)]

    def refuse(self, model: EncoderDecoder | MixedDecoder, tower: Tower, how: Search, *, rows: int, tokens: int,
               longest: int) -> None:
        """Refuse answers to these rows if they cannot fit into memory; `tokens` is their least length."""
        count = how.best if how.temperature is not None else max(how.beam, how.best)
        weight = next(model.parameters())
        refuse_search(how, tower, rows=rows * count, tokens=tokens, longest=longest, width=weight.dtype,
                      device=weight.device)


def never(tokens: Tokenizer, vocabulary: int) -> list[int]:
    """The ids that must not occur in an answer."""
    return [tokens.pad, tokens.start, *range(len(tokens), vocabulary)]
