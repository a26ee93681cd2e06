"""The peers, built to our sizes: torch's own nn.Transformer, and transformers' Marian.

All read the same tokens, drop out at the same places and end in the same label-smoothed cross entropy. The
functions that copy weights let a test or a benchmark put the same model on both sides.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.models.encoder_decoder import EncoderDecoder
from regard.nn.positions import Sinusoidal
from regard.settings.schema import Tower

PAD, END = 0, 1
SMOOTHING, DROPOUT = 0.1, 0.1
RATE = 1e-4
POOL = 8  # batches made beforehand: no step waits for its data, no two in a row see the same

Update = Callable[[], None]
"""One whole step of training: zero the gradients, forward, loss, backward, AdamW."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A model and a batch: `rows` sentences of `length` tokens on either side."""

    depth: int
    width: int
    heads: int
    ffn_width: int
    vocabulary: int
    rows: int
    length: int

    @property
    def tower(self) -> Tower:
        """The same in our settings: post-norm, as in 2017."""
        return Tower(width=self.width, depth=self.depth, heads=self.heads, ffn_width=self.ffn_width,
                     norm_place="post", dropout=DROPOUT)


BASE = Shape(depth=6, width=512, heads=8, ffn_width=2048, vocabulary=32_000, rows=256, length=32)
SMALL = Shape(depth=3, width=256, heads=8, ffn_width=1024, vocabulary=8_000, rows=32, length=32)


class Batch(NamedTuple):
    source: Tensor
    target: Tensor
    labels: Tensor
    keys: Tensor | None
    """The source's real tokens. None: all are, and nobody needs a mask."""


def batches(shape: Shape, device: str, *, padded: bool = False) -> Iterator[Batch]:
    """A small pool of random batches, over and over. Padded: sentences of half the length and more."""
    generator = torch.Generator().manual_seed(0)

    def tokens() -> tuple[Tensor, Tensor]:
        ids = torch.randint(END + 1, shape.vocabulary, (shape.rows, shape.length), generator=generator)
        lengths = torch.randint(shape.length // 2, shape.length + 1, (shape.rows, 1), generator=generator)
        real = torch.arange(shape.length) < (lengths if padded else shape.length)
        return ids.where(real, PAD).to(device), real.to(device)

    def batch() -> Batch:
        (source, keys), (target, _), (labels, _) = tokens(), tokens(), tokens()
        return Batch(source, target, labels.where(target != PAD, PAD), keys if padded else None)

    return cycle([batch() for _ in range(POOL)])


def update(loss: Callable[[Batch], Tensor], parameters: Iterable[nn.Parameter], data: Iterator[Batch], *,
           device: str, precision: str) -> Update:
    """The step that every peer's user writes."""
    optimizer = torch.optim.AdamW(parameters, lr=RATE, betas=(0.9, 0.98), fused=True)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bfloat16"):
            value = loss(next(data))
        value.backward()
        optimizer.step()

    return step


class Torch(nn.Module):
    """nn.Transformer with what it lacks to be a translator: token vectors, sinusoids, a tied output."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.factor = shape.width**0.5
        self.table = nn.Embedding(shape.vocabulary, shape.width)
        self.dropout = nn.Dropout(DROPOUT)
        self.transformer = nn.Transformer(
            shape.width, shape.heads, shape.depth, shape.depth, shape.ffn_width, DROPOUT, batch_first=True)
        self.output = nn.Linear(shape.width, shape.vocabulary, bias=False)
        nn.init.normal_(self.table.weight, std=shape.width**-0.5)
        self.output.weight = self.table.weight
        for layer in [*self.transformer.encoder.layers, *self.transformer.decoder.layers]:
            # It also drops attention weights and hidden numbers; the paper, Marian and we do not by default.
            layer.dropout.p = layer.self_attn.dropout = 0.0
            if hasattr(layer, "multihead_attn"):
                layer.multihead_attn.dropout = 0.0
        positions = Sinusoidal(shape.width).vectors(torch.arange(shape.length)[None])
        self.register_buffer("positions", positions, persistent=False)
        causal = nn.Transformer.generate_square_subsequent_mask(shape.length)
        self.register_buffer("causal", causal, persistent=False)

    def embed(self, tokens: Tensor) -> Tensor:
        return self.dropout(self.table(tokens) * self.factor + self.positions)

    def forward(self, source: Tensor, target: Tensor, keys: Tensor | None) -> Tensor:
        padding = None if keys is None else ~keys
        states = self.transformer(
            self.embed(source), self.embed(target), tgt_mask=self.causal, tgt_is_causal=True,
            src_key_padding_mask=padding, memory_key_padding_mask=padding)
        return self.output(states)


def marian(shape: Shape, *, activation: str = "relu", std: float = 0.02) -> Any:
    """A Marian of random weights."""
    from transformers import MarianConfig, MarianMTModel

    return MarianMTModel(MarianConfig(
        vocab_size=shape.vocabulary, d_model=shape.width, max_position_embeddings=2 * shape.length,
        encoder_layers=shape.depth, decoder_layers=shape.depth,
        encoder_attention_heads=shape.heads, decoder_attention_heads=shape.heads,
        encoder_ffn_dim=shape.ffn_width, decoder_ffn_dim=shape.ffn_width,
        activation_function=activation, init_std=std, dropout=DROPOUT, scale_embedding=True,
        pad_token_id=PAD, decoder_start_token_id=PAD, eos_token_id=END, forced_eos_token_id=None))


def smoothed(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=SMOOTHING, ignore_index=PAD)


MODES: dict[str, dict[str, Any] | None] = {
    "eager": None,
    "compiled": {"dynamic": False},
    "graphs": {"dynamic": False, "mode": "reduce-overhead"},
}
PEERS = ("torch", "marian")
VARIANTS = [f"{peer} {mode}" for peer in PEERS for mode in MODES]


def peer(name: str, shape: Shape, device: str, precision: str, *, padded: bool = False) -> Update:
    """The variant of this name, of `VARIANTS`. The loss is compiled with the model: the best a user gets."""
    kind, mode = name.split()
    if kind == "torch":
        model = Torch(shape).to(device).train()

        def loss(source: Tensor, target: Tensor, labels: Tensor, keys: Tensor | None) -> Tensor:
            return smoothed(model(source, target, keys), labels)
    else:
        model = marian(shape).to(device).train()

        def loss(source: Tensor, target: Tensor, labels: Tensor, keys: Tensor | None) -> Tensor:
            out = model(input_ids=source, decoder_input_ids=target, attention_mask=keys, use_cache=False)
            return smoothed(out.logits, labels)

    options = MODES[mode]
    run = loss if options is None else torch.compile(loss, **options)

    def of(batch: Batch) -> Tensor:
        if mode == "graphs":
            torch.compiler.cudagraph_mark_step_begin()
        return run(*batch)

    return update(of, model.parameters(), batches(shape, device, padded=padded), device=device, precision=precision)


@torch.no_grad()
def copy_nn_transformer(ours: EncoderDecoder, encoder: nn.TransformerEncoder, decoder: nn.TransformerDecoder,
                        table: Tensor) -> None:
    """Give ours the weights of torch's two towers, and one table of token vectors for both and the output."""
    ours.decoder.tokens.table.weight.copy_(table)
    for block, layer in zip(ours.encoder.blocks, encoder.layers, strict=True):
        _copy_mha(block.self.qkv, block.self.out, layer.self_attn)
        block.self_norm.load_state_dict(layer.norm1.state_dict())
        block.feed_forward_norm.load_state_dict(layer.norm2.state_dict())
    for block, layer in zip(ours.decoder.blocks, decoder.layers, strict=True):
        _copy_mha(block.self.qkv, block.self.out, layer.self_attn)
        theirs, width = layer.multihead_attn, layer.multihead_attn.embed_dim
        _fill(block.cross.q, theirs.in_proj_weight[:width], theirs.in_proj_bias[:width])
        _fill(block.cross.kv, theirs.in_proj_weight[width:], theirs.in_proj_bias[width:])
        block.cross.out.load_state_dict(theirs.out_proj.state_dict())
        block.self_norm.load_state_dict(layer.norm1.state_dict())
        block.cross_norm.load_state_dict(layer.norm2.state_dict())
        block.feed_forward_norm.load_state_dict(layer.norm3.state_dict())
    for block, layer in zip([*ours.encoder.blocks, *ours.decoder.blocks], [*encoder.layers, *decoder.layers],
                            strict=True):
        block.feed_forward.up.load_state_dict(layer.linear1.state_dict())
        block.feed_forward.down.load_state_dict(layer.linear2.state_dict())
    for tower, theirs in ((ours.encoder, encoder), (ours.decoder, decoder)):
        if theirs.norm is not None:
            tower.norm.load_state_dict(theirs.norm.state_dict())


def _copy_mha(qkv: nn.Linear, out: nn.Linear, theirs: nn.MultiheadAttention) -> None:
    _fill(qkv, theirs.in_proj_weight, theirs.in_proj_bias)
    out.load_state_dict(theirs.out_proj.state_dict())


@torch.no_grad()
def copy_marian(ours: EncoderDecoder, theirs: Any) -> None:
    """Give ours the weights of a MarianMTModel.

    Marian's sinusoids are [all sines | all cosines], ours take turns: the model's dimensions change their order.
    """
    order = torch.arange(theirs.config.d_model).view(2, -1).T.flatten()

    def read(linear: nn.Linear, *theirs: nn.Linear) -> None:
        """From the model's dimensions to others."""
        _fill(linear, torch.cat([one.weight for one in theirs])[:, order], torch.cat([one.bias for one in theirs]))

    def write(linear: nn.Linear | nn.LayerNorm, theirs: nn.Linear | nn.LayerNorm) -> None:
        """Back to the model's dimensions."""
        _fill(linear, theirs.weight[order], theirs.bias[order])

    ours.decoder.tokens.table.weight.copy_(theirs.model.shared.weight[:, order])
    for tower, layers in ((ours.encoder, theirs.model.encoder.layers), (ours.decoder, theirs.model.decoder.layers)):
        for block, layer in zip(tower.blocks, layers, strict=True):
            own = layer.self_attn
            read(block.self.qkv, own.q_proj, own.k_proj, own.v_proj)
            write(block.self.out, own.out_proj)
            write(block.self_norm, layer.self_attn_layer_norm)
            if block.cross is not None:
                cross = layer.encoder_attn
                read(block.cross.q, cross.q_proj)
                read(block.cross.kv, cross.k_proj, cross.v_proj)
                write(block.cross.out, cross.out_proj)
                write(block.cross_norm, layer.encoder_attn_layer_norm)
            read(block.feed_forward.up, layer.fc1)
            write(block.feed_forward.down, layer.fc2)
            write(block.feed_forward_norm, layer.final_layer_norm)


def _fill(part: nn.Linear | nn.LayerNorm, weight: Tensor, bias: Tensor) -> None:
    part.weight.copy_(weight)
    part.bias.copy_(bias)
