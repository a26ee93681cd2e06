"""Named settings. Shapes of models are functions that give a `Tower`, each from the one it resembles by `replace`."""

from collections.abc import Callable
from dataclasses import replace

from regard.settings.schema import Embedding, Head, Image, Recurrence, Tower

__all__ = ["FAMILIES", "PRESETS", "PRESETS_BY_KIND"]


def transformer_base() -> Tower:
    """Vaswani et al. 2017, table 3, "base"."""
    return Tower(preset="transformer-base", width=512, depth=6, heads=8, ffn_width=2048, norm_place="post")


def transformer_big() -> Tower:
    """Vaswani et al. 2017, table 3, "big"."""
    return replace(transformer_base(), preset="transformer-big", width=1024, heads=16, ffn_width=4096, dropout=0.3)


def transformer_tiny() -> Tower:
    """Wu et al. 2021, "Good for Misconceived Reasons": the size for some ten thousand sentences."""
    return replace(transformer_base(), preset="transformer-tiny", width=128, depth=4, heads=4, ffn_width=256,
                   dropout=0.3)


def gpt1() -> Tower:
    """Radford et al. 2018, 4.1. Their GELU is the approximation by tanh, as in later models."""
    return Tower(preset="gpt1", width=768, depth=12, heads=12, activation="gelu-tanh", norm_place="post",
                 positions="learned", max_positions=512, embedding=Embedding(scaled=False), attention_dropout=0.1)


def gpt2() -> Tower:
    """Radford et al. 2019, table 2. They count 117 M parameters there; it has 124 M."""
    return replace(gpt1(), preset="gpt2", norm_place="pre", max_positions=1024)


def gpt2_medium() -> Tower:
    return replace(gpt2(), preset="gpt2-medium", width=1024, depth=24, heads=16)


def gpt2_large() -> Tower:
    return replace(gpt2(), preset="gpt2-large", width=1280, depth=36, heads=20)


def gpt2_xl() -> Tower:
    return replace(gpt2(), preset="gpt2-xl", width=1600, depth=48, heads=25)


def gpt3() -> Tower:
    """Brown et al. 2020, table 2.1. There every other layer sees a band of tokens only; here all see all."""
    return replace(gpt2(), preset="gpt3", width=12_288, depth=96, heads=96, max_positions=2048)


def modern_small() -> Tower:
    """GPT-2's smallest size as it would be built today: Llama's block, with norms on queries and keys.

    Four heads share a head of keys, a gated feed-forward has as many weights as GPT-2's. Input and output are one
    matrix, which at this size is a third of the model.
    """
    return Tower(preset="modern-small", width=768, depth=12, heads=12, kv_heads=3, ffn_width=2048,
                 activation="swiglu", norm="rms", positions="rotary", qk_norm=True, bias=False, dropout=0.0,
                 embedding=Embedding(scaled=False))


def bert_base() -> Tower:
    """Devlin et al. 2019, section 3. The vector of a text goes through a hidden layer, their "pooler"."""
    return Tower(preset="bert-base", width=768, depth=12, heads=12, activation="gelu", norm_place="post",
                 norm_epsilon=1e-12, positions="learned", max_positions=512, attention_dropout=0.1,
                 embedding=Embedding(scaled=False, norm=True, segments=2), head=Head(hidden="tanh"))


def bert_large() -> Tower:
    return replace(bert_base(), preset="bert-large", width=1024, depth=24, heads=16)


def roberta_base() -> Tower:
    """Liu et al. 2019: BERT without its second sentence."""
    plain = bert_base()
    return replace(plain, preset="roberta-base", norm_epsilon=1e-5, embedding=replace(plain.embedding, segments=1))


def roberta_large() -> Tower:
    return replace(roberta_base(), preset="roberta-large", width=1024, depth=24, heads=16)


def distilbert() -> Tower:
    """Sanh et al. 2019: half of BERT's blocks, and no segments."""
    plain = bert_base()
    return replace(plain, preset="distilbert", depth=6, embedding=replace(plain.embedding, segments=0),
                   head=Head(hidden="relu"))


def electra_small() -> Tower:
    """Clark et al. 2020, table 6. Its tokens are narrower than its blocks."""
    plain = electra_base()
    return replace(plain, preset="electra-small", width=256, heads=4, ffn_width=1024,
                   embedding=replace(plain.embedding, width=128))


def electra_base() -> Tower:
    return replace(bert_base(), preset="electra-base", head=Head(hidden="gelu"))


def longformer_base() -> Tower:
    """Beltagy et al. 2020: RoBERTa's, with a window of 256 to either side and global tokens."""
    return replace(roberta_base(), preset="longformer-base", max_positions=4096, window=256, global_projections=True)


def elman() -> Tower:
    """Elman 1990: one layer, one way. The sizes of recurrent presets are those for some ten thousand sentences."""
    return Tower(preset="elman", recurrent=Recurrence(cell="elman"), width=256, depth=1, heads=1, positions="none",
                 embedding=Embedding(scaled=False), head=Head(pool="mean"), dropout=0.3)


def gru() -> Tower:
    """Cho et al. 2014, 2.3."""
    return replace(elman(), preset="gru", recurrent=Recurrence(cell="gru"))


def lstm() -> Tower:
    """Hochreiter and Schmidhuber 1997; two layers of it, as in Zaremba et al. 2014."""
    return replace(elman(), preset="lstm", recurrent=Recurrence(cell="lstm"), depth=2)


def bilstm() -> Tower:
    """Graves and Schmidhuber 2005: read in both directions."""
    return replace(lstm(), preset="bilstm", recurrent=Recurrence(cell="lstm", direction="bidirectional"))


def sutskever() -> Tower:
    """Sutskever et al. 2014, 3.4: one vector for a source that is read from its end. They had four layers of 1,000.

    Its token vectors are scaled: of weak ones too little is left in that vector for the decoder to learn to use it.
    """
    return replace(lstm(), preset="sutskever", width=512, embedding=Embedding(scaled=True),
                   recurrent=Recurrence(cell="lstm", direction="backward", context="fixed"))


def bahdanau() -> Tower:
    """Bahdanau et al. 2015, A.2. They had 1,000 numbers in each way and in the decoder, and 620 for a word."""
    return replace(gru(), preset="bahdanau", width=512, score="additive",
                   recurrent=Recurrence(cell="gru", direction="bidirectional", context="input"))


def luong() -> Tower:
    """Luong et al. 2015, "general" score and input feeding. They had four layers of 1,000, read from the end.

    Scaled as well: it learns the phrase book in half of the steps.
    """
    return replace(
        lstm(), preset="luong", width=512, score="bilinear", embedding=Embedding(scaled=True),
        recurrent=Recurrence(cell="lstm", direction="bidirectional", context="output", input_feeding=True))


def elmo() -> Tower:
    """Peters et al. 2018: two language models. They had 4,096 numbers in each cell, projected to 512."""
    return replace(lstm(), preset="elmo", width=512, recurrent=Recurrence(cell="lstm", direction="bilm"))


def vit_base() -> Tower:
    """Dosovitskiy et al. 2021, table 1 and, for dropout, table 3; in patches of 16 pixels."""
    return Tower(preset="vit-base", image=Image(size=224), width=768, depth=12, heads=12, activation="gelu",
                 norm_epsilon=1e-6, positions="learned", embedding=Embedding(scaled=False))


def vit_tiny() -> Tower:
    """Touvron et al. 2021, table 1, as is the next."""
    return replace(vit_base(), preset="vit-tiny", width=192, heads=3)


def vit_small() -> Tower:
    return replace(vit_base(), preset="vit-small", width=384, heads=6)


def vit_large() -> Tower:
    return replace(vit_base(), preset="vit-large", width=1024, depth=24, heads=16)


def vit_huge() -> Tower:
    """Theirs has patches of 14 pixels."""
    return replace(vit_base(), preset="vit-huge", width=1280, depth=32, heads=16)


def cct_7() -> Tower:
    """Hassani et al. 2021, CCT-7/3×1: one convolution, for images of 32 pixels."""
    return replace(vit_base(), preset="cct-7", width=256, depth=7, heads=4, ffn_width=512, norm_epsilon=1e-5,
                   image=Image(size=32, stem="convolutions", patch=2, class_token=False), head=Head(pool="learned"),
                   dropout=0.0, attention_dropout=0.1)


def resnet_18() -> Tower:
    """He et al. 2016, table 1. For images of 32 pixels set model.image.size=32 and model.image.patch=1."""
    image = Image(size=224, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), stem="resnet", patch=4,
                  class_token=False)
    return Tower(preset="resnet-18", image=image, width=512, positions="none", embedding=Embedding(scaled=False),
                 head=Head(pool="mean"), dropout=0.0)


def resnet_50() -> Tower:
    plain = resnet_18()
    assert plain.image is not None
    return replace(plain, preset="resnet-50", width=2048,
                   image=replace(plain.image, stages=(3, 4, 6, 3), bottleneck=True))


def captioner() -> Tower:
    """A transformer that looks at the features of a small residual network.

    The sizes of captioners are those for the built-in scenes and some thousand photographs.
    """
    image = Image(size=64, stem="resnet", patch=4, stages=(1, 1), class_token=False)
    return Tower(preset="captioner", image=image, width=128, depth=2, heads=4, activation="gelu", dropout=0.0)


def show_and_tell() -> Tower:
    """Vinyals et al. 2015: the mean of the features is the first word of an LSTM. Theirs had 512 numbers."""
    return replace(captioner(), preset="show-and-tell", width=256, depth=1, heads=1,
                   recurrent=Recurrence(cell="lstm", context="fixed"))


def show_attend_tell() -> Tower:
    """Xu et al. 2015, soft attention with the gate of 4.2.1. The network of their features had no positions."""
    return replace(captioner(), preset="show-attend-tell", width=256, depth=1, heads=1, score="additive",
                   recurrent=Recurrence(cell="lstm", context="input", gate=True))


def show_attend_tell_hard() -> Tower:
    """The same with hard attention, 4.1."""
    return replace(show_attend_tell(), preset="show-attend-tell-hard",
                   recurrent=Recurrence(cell="lstm", context="input", attention="hard", gate=True))


PRESETS_BY_KIND: dict[str, dict[str, Callable[[], Tower]]] = {
    "encoder-decoders": {
        "transformer-base": transformer_base,
        "transformer-big": transformer_big,
        "transformer-tiny": transformer_tiny,
    },
    "decoders": {
        "gpt1": gpt1,
        "gpt2": gpt2,
        "gpt2-medium": gpt2_medium,
        "gpt2-large": gpt2_large,
        "gpt2-xl": gpt2_xl,
        "gpt3": gpt3,
        "modern-small": modern_small,
    },
    "encoders": {
        "bert-base": bert_base,
        "bert-large": bert_large,
        "roberta-base": roberta_base,
        "roberta-large": roberta_large,
        "distilbert": distilbert,
        "electra-small": electra_small,
        "electra-base": electra_base,
        "longformer-base": longformer_base,
    },
    "encoders of images": {
        "vit-tiny": vit_tiny,
        "vit-small": vit_small,
        "vit-base": vit_base,
        "vit-large": vit_large,
        "vit-huge": vit_huge,
        "cct-7": cct_7,
        "resnet-18": resnet_18,
        "resnet-50": resnet_50,
    },
    "captioners": {
        "captioner": captioner,
        "show-and-tell": show_and_tell,
        "show-attend-tell": show_attend_tell,
        "show-attend-tell-hard": show_attend_tell_hard,
    },
    "recurrent": {
        "elman": elman,
        "gru": gru,
        "lstm": lstm,
        "bilstm": bilstm,
        "elmo": elmo,
    },
    "recurrent translators": {
        "sutskever": sutskever,
        "bahdanau": bahdanau,
        "luong": luong,
    },
}

PRESETS = {name: tower for presets in PRESETS_BY_KIND.values() for name, tower in presets.items()}

FAMILIES = {
    "gpt1": 40_478,
    **dict.fromkeys(("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "gpt3"), 50_257),
    **dict.fromkeys(("bert-base", "bert-large", "distilbert", "electra-small", "electra-base"), 30_522),
    **dict.fromkeys(("roberta-base", "roberta-large", "longformer-base"), 50_265),
}
"""How many tokens the published models of a preset's name know."""
