"""DistilBERT (Sanh et al. 2019) as transformers keeps it: BERT without segments, by names of its own."""

from regard.convert import bert
from regard.convert.family import Family, HeadFormat
from regard.convert.keys import Keys
from regard.convert.model_spec import ModelSpec
from regard.convert.rules import Rule, each_layer, linear, norm
from regard.settings.schema import Embedding, Tower

__all__ = ["DISTILBERT"]

KEYS = Keys(
    base=Tower(norm="layer", norm_place="post", norm_epsilon=1e-12, bias=True, positions="learned",
               tied="output", embedding=Embedding(scaled=False, norm=True)),
    renamed={"dim": "width", "n_layers": "depth", "n_heads": "heads", "hidden_dim": "ffn_width",
          "max_position_embeddings": "max_positions", "dropout": "dropout", "attention_dropout": "attention_dropout"},
    value_names={"activation": ("activation", bert.ACTIVATIONS)},
    must_agree={},
    fixed={"tie_word_embeddings": True},
    defaults={"dim": 768, "n_layers": 6, "n_heads": 12, "hidden_dim": 3072, "max_position_embeddings": 512,
            "dropout": 0.1, "attention_dropout": 0.1, "activation": "gelu"},
    # The positions are in the file, whatever they began as.
    ignored=bert.IGNORED_KEYS | {"qa_dropout", "seq_classif_dropout", "sinusoidal_pos_embds", "tie_weights_"})


def rules(spec: ModelSpec) -> list[Rule]:
    tower, start = spec.canonical, bert.own(spec, "distilbert.")
    layer, block = start + "transformer.layer.{}.", "encoder.blocks.{}."
    each = [
        *linear(f"{block}self.qkv", f"{layer}attention.q_lin", f"{layer}attention.k_lin", f"{layer}attention.v_lin",
                rows=(tower.width,) * 3, bias=True),
        *linear(f"{block}self.out", f"{layer}attention.out_lin", bias=True),
        *norm(f"{block}self_norm", f"{layer}sa_layer_norm", bias=True),
        *linear(f"{block}feed_forward.up", f"{layer}ffn.lin1", bias=True),
        *linear(f"{block}feed_forward.down", f"{layer}ffn.lin2", bias=True),
        *norm(f"{block}feed_forward_norm", f"{layer}output_layer_norm", bias=True),
    ]
    inputs = [
        Rule("encoder.inputs.tokens.table.weight", (f"{start}embeddings.word_embeddings.weight",)),
        Rule("encoder.inputs.positions.table", (f"{start}embeddings.position_embeddings.weight",)),
        *norm("encoder.inputs.norm", f"{start}embeddings.LayerNorm", bias=True),
    ]
    labels = linear("head.output", "classifier", bias=True)
    heads = {
        "backbone": [],
        "masked-lm": [*linear("words.hidden", "vocab_transform", bias=True),
                 *norm("words.norm", "vocab_layer_norm", bias=True),
                 Rule("words.output.bias", ("vocab_projector.bias",))],
        "sequence-labels": [*linear("head.hidden", "pre_classifier", bias=True), *labels],
        "token-labels": labels,
    }
    return [*inputs, *each_layer(each, tower.depth), *heads[spec.kind]]


DISTILBERT = Family(
    name="distilbert", preset="distilbert", keys=KEYS, rules=rules, prefix="distilbert.",
    outside=("vocab_", "pre_classifier.", "classifier."), constants=bert.CONSTANTS,
    heads={
        "backbone": HeadFormat("DistilBertModel", has={"head.hidden": ("none",)}),
        "masked-lm": HeadFormat("DistilBertForMaskedLM", has={"activation": ("gelu",)},
                     copies={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"}),
        "sequence-labels": HeadFormat("DistilBertForSequenceClassification",
                         has={"head.hidden": ("relu",), "head.pool": ("first",)}),
        "token-labels": HeadFormat("DistilBertForTokenClassification"),
    })
