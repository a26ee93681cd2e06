"""Every setting of a run, once: its default, its range and the line that explains it.

A run is `Run`; its sections are the other classes. All are frozen: a change is `dataclasses.replace`.
`None` means absent, or derived from the others. A section that may be `None` is a part
that a model may lack.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = [
    "Augment",
    "Data",
    "Embedding",
    "Head",
    "Image",
    "Lora",
    "Masking",
    "Recurrence",
    "Reinforce",
    "Run",
    "Search",
    "Tokens",
    "Tower",
    "Train",
]


def setting(default: Any, doc: str, *, least: float | None = None, most: float | None = None,
         above: float | None = None, below: float | None = None) -> Any:
    """A setting with its doc line. `least` and `most` are allowed values; `above` and `below` are not."""
    limits = {"least": least, "most": most, "above": above, "below": below}
    return field(default=default, metadata={"doc": doc, **{k: v for k, v in limits.items() if v is not None}})


def key_setting(doc: str, **limits: float) -> Any:
    """The setting that makes its section: it has no default, so the section is whole or absent."""
    return field(metadata={"doc": doc, **limits})


@dataclass(frozen=True, kw_only=True)
class Data:
    """Where the examples come from."""

    paths: tuple[str, ...] = setting((), "files or folders; none: the task's built-in data")
    source: str | None = setting(None, "language (file ending), column or key of the input side")
    target: str | None = setting(None, "language (file ending), column or key of the output side")
    built_in_size: int = setting(120_000, "number of built-in training examples", least=1)
    max_tokens: int = setting(
        256, "the most tokens of an input and of a target, longer ones are cut; the row length of a language "
             "model", least=2)
    held_out: float = setting(
        0.1, "share of the text, at its end, kept for validation if there is no validation file", above=0, below=1)
    documents: Literal["joined", "apart"] = setting(
        "joined", "joined: a text attends to the text before it in the same row; apart: it does not, and each row of "
                  "mask or detect holds one text")
    multi_label: bool = setting(
        False, "an example has any number of labels, separated by commas; the model predicts each independently")


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """How text becomes ids."""

    kind: Literal["bpe", "unigram", "characters", "bytes", "words"] = setting("bpe", "the kind of token")
    vocabulary: int = setting(8_000, "the most tokens in the vocabulary", least=8)
    joint: bool = setting(True, "one vocabulary for both sides")
    lowercase: bool = setting(False, "fold the case of the input and the output")
    file: str | None = setting(
        None, "a published tokenizer for a language model, instead of a learned one: a tokenizer.json, or a folder "
              "with vocab.json and merges.txt")


@dataclass(frozen=True, kw_only=True)
class Recurrence:
    """Blocks of recurrent cells, and how a decoder of them sees its source."""

    cell: Literal["elman", "gru", "lstm"] = key_setting("the recurrent cell of the blocks")
    direction: Literal["forward", "backward", "bidirectional", "bilm"] = setting(
        "forward", "how the blocks read a text; bilm: a forward and a backward language model, as in ELMo")
    context: Literal["fixed", "input", "output"] = setting(
        "input", "how a decoder reads its source. fixed: one vector, its initial state; input: attention before each "
                 "step; output: attention after each step")
    attention: Literal["soft", "hard"] = setting(
        "soft", "for context=input of an lstm. soft: the context is the mean of all places of the source, by their "
                "weights; hard: it is one place, drawn by the weights (Xu et al. 2015)")
    gate: bool = setting(False, "for context=input of an lstm: scale each context by a learned gate")
    expected: float = setting(
        0.5, "for hard attention: share of the training examples whose context is the mean all the same",
        least=0, most=1)
    input_feeding: bool = setting(False, "feed each decoder step's attention vector into the next (Luong et al. 2015)")
    bptt: int | None = setting(
        None, "truncated back-propagation through time: steps to unroll; none: the whole row", least=1)


@dataclass(frozen=True, kw_only=True)
class Embedding:
    """How tokens become the vectors that the first block reads."""

    width: int | None = setting(
        None, "width of an encoder's token vectors, projected to the width of the blocks; none: that width", least=1)
    scaled: bool = setting(True, "multiply token vectors by √width (Vaswani et al. 2017)")
    norm: bool = setting(False, "normalize the sum of an encoder's input embeddings, as in BERT")
    segments: int = setting(0, "number of segment embeddings of an encoder, such as BERT's two; 0: none", least=0)


@dataclass(frozen=True, kw_only=True)
class Head:
    """How labels, or one vector of a text, are read from an encoder's states."""

    hidden: Literal["none", "tanh", "gelu", "relu"] = setting(
        "none", "activation of a hidden layer before the output layer for labels; none: no hidden layer")
    pool: Literal["first", "mean", "learned"] = setting(
        "first", "the vector of a whole input: the state of its first place, the mean of all (of an image: of its "
                 "patches), or their mean weighted by a learned query")
    normalize: bool = setting(False, "scale text vectors to length 1, so that their dot product is the cosine")


@dataclass(frozen=True, kw_only=True)
class Image:
    """How images become the vectors that an encoder reads."""

    size: int = key_setting("height and width of an image in pixels, after scaling", least=1, most=16_384)
    grey: bool = setting(False, "one channel of grey instead of red, green and blue")
    fit: Literal["crop", "stretch"] = setting(
        "crop", "crop: scale the shorter side and cut the middle out; stretch: scale both sides")
    resize: int | None = setting(
        None, "pixels of the shorter side, or of both, before the middle is cut out; none: size", least=1)
    resample: Literal["nearest", "bilinear", "bicubic"] = setting("bilinear", "how pixels are interpolated")
    mean: tuple[float, ...] = setting(
        (0.5,), "subtracted from the pixels, which are from 0 to 1: one number, or one for each channel",
        least=0, most=1)
    std: tuple[float, ...] = setting(
        (0.5,), "the pixels are divided by this: one number, or one for each channel", above=0)
    stem: Literal["patches", "convolutions", "resnet"] = setting(
        "patches", "how pixels become vectors. patches: one matrix for every patch (ViT); convolutions: a few "
                   "convolutions and poolings (CCT); resnet: a residual network, without transformer blocks")
    patch: int = setting(
        16, "height and width of a patch in pixels; of convolutions: 2, 4, 8, …, which doubles with each layer; of a "
            "resnet's first stage: 4, or 1 for small images", least=1)
    class_token: bool = setting(True, "put a learned vector before the patches, from which labels can be read")
    stages: tuple[int, ...] = setting(
        (2, 2, 2, 2), "residual blocks of each stage of a resnet; each but the first halves height and width", least=1,
        most=1_000)
    bottleneck: bool = setting(False, "blocks of a resnet are 1×1, 3×3 and 1×1 convolutions instead of two 3×3")
    early_stride: bool = setting(
        False, "a bottleneck strides in its first convolution, as in the paper, not in its 3×3")
    width: int | None = setting(
        None, "channels of a resnet's last stage; each stage before has half of the next; none: model.width", least=1)

    @property
    def places(self) -> int:
        """The number of vectors that an encoder makes of an image."""
        if self.stem == "resnet":
            side = -(-self.size // (self.patch << len(self.stages) - 1))
            return side * side
        return (self.size // self.patch) ** 2 + self.class_token


@dataclass(frozen=True, kw_only=True)
class Tower:
    """A stack of blocks. An encoder-decoder is two towers of these settings."""

    preset: str | None = setting(
        None, "a named model shape, such as transformer-base; sets the defaults of the other model settings")
    recurrent: Recurrence | None = field(
        default=None, metadata={"doc": "recurrent blocks; none: transformer blocks"})
    image: Image | None = field(
        default=None, metadata={"doc": "the encoder reads images; none: it reads text"})
    width: int = setting(256, "width of the token vectors between blocks", least=1)
    depth: int = setting(3, "number of blocks", least=1)
    decoder_depth: int | None = setting(None, "number of decoder blocks; none: as many as depth", least=1)
    heads: int = setting(8, "attention heads per block", least=1, most=65_536)
    kv_heads: int | None = setting(
        None, "key and value heads, each shared by a group of query heads; none: as many as heads", least=1)
    head_width: int | None = setting(None, "width of a head; none: width / heads", least=1)
    head_widths: tuple[int, ...] = setting(
        (), "the width of each head, if they differ; none: all have head_width", least=1)
    ffn_width: int | None = setting(None, "hidden width of the feed-forward layers; none: 4 × width", least=1)
    activation: Literal["relu", "gelu", "gelu-tanh", "quick-gelu", "silu", "reglu", "geglu", "swiglu"] = setting(
        "relu", "nonlinearity of the feed-forward; the last three are gated")
    norm: Literal["layer", "rms"] = setting("layer", "LayerNorm or RMSNorm")
    norm_place: Literal["pre", "post"] = setting(
        "pre", "pre: norm before attention and feed-forward; post: after the residual sum, as in 2017")
    norm_epsilon: float = setting(1e-5, "added to the variance", above=0)
    bias: bool = setting(True, "biases in the linear layers")
    score: str = setting("scaled-dot", "score of a query and a key: scaled-dot, dot, bilinear, additive or distance")
    temperature: float = setting(
        1.0, "temperature of the attention's softmax: above 1 flatter, below 1 sharper", above=0)
    positions: Literal["none", "sinusoidal", "fourier", "learned", "rotary", "relative", "alibi"] = setting(
        "sinusoidal", "how the model knows the order of tokens")
    position_width: int | None = setting(
        None, "width of a position that is concatenated to the token; none: positions are added", least=2)
    position_base: float = setting(10_000.0, "base of the wavelengths of sinusoidal and rotary positions", above=1)
    window: int | None = setting(
        None, "tokens back that each token attends to (in an encoder also ahead); none: all", least=1)
    global_projections: bool = setting(
        False, "separate query, key and value projections for global tokens, as in Longformer")
    qk_norm: bool = setting(False, "RMSNorm of every head's queries and keys")
    max_positions: int = setting(
        1024, "size of a learned table of positions; half the period of Fourier positions", least=1)
    tied: Literal["all", "output", "none"] = setting(
        "all", "share the embedding matrix. all: input, output and both languages; output: the decoder's input and "
               "output")
    embedding: Embedding = field(default_factory=Embedding)
    head: Head = field(default_factory=Head)
    layer_scale: float | None = setting(
        None, "attention and feed-forward over patches are multiplied by learned factors that begin at this; none: "
              "they are not", above=0)
    init: Literal["plain", "mimetic", "convolution"] = setting(
        "plain", "how attention over patches begins. plain: at random; mimetic: like that of trained models; "
                 "convolution: each head looks at one neighbour")
    dropout: float = setting(0.1, "dropout on the output of each sublayer and on the embeddings", least=0, below=1)
    attention_dropout: float = setting(0.0, "dropout on the attention weights", least=0, below=1)
    ffn_dropout: float = setting(0.0, "dropout inside the feed-forward", least=0, below=1)

    @property
    def widths_of_heads(self) -> tuple[int, ...]:
        return self.head_widths or (self.head_width or self.width // self.heads,) * self.heads


@dataclass(frozen=True, kw_only=True)
class Lora:
    """Low-rank adapters, which learn in place of the matrices of the blocks (Hu et al. 2022)."""

    rank: int = setting(8, "rank of an adapter: the width between its two matrices", least=1)
    alpha: float = setting(16.0, "an adapter's output is multiplied by this / rank", above=0)
    targets: tuple[Literal["q", "k", "v", "out", "up", "down"], ...] = setting(
        ("q", "v"), "the matrices of a block that get an adapter")


@dataclass(frozen=True, kw_only=True)
class Augment:
    """How training images are changed at random: each depends only on the seed, the step and the example."""

    flip: bool = setting(False, "mirror every second image")
    crop: int = setting(0, "shift images by up to this many pixels", least=0)
    colour: float = setting(0.0, "change brightness, contrast and saturation by up to this share", least=0, most=1)
    shear: float = setting(0.0, "shear images by up to this share of their height or width", least=0, most=1)
    cutout: int = setting(0, "height and width of a square that is replaced by the mean colour; 0: none", least=0)
    mixup: float = setting(
        0.0, "α of mixup: add a second image, weighted by a draw from Beta(α, α), and mix the labels; 0: off", least=0)
    cutmix: float = setting(
        0.0, "α of cutmix: paste a part of a second image, and mix the labels by its area; 0: off", least=0)


@dataclass(frozen=True, kw_only=True)
class Reinforce:
    """How a model learns from choices that it draws, such as the places of hard attention (Williams 1992)."""

    weight: float = setting(1.0, "weight of the rewards of drawn choices in the loss", least=0)
    entropy: float = setting(0.01, "weight of the entropy of drawn choices, which keeps them open", least=0)


@dataclass(frozen=True, kw_only=True)
class Train:
    """How the model learns."""

    steps: int = setting(3_000, "number of updates", least=1)
    batch_tokens: int = setting(4_096, "tokens of the longer side per update, padding included; of images "
                                       "their patches, with a class token", least=8)
    length_buckets: int = setting(
        6, "number of lengths that batches are padded to; a few, so that CUDA graphs are reused", least=1)
    accumulate: int = setting(1, "gradient accumulation: pieces of each batch, to save memory", least=1)
    activation_checkpointing: bool = setting(
        False, "recompute the activations of each block in the backward pass: less memory, about a third more work")
    fsdp: bool = setting(False, "shard weights, gradients and optimizer state over the processes (FSDP2)")
    init_from: str | None = setting(
        None, "a run or a Hugging Face directory to start from; the model takes its tokenizer and its backbone")
    trainable: Literal["all", "head", "lora"] = setting(
        "all", "the weights that learn: all; only the head; or the head and low-rank adapters of the blocks")
    lora: Lora = field(default_factory=Lora)
    augment: Augment = field(default_factory=Augment)
    freeze_layers: int = setting(0, "number of lowest blocks to freeze, together with the embeddings", least=0)
    layer_decay: float = setting(
        1.0, "each block's learning rate is this times that of the block above; 1: the same for all", above=0, most=1)
    optimizer: Literal["adamw", "muon", "sgd"] = setting(
        "adamw", "AdamW for all; Muon for the matrices of the blocks and AdamW for the rest; or gradient descent for "
                 "all")
    learning_rate: float = setting(1e-3, "peak learning rate", above=0)
    muon_learning_rate: float = setting(0.02, "peak learning rate of Muon's matrices", above=0)
    momentum: float | None = setting(
        None, "momentum of Muon or SGD; none: 0.95 for Muon, 0 for SGD", least=0, below=1)
    schedule: Literal["inverse-sqrt", "cosine", "stable-decay", "constant"] = setting(
        "inverse-sqrt", "how the learning rate falls after the warm-up")
    warmup: int = setting(300, "steps until the peak learning rate", least=0)
    decay: float = setting(0.2, "share of the steps over which stable-decay falls to zero", least=0, most=1)
    weight_decay: float = setting(0.01, "weight decay of AdamW, on matrices only", least=0)
    beta1: float = setting(0.9, "β₁ of AdamW", least=0, below=1)
    beta2: float = setting(0.98, "β₂ of AdamW", least=0, below=1)
    epsilon: float = setting(1e-9, "ε of AdamW", above=0)
    grad_clip: float | None = setting(
        1.0, "largest norm of the gradients, larger ones are scaled down; none: no clipping", above=0)
    coverage: float = setting(
        0.0, "for model.recurrent.context=input of an lstm: weight of the penalty on places that get more or less "
             "attention than others in a whole answer (Xu et al. 2015, eq. 14)", least=0)
    reinforce: Reinforce = field(default_factory=Reinforce)
    label_smoothing: float = setting(0.1, "share of the target's probability spread over all tokens", least=0, below=1)
    precision: Literal["auto", "float32", "bfloat16"] = setting("auto", "number format of the matrix products")
    compile: Literal["auto", "on", "off"] = setting(
        "auto", "compile the kernels of a step; auto: on a GPU, for runs long enough to gain time")
    deterministic: bool = setting(False, "make runs on a GPU reproducible bit for bit; slower")
    max_skipped_updates: int = setting(
        10, "updates in a row with a gradient that is not finite before the run ends", least=1)
    log_every: int = setting(50, "steps between log lines", least=1)
    evaluate_every: int | None = setting(None, "steps between evaluations; none: ten in a run", least=1)
    save_every: int | None = setting(None, "steps between checkpoints; none: with each evaluation", least=1)
    keep_checkpoints: int = setting(2, "number of newest checkpoints to keep", least=1)
    average_checkpoints: int = setting(1, "the final model is the mean of this many of the newest checkpoints", least=1)
    patience: int | None = setting(None, "evaluations without a better loss before the run stops", least=1)
    timeout: float = setting(
        60.0, "seconds that one of many processes may be silent before the others end; does not affect "
              "results", least=1, most=1e6)
    track: bool = setting(False, "also write TensorBoard events (needs the extra `track`)")


@dataclass(frozen=True, kw_only=True)
class Masking:
    """How an encoder learns from raw text: tokens are masked, and it predicts them or finds replaced ones."""

    rate: float = setting(0.15, "share of the tokens that the model has to predict", above=0, below=1)
    mask_share: float = setting(0.8, "share of those that become the mask token", least=0, most=1)
    random_share: float = setting(
        0.1, "share of those that become a random token; the rest stay as they are", least=0, most=1)
    whole_words: bool = setting(False, "mask all tokens of a word together")
    dynamic: bool = setting(
        True, "choose new tokens to mask in every epoch, as in RoBERTa; if not, `copies` fixed choices take turns, as "
              "in BERT")
    copies: int = setting(10, "differently masked copies of a text, if masking is not dynamic", least=1)
    next_sentence: bool = setting(
        False, "also predict whether the second half of an example follows the first in the text, as in BERT")
    generator: float | None = setting(
        0.25, "for detect: the generator's width as a share of the detector's; none: no generator, so the model "
              "cannot be trained", above=0, most=1)
    detector_weight: float = setting(50.0, "for detect: weight of the detector's loss", above=0)


@dataclass(frozen=True, kw_only=True)
class Search:
    """How an answer is chosen."""

    beam: int = setting(5, "hypotheses kept per sentence; 1 is greedy", least=1, most=65_536)
    best: int = setting(1, "number of answers per input, the best first", least=1)
    length_penalty: float = setting(1.0, "the score of an answer is its log-probability / length ** this")
    max_tokens: int = setting(256, "the most tokens of an answer", least=1)
    no_repeat_ngram: int | None = setting(
        None, "an answer repeats no n-gram of this many tokens; none: repeats are allowed", least=1)
    batch: int = setting(64, "sentences in a batch", least=1)
    temperature: float | None = setting(
        None, "sample with this temperature; 0: the most likely token; none: beam search", least=0)
    top_k: int | None = setting(None, "sample from the k most likely tokens", least=1)
    top_p: float | None = setting(None, "sample from the most likely tokens that together have this probability",
                               above=0, most=1)
    min_p: float | None = setting(None, "sample from tokens with at least this share of the highest probability",
                               above=0, most=1)
    repetition_penalty: float = setting(1.0, "above 1: makes earlier tokens less likely", above=0)
    stop: tuple[str, ...] = setting((), "texts that end an answer; the answer does not include them")
    seed: int = setting(0, "seed of the sampling", least=0)


@dataclass(frozen=True, kw_only=True)
class Run:
    """Everything that determines a run. Saved with it as `run.json`."""

    task: str = setting("translate", "the task")
    seed: int = setting(0, "seed of the initial weights, the order of the data and the dropout", least=0)
    device: Literal["auto", "cpu", "cuda", "mps"] = setting("auto", "the device to run on")
    data: Data = field(default_factory=Data)
    tokens: Tokens = field(default_factory=Tokens)
    model: Tower = field(default_factory=Tower)
    train: Train = field(default_factory=Train)
    masking: Masking = field(default_factory=Masking)
    search: Search = field(default_factory=Search)
