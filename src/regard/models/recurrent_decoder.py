"""RecurrentDecoder: a language model that carries a few vectors from token to token, and what others are made of."""

from copy import deepcopy
from dataclasses import dataclass, fields
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.models.autoregressive import AutoregressiveDecoder
from regard.models.parts import blocks, input_width, tokens
from regard.models.recurrent_layer import VECTORS, Recurrent, Vectors, summary
from regard.nn.attention import Memory
from regard.nn.dropout import Dropout
from regard.nn.mask import Mask
from regard.settings.schema import Tower

__all__ = ["RecurrentDecoder", "RecurrentState", "Source"]


@dataclass(frozen=True)
class Source:
    """The source of a decoder: the memory, its keys, and the projected keys of its score, computed once."""

    memory: Memory
    keys: Float[Tensor, "sources 1 keys width"] | None = None
    projected_keys: Float[Tensor, "sources 1 keys projected"] | None = None

    def choose(self, sources: Int[Tensor, " kept"]) -> "Source":
        real = self.memory.mask.keys
        memory = Memory(self.memory.states[sources], Mask(keys=None if real is None else real[sources]))
        return Source(memory, *(None if keys is None else keys[sources] for keys in (self.keys, self.projected_keys)))

    def tensors(self) -> list[Tensor]:
        found = (self.memory.states, self.memory.mask.keys, self.keys, self.projected_keys)
        return [tensor for tensor in found if tensor is not None]


@dataclass
class RecurrentState:
    """The state of a decoder between two steps: its vectors, and the tokens so far, to go back to an earlier step."""

    decoder: "RecurrentDecoder"
    vectors: Vectors
    source: Source | None
    read: Int[Tensor, "rows capacity"]
    position: Int[Tensor, "#rows 1"]
    growing: bool

    def __deepcopy__(self, known: dict[int, Any]) -> "RecurrentState":
        """Copy all but the decoder, whose weights are not part of the state."""
        known[id(self.decoder)] = self.decoder
        return RecurrentState(*(deepcopy(getattr(self, field.name), known) for field in fields(self)))

    def take(self, tokens: Int[Tensor, "rows n"], vectors: Vectors) -> None:
        """The tokens were read, and these vectors are what is left of them."""
        if self.growing:
            self.read = torch.cat([self.read, tokens], dim=1)
        else:
            places = self.position + torch.arange(tokens.shape[1], device=tokens.device)
            self.read.scatter_(1, places.expand_as(tokens), tokens)
        for old, new in zip(self.vectors, vectors, strict=True):
            old.copy_(new)  # in place: a captured step goes on reading the same memory
        self.position += tokens.shape[1]

    def reorder(self, rows: Int[Tensor, " kept"]) -> None:
        """Row i continues the old row rows[i]. Rows that share a source must stay with it."""
        if len(rows) == len(self.read):
            for tensor in (self.read, *self.vectors):
                tensor.copy_(tensor[rows])
        else:
            self.read, self.vectors = self.read[rows], tuple(vector[rows] for vector in self.vectors)
        if self.position.shape[0] > 1:
            self.position = self.position[rows]

    def fan_out(self, size: int) -> None:
        """Each row becomes `size` neighbours."""
        self.reorder(torch.arange(len(self.read), device=self.read.device).repeat_interleave(size))

    def choose(self, sources: Int[Tensor, " kept"]) -> None:
        """Keep these sources only; `reorder` does the same for the rows."""
        self.source = None if self.source is None else self.source.choose(sources)

    def truncate(self, length: int | Int[Tensor, "rows 1"]) -> None:
        """Forget every position from `length` on. There is no way back: what comes before is read again."""
        rows, device = len(self.read), self.read.device
        kept = torch.minimum(self.position, torch.as_tensor(length, device=device)).expand(rows, 1)
        shortest, longest = int(kept.min()), int(kept.max())
        x = self.decoder.embed(self.read[:, :longest])
        vectors = self.decoder.first(rows, self.source)
        if shortest:
            _, vectors = self.decoder.read(x[:, :shortest], vectors, self.source)
        for place in range(shortest, longest):
            _, after = self.decoder.read(x[:, place : place + 1], vectors, self.source)
            vectors = tuple(torch.where(place < kept, new, old) for new, old in zip(after, vectors, strict=True))
        for old, new in zip(self.vectors, vectors, strict=True):
            old.copy_(new)
        self.position = kept.clone() if isinstance(length, Tensor) else self.position.clamp(max=length)
        if self.growing:
            self.read = self.read[:, :longest]

    def tensors(self) -> list[Tensor]:
        return [self.position, self.read, *self.vectors, *([] if self.source is None else self.source.tensors())]


class RecurrentDecoder(AutoregressiveDecoder):
    """The next token from a state that has read all before it (Mikolov et al. 2010).

    With a memory, its vectors begin as tanh(W v), v being the one vector that stands for the source (Bahdanau et al.
    2015, A.2.2). A subclass may attend to the source: it defines the sizes of its state (`kept`) and how it reads.
    Dropout is on the words, between the layers and before the output, never on the state (Zaremba et al.
    2014).
    """

    ordered = True
    window = None

    def __init__(self, tower: Tower, *, vocabulary: int, memory_width: int | None = None) -> None:
        super().__init__()
        recurrent = tower.recurrent
        assert recurrent is not None
        self.width, self.cell = tower.width, recurrent.cell
        self.bptt, self.direction = recurrent.bptt, recurrent.direction
        self.of_images = tower.image is not None
        assert memory_width is not None or self.direction == "forward", "a language model reads forward"
        assert memory_width is None or self.bptt is None, "only a language model cuts its gradient short"
        self.tokens = tokens(tower, vocabulary)
        self.dropout = Dropout(tower.dropout)
        self.widen = nn.Identity() if tower.embedding.width is None else nn.Linear(input_width(tower), tower.width)
        self.blocks = self.stack(tower)
        self.sizes = self.kept(tower)
        self.start = None if memory_width is None else nn.Linear(memory_width, sum(self.sizes))
        self.narrow = nn.Identity() if tower.embedding.width is None else nn.Linear(tower.width, input_width(tower))
        self.output = nn.Linear(input_width(tower), vocabulary, bias=False)
        if tower.tied != "none":
            self.output.weight = self.tokens.table.weight

    def stack(self, tower: Tower) -> nn.ModuleList:
        """The layers that read."""
        return blocks(tower, tower.decoder_depth or tower.depth, causal=True)

    def kept(self, tower: Tower) -> tuple[int, ...]:
        """The widths of the vectors that are carried on."""
        return (tower.width,) * (VECTORS[self.cell] * len(self.blocks))

    # As every decoder.

    def embed(
        self, tokens: Int[Tensor, "batch length"], positions: Int[Tensor, "#batch length"] | None = None
    ) -> Float[Tensor, "batch length width"]:
        return self.widen(self.dropout(self.tokens(tokens)))  # type: ignore[no-any-return]

    def forward(
        self, x: Float[Tensor, "batch length width"], memory: Memory | None = None, *, mask: Mask = Mask(causal=True),
        positions: Int[Tensor, "#batch length"] | None = None,
    ) -> Float[Tensor, "batch length out"]:
        assert mask.documents is None, "recurrent blocks read on from one text to the next"
        source = self.see(memory)
        return self.read(x, self.first(len(x), source), source)[0]

    def logits(self, states: Float[Tensor, "batch length out"]) -> Float[Tensor, "batch length vocabulary"]:
        return self.output(states)  # type: ignore[no-any-return]

    def begin(self, rows: int, memory: Memory | None = None, *, capacity: int | None = None) -> RecurrentState:
        source, device = self.see(memory), self.output.weight.device
        vectors = tuple(vector.clone() for vector in self.first(rows, source))
        read = torch.zeros(rows, capacity or 0, dtype=torch.long, device=device)
        position = torch.zeros(1, 1, dtype=torch.long, device=device)
        return RecurrentState(self, vectors, source, read, position, growing=capacity is None)

    def step(self, tokens: Int[Tensor, "rows n"], state: RecurrentState) -> Float[Tensor, "rows n out"]:
        states, vectors = self.read(self.embed(tokens), state.vectors, state.source)
        state.take(tokens, vectors)
        return states

    # As it is recurrent.

    def see(self, memory: Memory | None) -> Source | None:
        return None if memory is None else Source(memory)

    def summary(self, source: Source) -> Float[Tensor, "sources memory"]:
        """The one vector that stands for a source: of a text the last state, of an image the mean of its places."""
        states, keys = source.memory.states, source.memory.mask.keys
        return states.mean(1) if self.of_images else summary(states, keys, direction=self.direction)

    def first(self, rows: int, source: Source | None) -> Vectors:
        """The vectors before the first token. Where there are more rows than sources, neighbours share one."""
        if source is None or self.start is None:
            return tuple(self.output.weight.new_zeros(rows, size) for size in self.sizes)
        begun: Tensor = torch.tanh(self.start(self.summary(source)))
        return tuple(begun.repeat_interleave(rows // len(begun), 0).split(self.sizes, dim=-1))

    def read(
        self, x: Float[Tensor, "rows n width"], vectors: Vectors, source: Source | None = None
    ) -> tuple[Float[Tensor, "rows n out"], Vectors]:
        """The states of the next n tokens, and the vectors after them."""
        pieces = list[Tensor]()
        for piece in x.split(self.bptt or max(1, x.shape[1]), dim=1):
            if pieces:  # the gradient ends here; what was read does not
                vectors = tuple(vector.detach() for vector in vectors)
            states, vectors = self.through(piece, vectors)
            pieces.append(states)
        return self.narrow(pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=1)), vectors

    def through(
        self, x: Float[Tensor, "rows n inputs"], vectors: Vectors
    ) -> tuple[Float[Tensor, "rows n width"], Vectors]:
        """Through all layers, each with its own vectors."""
        after = list[Tensor]()
        for place, block in enumerate(self.blocks):
            assert isinstance(block, Recurrent)
            mine = vectors[place * block.vectors : (place + 1) * block.vectors]
            x, new = block.read(x, mine)
            after += new
        return x, tuple(after)
