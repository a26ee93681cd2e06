"""writer: how a decoder goes on with prompts, by the settings of the search."""

from collections.abc import Iterator, Sequence

from regard.data.tokenizer import Tokenizer
from regard.generate.capture import Captures
from regard.generate.filters import Filters
from regard.generate.sample import Draws, Sampling, padded, sample
from regard.generate.text import Writing, follow
from regard.models.decoder import Decoder
from regard.settings.schema import Search

__all__ = ["Writer"]

TEMPERATURE = 0.8  # of the drawing, where search.temperature is not set: likely text, and not always the same


class Writer:
    """Keeps what was recorded on a GPU from one batch to the next."""

    def __init__(self) -> None:
        self.filters = Filters()
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
        device, enough = next(model.parameters()).device, set[int]()
        filters = self.filters.of(never=never, vocabulary=model.output.out_features, device=device,
                                  no_repeat=how.no_repeat, repetition_penalty=how.repetition_penalty)
        sampling = Sampling(
            end=tokens.end, longest=max(longest), samples=how.best, top_k=how.top_k, top_p=how.top_p, min_p=how.min_p,
            temperature=TEMPERATURE if how.temperature is None else how.temperature, seed=how.seed)
        steps = sample(model, padded(prompts, device=device), lengths=[*map(len, prompts)], how=sampling,
                       filters=filters, seeds=prompts, captures=self.captures, enough=enough)
        return written, follow(steps, written, enough=enough)
