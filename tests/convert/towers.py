"""Decoders of the known families, of all shapes that the tests can think of."""

from dataclasses import replace
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from regard.convert.families import FAMILIES
from regard.convert.model_spec import ModelSpec
from regard.models.decoder import Decoder
from regard.settings.schema import Tower

VOCABULARY = 53
WRITERS = ("gpt2", "llama", "qwen3")


def language(tower: Tower, vocabulary: int = VOCABULARY) -> ModelSpec:
    return ModelSpec(tower=tower, vocabulary=vocabulary)


@st.composite
def towers(draw: st.DrawFn, family: str) -> Tower:
    """Odd sizes, every word the family has for a setting."""
    keys, heads = FAMILIES[family].keys, draw(st.integers(1, 4))
    drawn: dict[str, Any] = {name: draw(st.sampled_from(sorted({*words.values()})))
                             for name, words in keys.value_names.values()}
    drawn |= {"heads": heads, "width": heads * draw(st.integers(1, 5)) * 2, "depth": draw(st.integers(1, 3)),
              "ffn_width": draw(st.none() | st.integers(1, 21)), "max_positions": draw(st.integers(8, 40)),
              "dropout": 0.0, "norm_epsilon": draw(st.sampled_from([1e-5, 1e-6])),
              "attention_dropout": draw(st.sampled_from([0.0, 0.1]))}
    if family != "gpt2":
        groups = [groups for groups in range(1, heads + 1) if heads % groups == 0]
        drawn |= {"kv_heads": draw(st.none() | st.sampled_from(groups)),
                  "head_width": draw(st.none() | st.sampled_from([2, 6, 10])),
                  "position_base": draw(st.sampled_from([100.0, 10_000.0, 500_000.0]))}
    if family == "llama":
        drawn |= {"bias": draw(st.booleans())}
    return replace(keys.base, **drawn)


def shaken(model: nn.Module) -> nn.Module:
    """With weights, biases and norms of every size: a default of 0 or 1 hides what was not copied."""
    for name, parameter in model.named_parameters():
        is_norm = parameter.ndim == 1 and name.endswith("weight")
        nn.init.normal_(parameter, mean=1.0 if is_norm else 0.0, std=0.3)
    return model.eval()


@torch.no_grad()
def logits(model: Decoder, ids: Tensor) -> Tensor:
    return model.logits(model(model.embed(ids)))


def close(a: Tensor, b: Tensor) -> None:
    assert (a - b).abs().max() <= 1e-5 * b.abs().max()
