"""GPT-2 (Radford et al. 2019) as transformers keeps it: `GPT2LMHeadModel`."""

from regard.convert.family import Family, HeadFormat
from regard.convert.keys import Keys
from regard.convert.model_spec import ModelSpec
from regard.convert.rules import Rule, each_layer, linear, norm
from regard.settings.schema import Embedding, Tower

__all__ = ["GPT2"]

KEYS = Keys(
    base=Tower(norm="layer", norm_place="pre", bias=True, positions="learned", embedding=Embedding(scaled=False)),
    renamed={"n_embd": "width", "n_layer": "depth", "n_head": "heads", "n_inner": "ffn_width",
          "n_positions": "max_positions", "layer_norm_epsilon": "norm_epsilon", "resid_pdrop": "dropout",
          "attn_pdrop": "attention_dropout"},
    value_names={"activation_function": ("activation", {"gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh",
                                                  "gelu": "gelu", "relu": "relu", "silu": "silu", "swish": "silu"}),
           "scale_attn_weights": ("score", {True: "scaled-dot", False: "dot"}),
           "tie_word_embeddings": ("tied", {True: "output", False: "none"})},
    must_agree={"embd_pdrop": "resid_pdrop", "n_ctx": "n_positions"},
    fixed={"scale_attn_by_inverse_layer_idx": False, "reorder_and_upcast_attn": False, "add_cross_attention": False},
    defaults={"n_embd": 768, "n_layer": 12, "n_head": 12, "n_inner": None, "n_positions": 1024,
            "layer_norm_epsilon": 1e-5, "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1,
            "activation_function": "gelu_new", "scale_attn_weights": True, "tie_word_embeddings": True},
    ignored=frozenset({"summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels",
                      "summary_first_dropout"}))  # of a head for multiple choice that a language model has not


def rules(spec: ModelSpec) -> list[Rule]:
    """Its matrices are those of a convolution over one token: (in, out), ours turned."""
    tower = spec.canonical
    block = [
        *norm("blocks.{}.self_norm", "transformer.h.{}.ln_1", bias=True),
        *linear("blocks.{}.self.qkv", "transformer.h.{}.attn.c_attn", bias=True, turned=True),
        *linear("blocks.{}.self.out", "transformer.h.{}.attn.c_proj", bias=True, turned=True),
        *norm("blocks.{}.feed_forward_norm", "transformer.h.{}.ln_2", bias=True),
        *linear("blocks.{}.feed_forward.up", "transformer.h.{}.mlp.c_fc", bias=True, turned=True),
        *linear("blocks.{}.feed_forward.down", "transformer.h.{}.mlp.c_proj", bias=True, turned=True),
    ]
    ends = [
        Rule("tokens.table.weight", ("transformer.wte.weight",)),
        Rule("positions.table", ("transformer.wpe.weight",)),
        *norm("norm", "transformer.ln_f", bias=True),
    ]
    output = [Rule("output.weight", ("lm_head.weight",))] if tower.tied == "none" else []
    return [*ends, *each_layer(block, tower.depth), *output]


GPT2 = Family(
    name="gpt2", keys=KEYS, rules=rules, prefix="transformer.",
    heads={"causal-lm": HeadFormat("GPT2LMHeadModel", copies={"lm_head.weight": "transformer.wte.weight"})},
    constants=r"transformer\.h\.\d+\.attn\.(bias|masked_bias)")  # the causal mask, once kept among the weights
