"""Task: the interface between the verbs and everything that a model can be trained for."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.check.probe import Probe
from regard.data.batch import Batch
from regard.data.dataset import Dataset, Example, Sizes
from regard.data.notes import Notes
from regard.data.reader import Reader
from regard.data.tokenizer import Tokenizer
from regard.generate.beam import Hypothesis
from regard.generate.detokenize import cut_at_stop
from regard.look.axes import AxisPair
from regard.look.choices import Choice, Output
from regard.look.confusion import Confusion
from regard.look.metrics import Scores
from regard.look.outputs import records
from regard.look.record import Record
from regard.look.watch import Seen, watch
from regard.settings.consistency import check_decoder
from regard.settings.errors import NotFinite, UserError
from regard.settings.schema import Run, Search, Tower, Train
from regard.settings.setting import of, written
from regard.tasks.traits import traits_of

__all__ = ["Answer", "Example", "Likelihood", "Loss", "Scores", "Sizes", "Task", "Term",
           "answer_of", "attention_terms", "loss_per_token", "refuse_none"]

Input = TypeVar("Input")
B = TypeVar("B", bound=Batch)


@dataclass(frozen=True)
class Term:
    """One summand of a loss: a *sum* over the batch, to be divided by the count of the same name over all of it.

    Sums, because averages of averages are wrong under accumulation, padding and data parallelism.
    A weight of 0 is only reported.
    """

    name: str
    total: Tensor
    weight: float = 1.0


Loss = tuple[Term, ...]


def attention_terms(sums: Mapping[str, Tensor], how: Train) -> Loss:
    """The sums that attention adds to the loss of each token (`AutoregressiveDecoder.with_terms`)."""
    weights = {"coverage": how.coverage, "reinforce": how.reinforce.weight, "entropy": how.reinforce.entropy}
    return tuple(Term("loss", total, weight=weights[name]) for name, total in sums.items())


@dataclass(frozen=True)
class Answer:
    """The answer of a model to one input, with its log-probability per token, and its next best answers.

    If it answers each place of the input separately, `choices` has the alternatives there.
    """

    text: str
    score: float | None = None
    others: "tuple[Answer, ...]" = ()
    probabilities: Mapping[str, float] | None = None
    """The probability of each possible label, the most likely first, if the answers are labels."""
    choices: tuple[Choice, ...] = ()
    """The likely answers at each place, for tasks that answer places."""


def answer_of(hypotheses: Sequence[Hypothesis], tokens: Tokenizer, how: Search) -> Answer:
    """The best of them, with the others that were asked for."""
    found = refuse_none(hypotheses)[: how.best]
    texts = tokens.decode([hypothesis.tokens for hypothesis in found])
    first, *others = (Answer(cut_at_stop(text, how.stop), each.score) for text, each in zip(texts, found, strict=True))
    return replace(first, others=tuple(others))


def refuse_none(hypotheses: Sequence[Hypothesis]) -> Sequence[Hypothesis]:
    """A search has no answer only if no token has a probability."""
    if not hypotheses:
        raise NotFinite("the model's probabilities are not finite; train it again")
    return hypotheses


@dataclass(frozen=True)
class Likelihood:
    """The log-probability of each token of a text, given the tokens before it."""

    tokens: tuple[str, ...]
    log_probabilities: tuple[float, ...]
    bytes: int

    @property
    def total(self) -> float:
        return math.fsum(self.log_probabilities)

    @property
    def bits_per_byte(self) -> float:
        return abs(self.total) / math.log(2) / max(1, self.bytes)


class Task(ABC, Generic[Input, B]):
    """One job, for one run: its data, the model, the loss and the answers.

    The verbs know no task by its name: they only call these methods. A task has its `data` and its reader of `inputs`,
    and defines `build`, `loss`, `predict`, `batches` and `probe`. All other methods have a default, which a task
    overrides if it can do more.

    Several threads may use one task at once. `search` holds the settings of the search; absent, the run's. It is an
    argument and never stored, so that no call sees the settings of another.
    """

    data: Dataset[Input, B]
    inputs: Reader[Input]

    focus = "*"
    """The attentions from an output to its input, as a pattern for `only` of `look`."""

    counted = "tokens"
    """The unit that its loss counts."""

    acting = "*"
    """The attentions that are used for answers: others may only be used in training."""

    streams = False
    """Whether its answers continue their input, and are streamed."""

    def __init__(self, run: Run) -> None:
        traits = traits_of(run.task)
        if not traits.encoder_only:
            _refuse_encoder_settings(run)
            check_decoder(run, has_memory=not traits.decoder_only)
        elif (bptt := of(run, "model.recurrent.bptt")) is not None:
            raise UserError(f"model.recurrent.bptt={bptt}: only a language model uses this, and {run.task} "
                            "trains none; remove it")
        is_text = run.model.image is None
        if is_text and run.model.positions == "learned" and run.model.max_positions < run.data.max_tokens:
            raise UserError(f"model.max_positions={run.model.max_positions}: a learned table of positions must reach "
                            f"data.max_tokens={run.data.max_tokens}; raise the first or lower the second")

    @property
    def run(self) -> Run:
        return self.data.run

    @run.setter
    def run(self, run: Run) -> None:
        self.data.run = run

    @property
    def notes(self) -> Notes:
        """Notes for the user about the data and the answers."""
        return self.data.notes

    # The methods that every task must define.

    @abstractmethod
    def build(self, sizes: Sizes) -> nn.Module:
        """The model, its parameters not yet initialised."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: B) -> Loss: ...

    @abstractmethod
    def predict(self, model: nn.Module, inputs: Sequence[Input], *, search: Search | None = None) -> list[Answer]:
        """An answer to each input, in order."""

    @abstractmethod
    def batches(self, inputs: Sequence[Input], outputs: Sequence[str]) -> Iterator[B]:
        """Inputs with given outputs, in batches of similar lengths. They count the tokens of the outputs."""

    @abstractmethod
    def probe(self, model: nn.Module) -> Probe:
        """The model and some of its examples, ready to be checked."""

    # Methods with a default.

    def score(self, model: nn.Module, split: str, *, limit: int | None = None,
              search: Search | None = None) -> Scores:
        """The scores of the model on the (first `limit`) examples of a split: by default, the accuracy."""
        examples = self.data.examples(split, limit)
        answers = self.greedy_answers(model, examples, search=search)
        right = sum(answer == example.wanted for answer, example in zip(answers, examples, strict=True))
        return {"accuracy": right / max(1, len(examples)), "examples": len(examples)}

    def greedy_answers(self, model: nn.Module, examples: Sequence[Example[Input]], *,
                       search: Search | None = None) -> list[str]:
        """An answer to each example; it is right if it equals the example's target."""
        return [answer.text for answer in self.predict(model, [one.input for one in examples], search=search)]

    def matches_greedy(self, model: nn.Module, batch: B) -> Bool[Tensor, "rows places"]:
        """Which tokens of the outputs equal those of a greedy search. False where there is no output."""
        raise UserError(f"a run of {self.run.task} cannot compare its answers with greedy ones")

    def output_rows(self, batch: B, rows: int) -> Sequence[int]:
        """The rows of a record that belong to the output of one example: all if a model only reads."""
        return range(rows)

    def axes(self, batch: B, seen: Seen) -> list[Mapping[str, AxisPair]]:
        """The axes of each attention, for each row of a batch, without its padding.

        By default they are numbers of places. A task whose `look` names tokens does not need it.
        """
        def numbered(site: str) -> AxisPair:
            targets, sources = (tuple(map(str, range(size))) for size in seen[site].shape[2:])
            return AxisPair(targets, sources)

        rows = len(next(iter(seen.values()))) if seen else 0
        return [{site: numbered(site) for site in seen} for _ in range(rows)]

    @torch.no_grad()
    def look(self, model: nn.Module, inputs: Sequence[Input], outputs: Sequence[str] | None = None, *,
             only: str | Sequence[str] = "*", heads: Sequence[int] | None = None,
             search: Search | None = None) -> list[Record]:
        """The attention of the model for these outputs, or without any for its own answers.

        The answers are computed at full speed; then one more pass over them records the weights.
        """
        if outputs is None:
            outputs = [answer.text for answer in self.predict(model, inputs, search=search)]
        device, found = next(model.parameters()).device, list[Record]()
        for given, output in zip(inputs, outputs, strict=True):
            for batch in self.batches([given], [output]):
                with watch(model, only, heads=heads) as seen:
                    self.loss(model, batch.to(device))
                found += records(seen, self.axes(batch, seen))
        return found

    def choices(self, model: nn.Module, inputs: Sequence[Input], outputs: Sequence[str] | None = None, *,
                best: int = 5, search: Search | None = None) -> list[Output]:
        """These outputs, or without any the model's own answers, with the most likely tokens at each place."""
        told = outputs or [answer.text for answer in self.predict(model, inputs, search=search)]
        return [Output(text, ()) for text in told]

    def stream(self, model: nn.Module, given: Input, *, search: Search | None = None) -> Iterator[tuple[int, str]]:
        """The answers to one input as a stream: the number of the answer, and its next piece of text."""
        answer = self.predict(model, [given], search=search)[0]
        return enumerate(each.text for each in (answer, *answer.others))

    def confusion(self, model: nn.Module, split: str, *, limit: int | None = None) -> Confusion | None:
        """The confusion matrix, if an answer is one of a few labels."""
        return None

    def likelihoods(self, model: nn.Module, texts: Sequence[str]) -> list[Likelihood]:
        """The log-probabilities of each text."""
        raise self._is_no_language_model()

    def compare(self, model: nn.Module, prompts: Sequence[str],
                endings: Sequence[str]) -> Float[np.ndarray, "prompts endings"]:
        """The log-probability of each ending after each prompt, up to a constant that all endings of a prompt share."""
        raise self._is_no_language_model()

    def embed(self, model: nn.Module, inputs: Sequence[Input]) -> Float[np.ndarray, "inputs width"]:
        """A vector for each input."""
        raise UserError(f"a run of {self.run.task} has no vectors of texts; only an encoder has them")

    def _is_no_language_model(self) -> UserError:
        return UserError(f"a run of {self.run.task} has no log-probabilities of texts; only a language model has them")


@torch.no_grad()
def loss_per_token(task: Task[Input, B], model: nn.Module, batches: Iterable[B]) -> float:
    """The mean negative log-probability of the tokens that the batches count."""
    device, total, count = next(model.parameters()).device, 0.0, 0
    for batch in batches:
        total += sum(float(term.total) for term in task.loss(model, batch.to(device)) if term.name == "nll")
        count += batch.counts["nll"]
    return total / max(1, count)


def _refuse_encoder_settings(run: Run) -> None:
    """Refuse settings of encoders for models that would ignore them."""
    plain, tower = Tower(), run.model
    for name in ("embedding.segments", "embedding.norm", "embedding.width", "global_projections"):
        if (value := of(tower, name)) != of(plain, name):
            raise UserError(f"model.{name}={written(value)}: only an encoder uses this, and {run.task} "
                            "trains none; remove it")
