"""Inputs longer than those of training: whether a model can read them, and what that costs."""

from dataclasses import replace

from torch import nn

from regard.look.watch import sites
from regard.settings.errors import UserError
from regard.settings.schema import Run
from regard.tasks.traits import traits_of

__all__ = ["cost_in_words", "operations", "reading"]


def reading(run: Run, tokens: int) -> Run:
    """The run, with inputs of up to this many tokens."""
    trained, model = run.data.max_tokens, run.model
    if traits_of(run.task).reads_any_length:
        raise UserError(f"input_tokens={tokens}: a run of {run.task} reads inputs of any length; leave it out")
    if tokens < trained:
        raise UserError(f"input_tokens={tokens}: the run reads {trained:,} tokens already (data.max_tokens); leave it "
                        "out")
    if model.positions == "learned" and tokens > model.max_positions:
        raise UserError(f"input_tokens={tokens}: the model has learned positions for {model.max_positions:,} tokens "
                        f"(model.max_positions); take {model.max_positions}")
    return replace(run, data=replace(run.data, max_tokens=tokens))


def operations(model: nn.Module, tokens: int, *, window: int | None = None) -> tuple[int, int]:
    """Floating-point operations of reading a text: in the products with the weights, and in attention.

    2 for each parameter and token (Kaplan et al. 2020, 2.1). Every query meets every key that it may see, in two
    products.
    """
    keys = tokens if window is None else min(tokens, 2 * window + 1)
    weights = 2 * tokens * sum(parameter.numel() for parameter in model.parameters())
    return weights, 4 * tokens * keys * sum(attend.heads * attend.width for attend in sites(model).values())


def cost_in_words(model: nn.Module, tokens: int, trained: int, *, window: int | None = None) -> str:
    """The cost of the longest input, compared with the longest of training."""
    weights, attention = operations(model, tokens, window=window)
    whole, before = weights + attention, sum(operations(model, trained, window=window))
    return (f"inputs of up to {tokens:,} tokens are read, and the model was trained on up to {trained:,}. The longest "
            f"takes about {whole:.2g} FLOP, {whole / before:.3g} times as many as one of {trained:,}; "
            f"{attention / whole:.0%} of them are attention's")
