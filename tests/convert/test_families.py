"""With the same weights, transformers' GPT-2, Llama and Qwen3 give our logits; what we do not have is refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from towers import VOCABULARY, WRITERS, close, language, logits, shaken, towers

from regard.checkpoint import load_weights, named_tensors
from regard.convert.families import FAMILIES, family_named
from regard.models.decoder import Decoder
from regard.settings.errors import UserError

transformers = pytest.importorskip("transformers")
families = pytest.mark.parametrize("name", WRITERS)
SMALL: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 20, "n_layer": 2, "n_head": 5, "n_inner": 33, "n_positions": 17},
    "llama": {"hidden_size": 24, "intermediate_size": 37, "num_hidden_layers": 2, "num_attention_heads": 6,
              "num_key_value_heads": 2, "max_position_embeddings": 17},
}
SMALL["qwen3"] = SMALL["llama"] | {"head_dim": 8}
IDS = {"bos_token_id": 1, "eos_token_id": 2, "vocab_size": VOCABULARY}


def peer(name: str, **config: Any) -> Any:
    """transformers' own, with random weights."""
    there = transformers.AutoConfig.for_model(name, **IDS | SMALL[name] | config)
    return shaken(transformers.AutoModelForCausalLM.from_config(there))


def here(theirs: nn.Module, kind: torch.dtype = torch.float32) -> Decoder:
    """A model of transformers as one of ours, out of tensors of this kind."""
    config = theirs.config.to_dict()
    family = family_named(config["model_type"], origin="config.json")
    tower = family.tower(config, origin="config.json")
    tensors = {name: tensor.to(kind) for name, tensor in theirs.state_dict().items()}
    shape = language(tower, config["vocab_size"])
    weights = family.weights(family.named(tensors, "causal-lm"), shape, origin="there")
    model = Decoder(tower, vocabulary=config["vocab_size"]).eval()
    load_weights(model, family.table(shape).ours(weights, origin="there"), origin="there")
    return model


def tokens() -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (2, 8))


@pytest.mark.parametrize(("name", "config"), [
    ("gpt2", {}), ("gpt2", {"tie_word_embeddings": False, "n_inner": None}),
    ("gpt2", {"activation_function": "gelu"}), ("gpt2", {"activation_function": "relu"}),
    ("gpt2", {"scale_attn_weights": False, "layer_norm_epsilon": 1e-3}),
    ("llama", {}), ("llama", {"tie_word_embeddings": True, "num_key_value_heads": 6}),
    ("llama", {"num_key_value_heads": 1, "head_dim": 10, "attention_bias": True, "mlp_bias": True}),
    ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 123.0}, "rms_norm_eps": 1e-3}),
    ("llama", {"hidden_act": "gelu"}), ("qwen3", {}), ("qwen3", {"rms_norm_eps": 0.1}),
    ("qwen3", {"tie_word_embeddings": True, "head_dim": 10}),
])
@torch.no_grad()
def test_what_transformers_made_gives_the_same_logits_here(name: str, config: dict[str, Any]) -> None:
    theirs, ids = peer(name, **config), tokens()
    close(logits(here(theirs), ids), theirs(ids).logits)


@families
@settings(max_examples=10)
@given(data=st.data())
@torch.no_grad()
def test_what_was_made_here_gives_the_same_logits_there(name: str, data: st.DataObject) -> None:
    tower, family = data.draw(towers(name)), FAMILIES[name]
    model, ids = shaken(Decoder(tower, vocabulary=VOCABULARY)), tokens()
    config = transformers.AutoConfig.for_model(**family.config(language(tower)) | IDS)
    theirs = transformers.AutoModelForCausalLM.from_config(config).eval()
    weights = family.table(language(tower)).theirs(named_tensors(model))
    unfilled = theirs.load_state_dict(dict(weights), strict=False)
    tied = [] if tower.tied == "none" else ["lm_head.weight"]
    assert (unfilled.missing_keys, unfilled.unexpected_keys) == (tied, [])
    theirs.tie_weights()
    close(theirs(ids).logits, logits(model, ids))


@families
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
@torch.no_grad()
def test_short_numbers_are_read_as_they_are(name: str, kind: torch.dtype) -> None:
    theirs, ids = peer(name), tokens()
    for parameter in theirs.parameters():
        parameter.copy_(parameter.to(kind))
    close(logits(here(theirs, kind), ids), theirs(ids).logits)


def test_openais_own_files_name_no_transformer_and_keep_the_mask() -> None:
    theirs = peer("gpt2")
    family, tensors = FAMILIES["gpt2"], dict(theirs.transformer.state_dict())
    for layer in range(2):
        tensors[f"h.{layer}.attn.bias"] = torch.ones(1, 1, 17, 17).tril()
    tower = family.tower(theirs.config.to_dict(), origin="config.json")
    weights = family.weights(family.named(tensors, "causal-lm"), language(tower), origin="there")
    found = family.table(language(tower)).ours(weights, origin="there")
    assert torch.equal(found["tokens.table.weight"], theirs.lm_head.weight)


def test_an_output_that_is_tied_in_words_alone_is_refused() -> None:
    family, theirs = FAMILIES["gpt2"], peer("gpt2", tie_word_embeddings=False)
    tower = family.tower(theirs.config.to_dict() | {"tie_word_embeddings": True}, origin="config.json")
    with pytest.raises(UserError, match=r"lm_head.weight is not transformer.wte.weight, but .*tie_word_embeddings"):
        family.weights(theirs.state_dict(), language(tower), origin="there")


@pytest.mark.parametrize(("name", "config", "said"), [
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "idx=true: regard only supports false"),
    ("gpt2", {"reorder_and_upcast_attn": True}, "reorder_and_upcast_attn=true"),
    ("gpt2", {"add_cross_attention": True}, "add_cross_attention=true"),
    ("gpt2", {"activation_function": "mish"}, "activation_function='mish': regard has 'gelu_new'"),
    ("gpt2", {"embd_pdrop": 0.2}, "embd_pdrop=0.2: resid_pdrop is 0.1, and regard has one setting for both"),
    ("gpt2", {"n_head": 7}, "7 heads do not divide"), ("gpt2", {"n_layer": 0}, "n_layer=0: must be a whole number"),
    ("gpt2", {"n_embd": "20"}, "n_embd='20': must be a whole number"),
    ("gpt2", {"quantization_config": {"bits": 4}}, "quantization_config=a table: regard does not know it"),
    ("llama", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "factor=2.0: regard does not know it"),
    ("llama", {"rope_parameters": {"rope_type": "dynamic"}}, "rope_type='dynamic': regard only supports 'default'"),
    ("llama", {"attention_bias": True}, "mlp_bias=false: attention_bias is true"),
    ("llama", {"hidden_act": "gelu_pytorch_tanh"}, "hidden_act='gelu_pytorch_tanh': regard has 'silu'"),
    ("llama", {"pretraining_tp": 2}, "pretraining_tp=2"), ("llama", {"sliding_window": 4}, "sliding_window=4"),
    ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5"),
    ("qwen3", {"use_sliding_window": True}, "use_sliding_window=true"),
    ("qwen3", {"layer_types": ["full_attention", "sliding_attention"]}, "layer_types=a list"),
    ("qwen3", {"attention_bias": True}, "attention_bias=true: regard only supports false"),
    ("llama", {"hidden_act": ["silu"]}, "hidden_act=a list"), ("llama", {"rope_theta": 1}, "rope_theta=1: must be"),
])
def test_what_a_config_asks_for_and_we_have_not_is_refused(name: str, config: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as caught:
        FAMILIES[name].tower(SMALL[name] | config, origin="config.json")
    assert str(caught.value).startswith("config.json: ")
    assert said in str(caught.value)


@families
@settings(max_examples=120)
@given(key=st.text(max_size=5) | st.sampled_from([*SMALL["gpt2"], *SMALL["llama"], "rope_parameters", "hidden_act"]),
       value=st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
                          lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner,
                                                                                      max_size=2)))
def test_any_config_is_read_or_refused(name: str, key: str, value: object) -> None:
    said = ""
    try:
        FAMILIES[name].tower(SMALL[name] | {key: value}, origin="config.json")
    except UserError as error:
        said = str(error)
    assert not said or said.startswith("config.json: ")


@pytest.mark.parametrize(("said", "hint"), [
    ("lama", "did you mean llama"), ("t5", "regard knows gpt2, llama, qwen3, bert"), (None, "regard knows"),
    (3, "regard knows")])
def test_an_unknown_family_is_refused(said: object, hint: str) -> None:
    with pytest.raises(UserError, match=hint):
        family_named(said, origin=str(Path("config.json")))
