"""BERT (Devlin et al. 2019) as transformers keeps it; RoBERTa, ELECTRA and Longformer have the same body."""

from regard.convert.family import Family, HeadFormat
from regard.convert.keys import Keys
from regard.convert.model_spec import ModelSpec
from regard.convert.rules import Rule, each_layer, linear, norm
from regard.settings.schema import Embedding, Tower

__all__ = ["ACTIVATIONS", "BERT", "CONSTANTS", "IGNORED_KEYS", "KEYS", "body", "lacks", "own"]

ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "relu": "relu",
               "silu": "silu", "swish": "silu"}
# Keys that act only in training, or belong to heads that regard does not have, or to the code of old versions.
IGNORED_KEYS = frozenset({
    "_num_labels", "classifier_dropout", "directionality", "gradient_checkpointing", "num_labels", "output_past",
    "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type",
})  # fmt: skip
KEYS = Keys(
    base=Tower(norm="layer", norm_place="post", bias=True, positions="learned", tied="output",
               embedding=Embedding(scaled=False, norm=True)),
    renamed={"hidden_size": "width", "num_hidden_layers": "depth", "num_attention_heads": "heads",
          "intermediate_size": "ffn_width", "max_position_embeddings": "max_positions",
          "type_vocab_size": "embedding.segments", "layer_norm_eps": "norm_epsilon", "hidden_dropout_prob": "dropout",
          "attention_probs_dropout_prob": "attention_dropout"},
    value_names={"hidden_act": ("activation", ACTIVATIONS)},
    must_agree={},
    fixed={"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False,
          "tie_word_embeddings": True},
    defaults={"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
            "max_position_embeddings": 512, "type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_dropout_prob": 0.1,
            "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu"},
    ignored=IGNORED_KEYS)
CONSTANTS = r"(\w+\.)?embeddings\.(position_ids|token_type_ids)"  # numbers from 0 on, and zeros


def lacks(tower: Tower) -> list[str]:
    """It reads a segment of every token."""
    return ["embedding.segments"] if tower.embedding.segments == 0 else []


def own(spec: ModelSpec, prefix: str) -> str:
    """How the names of the body begin: its own class leaves the prefix out."""
    return "" if spec.kind == "backbone" else prefix


def body(tower: Tower, theirs: str, *, ours: str = "encoder.", unread: int = 0) -> list[Rule]:
    """`unread` rows of the positions come before the first."""
    layer, attention, block = theirs + "encoder.layer.{}.", theirs + "encoder.layer.{}.attention.", ours + "blocks.{}."
    each = [
        *linear(f"{block}self.qkv", f"{attention}self.query", f"{attention}self.key", f"{attention}self.value",
                rows=(tower.width,) * 3, bias=True),
        *linear(f"{block}self.out", f"{attention}output.dense", bias=True),
        *norm(f"{block}self_norm", f"{attention}output.LayerNorm", bias=True),
        *linear(f"{block}feed_forward.up", f"{layer}intermediate.dense", bias=True),
        *linear(f"{block}feed_forward.down", f"{layer}output.dense", bias=True),
        *norm(f"{block}feed_forward_norm", f"{layer}output.LayerNorm", bias=True),
    ]
    inputs = [
        Rule(f"{ours}inputs.tokens.table.weight", (f"{theirs}embeddings.word_embeddings.weight",)),
        Rule(f"{ours}inputs.positions.table", (f"{theirs}embeddings.position_embeddings.weight",), unread=unread),
        Rule(f"{ours}inputs.segments.table", (f"{theirs}embeddings.token_type_embeddings.weight",)),
        *norm(f"{ours}inputs.norm", f"{theirs}embeddings.LayerNorm", bias=True),
    ]
    return [*inputs, *each_layer(each, tower.depth)]


def rules(spec: ModelSpec) -> list[Rule]:
    start = own(spec, "bert.")
    pooler = linear("head.hidden", f"{start}pooler.dense", bias=True)
    words = [
        *linear("words.hidden", "cls.predictions.transform.dense", bias=True),
        *norm("words.norm", "cls.predictions.transform.LayerNorm", bias=True),
        Rule("words.output.bias", ("cls.predictions.bias",)),
    ]
    heads = {
        "backbone": pooler if spec.tower.head.hidden != "none" else [],
        "masked-lm": words,
        "sentences": [*words, *pooler, *linear("head.output", "cls.seq_relationship", bias=True)],
        "sequence-labels": [*pooler, *linear("head.output", "classifier", bias=True)],
        "token-labels": linear("head.output", "classifier", bias=True),
    }
    return [*body(spec.canonical, start), *heads[spec.kind]]


GELU, POOLER = {"activation": ("gelu",)}, r"bert\.pooler\.dense\.(weight|bias)"
OUTPUT = {"cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
          "cls.predictions.decoder.bias": "cls.predictions.bias"}
BERT = Family(
    name="bert", preset="bert-base", keys=KEYS, rules=rules, prefix="bert.", outside=("cls.", "classifier."),
    constants=CONSTANTS, lacks=lacks,
    heads={
        "backbone": HeadFormat("BertModel", has={"head.hidden": ("tanh", "none")}),
        "masked-lm": HeadFormat("BertForMaskedLM", has=GELU, copies=OUTPUT, unread=POOLER),
        "sentences": HeadFormat("BertForPreTraining", has=GELU, copies=OUTPUT),
        "sequence-labels": HeadFormat(
            "BertForSequenceClassification", has={"head.hidden": ("tanh",), "head.pool": ("first",)}),
        "token-labels": HeadFormat("BertForTokenClassification", unread=POOLER),
    })
