"""The attention of an encoder over its tokens, and their states after each block."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.data.text.rows import encoder_mask
from regard.data.tokenizer import Tokenizer
from regard.look.axes import AxisPair
from regard.look.outputs import records
from regard.look.record import Record
from regard.look.thread_hooks import in_this_thread
from regard.look.watch import watch
from regard.models.encoder import Encoder

__all__ = ["attention", "layers"]


@torch.no_grad()
def layers(model: nn.Module, row: Sequence[int], *, pad: int) -> Float[Tensor, "layers length width"]:
    """The state of every token of a row: as it enters the first block, and after each."""
    encoder, found = _encoder(model), list[Tensor]()
    tokens = torch.tensor([list(row)], device=next(model.parameters()).device)
    enters = in_this_thread(lambda block, inputs: found.append(inputs[0]))
    leaves = in_this_thread(lambda block, inputs, output: found.append(output))
    hooks = [encoder.blocks[0].register_forward_pre_hook(enters),
             *(block.register_forward_hook(leaves) for block in encoder.blocks)]
    try:
        encoder(encoder.embed(tokens), mask=encoder_mask(tokens, pad=pad, window=encoder.window))
    finally:
        for hook in hooks:
            hook.remove()
    return torch.cat(found).float().cpu()


@torch.no_grad()
def attention(model: nn.Module, tokens: Tokenizer, rows: Sequence[Sequence[int]], *, only: str | Sequence[str] = "*",
              heads: Sequence[int] | None = None, said: Sequence[Sequence[int]] | None = None,
              segments: Callable[[Tensor], Tensor | None] = lambda read: None) -> list[Record]:
    """The attention of each token in each row, every row separately; `said` has the labels of rows that differ.

    `segments` tells those of a row of ids.
    """
    encoder, found = _encoder(model), list[Record]()
    for row, output in zip(rows, said or rows, strict=True):
        read = torch.tensor([list(row)], device=next(model.parameters()).device)
        with watch(model, only, heads=heads) as watched:
            encoder(encoder.embed(read, segments=segments(read)),
                    mask=encoder_mask(read, pad=tokens.pad, window=encoder.window))
        targets, sources = tuple(tokens.pieces(output)), tuple(tokens.pieces(row))
        # A first token that looks by projections of its own is the one row of that attention.
        rows_at = {site: sum(piece.weights.shape[2] for piece in watched.pieces[site]) for site in watched}
        found += records(watched, [{site: AxisPair(targets[:count], sources) for site, count in rows_at.items()}])
    return found


def _encoder(model: nn.Module) -> Encoder:
    encoder = model.encoder
    assert isinstance(encoder, Encoder)
    return encoder
