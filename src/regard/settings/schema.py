"""Every setting of a run, once: its default, its range and the line that explains it.

A run is `Run`; its sections are the other classes. All are frozen: a change is `dataclasses.replace`.
`None` means absent, or derived from the others.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Data", "Masking", "Run", "Search", "Tokens", "Tower", "Train"]


def setting(default: Any, doc: str, *, least: float | None = None, most: float | None = None,
         above: float | None = None, below: float | None = None) -> Any:
    """A setting with its doc line. `least` and `most` are allowed values; `above` and `below` are not."""
    limits = {"least": least, "most": most, "above": above, "below": below}
    return field(default=default, metadata={"doc": doc, **{k: v for k, v in limits.items() if v is not None}})


@dataclass(frozen=True, kw_only=True)
class Data:
    """Where the examples come from."""

    paths: tuple[str, ...] = setting((), "files or folders; none: the task's built-in data")
    source: str | None = setting(None, "language (file ending), column or key of the input side")
    target: str | None = setting(None, "language (file ending), column or key of the output side")
    built_in_size: int = setting(120_000, "how many built-in training examples to make", least=1)
    max_tokens: int = setting(
        256, "inputs and targets are cut to this many tokens; the rows of a language model have this many", least=2)
    held_out: float = setting(
        0.1, "share of the text, its end, kept for validation where no file is named so", above=0, below=1)
    documents: Literal["joined", "apart"] = setting(
        "joined", "whether a text sees the one before it in the same row; apart, a row of mask or detect holds one")
    multi_label: bool = setting(
        False, "an example has any number of labels, separated by commas; each label is predicted independently")


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """How text becomes ids."""

    kind: Literal["bpe", "unigram", "characters", "bytes", "words"] = setting("bpe", "what a token is")
    vocabulary: int = setting(8_000, "how many different tokens at the most", least=8)
    joint: bool = setting(True, "one vocabulary for both sides")
    lowercase: bool = setting(False, "fold the case of the input and the output")
    file: str | None = setting(
        None, "published tokens for a language model to use instead of learning them: a tokenizer.json, or a folder "
              "of vocab.json and merges.txt")


@dataclass(frozen=True, kw_only=True)
class Tower:
    """A stack of blocks. An encoder-decoder is two towers of these settings."""

    preset: str | None = setting(None, "the named shape to start from, such as transformer-base")
    cell: Literal["elman", "gru", "lstm"] | None = setting(
        None, "the recurrent cell that its blocks are made of; absent: they attend, as in a transformer")
    direction: Literal["forward", "backward", "bidirectional", "bilm"] = setting(
        "forward", "how recurrent blocks read a text; bilm: a forward and a backward language model, as in ELMo")
    context: Literal["fixed", "input", "output"] = setting(
        "input", "what a recurrent decoder has of its source: one vector that it starts from; or attention, by the "
                 "state before each step, or by the state after it")
    input_feeding: bool = setting(False, "feed each decoder step's attention vector into the next (Luong et al. 2015)")
    bptt: int | None = setting(
        None, "truncated back-propagation through time: steps to unroll; none: the whole row", least=1)
    width: int = setting(256, "numbers per token between blocks", least=1)
    depth: int = setting(3, "blocks", least=1)
    decoder_depth: int | None = setting(None, "blocks of the decoder, where it differs from the encoder", least=1)
    heads: int = setting(8, "attention heads per block", least=1, most=65_536)
    kv_heads: int | None = setting(
        None, "key and value heads, each shared by a group of query heads; absent: as many as heads", least=1)
    head_width: int | None = setting(None, "numbers per head; absent: width / heads", least=1)
    ffn_width: int | None = setting(None, "hidden width of the feed-forward layers; absent: 4 × width", least=1)
    activation: Literal["relu", "gelu", "gelu-tanh", "silu", "reglu", "geglu", "swiglu"] = setting(
        "relu", "nonlinearity of the feed-forward; the last three are gated")
    norm: Literal["layer", "rms"] = setting("layer", "LayerNorm or RMSNorm")
    norm_place: Literal["pre", "post"] = setting("pre", "before each part, or after its residual sum as in 2017")
    norm_epsilon: float = setting(1e-5, "added to the variance", above=0)
    bias: bool = setting(True, "biases in the linear layers")
    score: str = setting("scaled-dot", "how a query is compared with a key; or dot, bilinear, additive, distance")
    temperature: float = setting(1.0, "of the attention's softmax: above 1 flatter, below 1 sharper", above=0)
    positions: Literal["none", "sinusoidal", "fourier", "learned", "rotary", "relative", "alibi"] = setting(
        "sinusoidal", "how the model knows the order of tokens")
    position_width: int | None = setting(
        None, "numbers of a position that is concatenated to the token; absent: it is added", least=2)
    position_base: float = setting(10_000.0, "slowest wavelength of sinusoidal and rotary positions", above=1)
    window: int | None = setting(
        None, "how many tokens back each one sees (and ahead, in an encoder); absent: all", least=1)
    global_projections: bool = setting(
        False, "global tokens have queries, keys and values of their own, as in Longformer")
    qk_norm: bool = setting(False, "RMSNorm of every head's queries and keys")
    max_positions: int = setting(
        1024, "size of a learned table of positions; half the period of Fourier positions", least=1)
    tied: Literal["all", "output", "none"] = setting(
        "all", "one matrix for input, output (and both languages); for the decoder's two; or for none")
    scale_embedding: bool = setting(True, "multiply token vectors by √width, as in 2017")
    embedding_width: int | None = setting(
        None, "numbers of an encoder's token vectors, where they are widened to the width of the blocks", least=1)
    embedding_norm: bool = setting(False, "a norm of an encoder's input sum, as in BERT")
    segments: int = setting(0, "kinds of segments that an encoder tells apart, such as BERT's two; 0: none", least=0)
    pool: Literal["first", "mean"] = setting(
        "first", "what stands for a whole text: the state of its first token, or the mean of all")
    normalize: bool = setting(False, "scale text vectors to length 1, so that their dot product is the cosine")
    head: Literal["linear", "tanh", "gelu", "relu"] = setting(
        "linear", "how labels are read from a state: by a linear layer alone, or after a hidden one of this kind")
    dropout: float = setting(0.1, "on every part's output and on the input sum", least=0, below=1)
    attention_dropout: float = setting(0.0, "on the attention weights", least=0, below=1)
    hidden_dropout: float = setting(0.0, "inside the feed-forward", least=0, below=1)


@dataclass(frozen=True, kw_only=True)
class Train:
    """How the model learns."""

    steps: int = setting(3_000, "updates in all; a run ends by steps, never by time", least=1)
    batch_tokens: int = setting(4_096, "tokens of the longer side per update, padding included", least=8)
    shapes: int = setting(6, "different lengths that batches are padded to; few, so that graphs are reused", least=1)
    accumulate: int = setting(1, "pieces each batch is worked off in, to save memory", least=1)
    activation_checkpointing: bool = setting(
        False, "recompute the activations of each block in the backward pass: less memory, about a third more work")
    fsdp: bool = setting(False, "shard weights, gradients and optimiser state over the processes (FSDP2)")
    start: str | None = setting(
        None, "a run or a Hugging Face directory whose tokens and body the model takes over before it learns")
    tune: Literal["all", "head", "lora"] = setting(
        "all", "what learns: all weights; those of the head alone; or those and low-rank adapters of the blocks")
    lora_rank: int = setting(8, "of an adapter: numbers between its two matrices", least=1)
    lora_alpha: float = setting(16.0, "an adapter's output is multiplied by this / lora_rank", above=0)
    lora_on: tuple[str, ...] = setting(("q", "v"), "the products that have an adapter: q, k, v, out, up, down")
    freeze_layers: int = setting(0, "how many of the lowest blocks to freeze, with the embeddings below them", least=0)
    layer_decay: float = setting(
        1.0, "each block's learning rate is this times that of the block above; 1: the same for all", above=0, most=1)
    optimizer: Literal["adamw", "muon", "sgd"] = setting(
        "adamw", "AdamW for all; Muon for the matrices of the blocks and AdamW for the rest; or gradient descent for "
                 "all")
    learning_rate: float = setting(1e-3, "peak learning rate", above=0)
    matrix_rate: float = setting(0.02, "peak learning rate of Muon's matrices", above=0)
    momentum: float | None = setting(None, "of Muon or SGD; absent: 0.95 for Muon, none for SGD", least=0, below=1)
    schedule: Literal["inverse-sqrt", "cosine", "stable-decay", "constant"] = setting(
        "inverse-sqrt", "how the learning rate falls after the warm-up")
    warmup: int = setting(300, "steps until the peak learning rate", least=0)
    decay: float = setting(0.2, "share of the steps over which stable-decay falls to zero", least=0, most=1)
    weight_decay: float = setting(0.01, "of AdamW, on matrices only", least=0)
    beta1: float = setting(0.9, "of AdamW", least=0, below=1)
    beta2: float = setting(0.98, "of AdamW", least=0, below=1)
    epsilon: float = setting(1e-9, "of AdamW", above=0)
    grad_clip: float | None = setting(
        1.0, "gradients are scaled down to this norm at most; absent: no clipping", above=0)
    label_smoothing: float = setting(0.1, "share of the target's probability spread over all tokens", least=0, below=1)
    precision: Literal["auto", "float32", "bfloat16"] = setting("auto", "of the matrix products")
    compile: Literal["auto", "on", "off"] = setting(
        "auto", "compile the kernels of the step; auto: on a GPU, for runs that are long enough to pay for it")
    deterministic: bool = setting(False, "the same bits in every run on a GPU, at some cost")
    most_skipped: int = setting(10, "updates in a row with a gradient that is not finite before the run ends", least=1)
    log_every: int = setting(50, "steps between two lines about the loss", least=1)
    evaluate_every: int | None = setting(None, "steps between evaluations; absent: ten in a run", least=1)
    save_every: int | None = setting(None, "steps between checkpoints; absent: with each evaluation", least=1)
    keep_checkpoints: int = setting(2, "how many of the newest checkpoints to keep", least=1)
    average_checkpoints: int = setting(1, "the final model is the mean of this many of the newest checkpoints", least=1)
    patience: int | None = setting(None, "evaluations without a better loss before the run stops", least=1)
    timeout: float = setting(
        60.0, "seconds that one of many processes may be silent before the others end; changes no number", least=1,
        most=1e6)
    track: bool = setting(False, "also write TensorBoard events (needs the extra `track`)")


@dataclass(frozen=True, kw_only=True)
class Masking:
    """How an encoder learns from raw text: tokens are masked, and it predicts them or finds replaced ones."""

    rate: float = setting(0.15, "share of the tokens that the model has to predict", above=0, below=1)
    hidden: float = setting(0.8, "share of those that become the mask token", least=0, most=1)
    replaced: float = setting(
        0.1, "share of those that become a random token; the rest stay as they are", least=0, most=1)
    whole_words: bool = setting(False, "mask all tokens of a word together")
    dynamic: bool = setting(
        True, "mask other tokens in every epoch, as in RoBERTa; if not, `copies` fixed choices take turns, as in BERT")
    copies: int = setting(10, "differently masked copies of a text, if masking is not dynamic", least=1)
    next_sentence: bool = setting(
        False, "also say whether the second half of an example follows the first in the text, as in BERT")
    generator: float | None = setting(
        0.25, "of detect: the width of the model that fills the blanks, as a share of the detector's; absent: there is "
              "none, and nothing can be learned", above=0, most=1)
    detector_weight: float = setting(50.0, "of detect: how much finding what was replaced weighs in the loss", above=0)


@dataclass(frozen=True, kw_only=True)
class Search:
    """How an answer is chosen."""

    beam: int = setting(5, "hypotheses kept per sentence; 1 is greedy", least=1, most=65_536)
    best: int = setting(1, "answers given per input, the best first", least=1)
    length_penalty: float = setting(1.0, "a score is the log-probability / length ** this")
    max_tokens: int = setting(256, "an answer has at most this many tokens", least=1)
    no_repeat_ngram: int | None = setting(
        None, "no n-gram of this many tokens repeats in an answer; absent: any may", least=1)
    batch: int = setting(64, "sentences worked on at once", least=1)
    temperature: float | None = setting(
        None, "draw instead of searching: 1 as the model says, 0 the likeliest", least=0)
    top_k: int | None = setting(None, "draw among the k likeliest tokens", least=1)
    top_p: float | None = setting(None, "draw among the likeliest tokens that have this probability together",
                               above=0, most=1)
    min_p: float | None = setting(None, "draw among tokens at least this share as likely as the likeliest",
                               above=0, most=1)
    repetition_penalty: float = setting(1.0, "above 1, tokens that came before are less likely", above=0)
    stop: tuple[str, ...] = setting((), "texts at which an answer ends, themselves left out")
    seed: int = setting(0, "of the drawing", least=0)


@dataclass(frozen=True, kw_only=True)
class Run:
    """Everything that decides a run. Saved beside it as `run.json`."""

    task: str = setting("translate", "what the model learns to do")
    seed: int = setting(0, "of the initial weights, the order of the data and the dropout", least=0)
    device: Literal["auto", "cpu", "cuda", "mps"] = setting("auto", "where it runs")
    data: Data = field(default_factory=Data)
    tokens: Tokens = field(default_factory=Tokens)
    model: Tower = field(default_factory=Tower)
    train: Train = field(default_factory=Train)
    masking: Masking = field(default_factory=Masking)
    search: Search = field(default_factory=Search)
