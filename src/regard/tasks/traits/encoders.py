"""The settings that runs of an encoder begin with."""

from dataclasses import replace

from regard.settings.presets import bert_base
from regard.settings.schema import Data, Embedding, Head, Run, Tokens, Train

__all__ = ["of_labels", "of_passages", "small_encoder", "smaller"]

PASSAGE = 64  # tokens of a built-in passage of a few lines


def small_encoder(task: str) -> Run:
    """A small encoder of BERT's making, but with norms before its parts, and so trained without care."""
    return Run(
        task=task,
        model=replace(bert_base(), preset=None, width=256, depth=4, heads=4, norm_place="pre", norm_epsilon=1e-5,
                      positions="rotary", attention_dropout=0.0, embedding=Embedding(scaled=False, segments=2),
                      head=Head(hidden="tanh")),
        train=Train(batch_tokens=4_096, schedule="stable-decay", decay=0.5, warmup=100, weight_decay=0.01, epsilon=1e-8,
                    label_smoothing=0.0))


def of_labels(plain: Run, *, average: int = 1) -> Run:
    """For a person's labelled examples, which are few and soon learnt by heart."""
    return replace(plain, train=replace(
        plain.train, steps=1_500, evaluate_every=100, patience=5, average_checkpoints=average))


def smaller(plain: Run, *, steps: int) -> Run:
    """For the built-in data: two cores of a CPU and a few minutes."""
    return replace(
        plain, data=Data(built_in_size=20_000), tokens=Tokens(vocabulary=4_000),
        model=replace(plain.model, width=128, depth=2, dropout=0.0),
        train=replace(plain.train, steps=steps, learning_rate=3e-3, evaluate_every=50))


def of_passages(plain: Run) -> Run:
    """For built-in passages, each in a row of its own."""
    small = smaller(plain, steps=600)
    return replace(small, data=replace(small.data, max_tokens=PASSAGE, documents="apart"))
