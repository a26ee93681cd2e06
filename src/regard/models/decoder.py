"""Decoder: a token sees itself and what came before, and a memory if there is one."""

from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.kernels import shared_kv_cache
from regard.kernels import table as kernels
from regard.kernels.decode_step import DecodeCall, DecodePlan
from regard.kernels.fixed_kv_cache import BeamAncestry, FixedCache
from regard.kernels.precision import to_product_dtype
from regard.models.autoregressive import AutoregressiveDecoder
from regard.models.decoder_state import DecoderState
from regard.models.parts import blocks, input_positions, tokens
from regard.nn.attention import CrossAttention, Memory
from regard.nn.block import norm
from regard.nn.dropout import Dropout
from regard.nn.kv_cache import BlockCache, GrowingCache
from regard.nn.linear import Linear
from regard.nn.mask import Mask, whole
from regard.settings.schema import Tower

__all__ = ["Decoder"]


class Decoder(AutoregressiveDecoder):
    """Causal states, and the logits of the next token."""

    ordered = False  # but by its positions

    def __init__(self, tower: Tower, *, vocabulary: int, memory_width: int | None = None) -> None:
        super().__init__()
        self.window, self.groups = tower.window, tower.kv_heads or tower.heads
        self.head = max(tower.widths_of_heads)
        self.tokens = tokens(tower, vocabulary)
        self.positions = input_positions(tower)
        self.dropout = Dropout(tower.dropout)
        self.blocks = blocks(tower, tower.decoder_depth or tower.depth, causal=True, memory_width=memory_width)
        self.norm = norm(tower) if tower.norm_place == "pre" else nn.Identity()
        self.output = Linear(tower.width, vocabulary, bias=False)
        if tower.tied != "none" and tower.position_width is None:
            self.output.weight = self.tokens.table.weight

    def embed(
        self, tokens: Int[Tensor, "batch length"], positions: Int[Tensor, "#batch length"] | None = None
    ) -> Float[Tensor, "batch length width"]:
        return self.place(self.tokens(tokens), positions)

    def place(
        self, x: Float[Tensor, "batch length features"], positions: Int[Tensor, "#batch length"] | None = None
    ) -> Float[Tensor, "batch length width"]:
        """Vectors of tokens with their positions."""
        here = whole(x.shape[1], x.device) if positions is None else positions
        return self.dropout(self.positions.embed(x, here))  # type: ignore[no-any-return]

    def forward(
        self, x: Float[Tensor, "batch length width"], memory: Memory | None = None, *, mask: Mask = Mask(causal=True),
        positions: Int[Tensor, "#batch length"] | None = None, cache: list[BlockCache] | None = None,
    ) -> Float[Tensor, "batch length width"]:
        mask = mask if self.window is None else replace(mask, window=self.window)
        for i, block in enumerate(self.blocks):
            x = block(x, memory, mask=mask, positions=positions, cache=None if cache is None else cache[i])
        return self.norm(x)  # type: ignore[no-any-return]

    def logits(self, states: Float[Tensor, "batch length width"]) -> Float[Tensor, "batch length vocabulary"]:
        return self.output(states)  # type: ignore[no-any-return]

    def begin(self, rows: int, memory: Memory | None = None, *, capacity: int | None = None) -> DecoderState:
        """Ready for the first token of each row. With a capacity, no shape will change from step to step."""
        like = to_product_dtype(memory.states if memory is not None else self.tokens.table.weight)
        ancestry = None if capacity is None else BeamAncestry(rows, capacity, like.device)
        caches = []
        for block in self.blocks:
            own = GrowingCache() if capacity is None else FixedCache(
                rows, self.groups, capacity, self.head, like=like, ancestry=ancestry)
            cross: CrossAttention | None = block.cross  # type: ignore[assignment]
            remembered = cross.remember(memory.states) if cross is not None and memory is not None else None
            caches.append(BlockCache(own, remembered))
        position = torch.zeros(1, 1, dtype=torch.long, device=like.device)
        may_share = capacity is None and shared_kv_cache.pays(self.blocks, like)
        return DecoderState(caches, DecodePlan(self.blocks), memory, position, rows, ancestry, may_share)

    def step(self, tokens: Int[Tensor, "rows n"], state: DecoderState) -> Float[Tensor, "rows n width"]:
        """The states of the next n tokens of each row. The state moves on by n."""
        return self.read(self.tokens(tokens), state)

    def read(
        self, x: Float[Tensor, "rows n features"], state: DecoderState, *, mask: Mask = Mask(causal=True)
    ) -> Float[Tensor, "rows n width"]:
        """The same for the vectors of tokens, or of anything else that stands in the sequence."""
        length = x.shape[1]
        positions = state.position + torch.arange(length, device=x.device)
        if state.ancestry is not None:
            state.ancestry.write(positions)
        x, mask = self.place(x, positions), replace(mask, window=self.window)
        call = DecodeCall(state.plan, x, positions, state.caches, mask, state.memory, state.in_order)
        fast = kernels.decode_step(call)
        x = self(x, state.memory, mask=mask, positions=positions, cache=state.caches) if fast is None else (
            self.norm(fast))
        state.position += length  # in place: a captured step goes on reading the same memory
        return x
