"""watch: the weights of any attention of any model while it runs, without changing a bit of its output.

A hook stands before each `Attend` that was chosen, and works out the weights by their definition from the very tensors
that the fast path is about to use. Nothing in a model knows of it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.look.thread_hooks import eagerly, in_this_thread
from regard.nn.attend import Attend, AttentionPositions, Bias
from regard.nn.mask import whole
from regard.settings.errors import UserError, amount

__all__ = ["Reduce", "Seen", "matching", "mean_over_heads", "sites", "sliding_window", "top", "watch"]

WEIGHT_BYTES_AT_ONCE = 16 << 20  # of weights: a large record needs little more memory than itself
KEYS = 4 << 20  # and of keys, in float32
LIMIT = 1 << 30
CPU = torch.device("cpu")


class Kept(NamedTuple):
    """Weights of some queries: of all keys in order, or of those that `keys` names."""

    weights: Float[Tensor, "batch heads queries kept"]
    keys: Int[Tensor, "batch heads queries kept"] | None = None


Reduce = Callable[[Float[Tensor, "batch heads queries keys"], AttentionPositions], Kept]
"""Reduces weights, given the positions of their queries and keys."""


def mean_over_heads(weights: Float[Tensor, "batch heads queries keys"], places: AttentionPositions) -> Kept:
    return Kept(weights.mean(1, keepdim=True))


def top(count: int) -> Reduce:
    """The `count` keys that get the most."""
    def keep(weights: Float[Tensor, "batch heads queries keys"], places: AttentionPositions) -> Kept:
        return Kept(*weights.topk(min(count, weights.shape[-1])))

    return keep


def sliding_window(reach: int) -> Reduce:
    """The keys at most `reach` positions away."""
    def keep(weights: Float[Tensor, "batch heads queries keys"], places: AttentionPositions) -> Kept:
        last = weights.shape[-1] - 1
        wanted = places.queries[:, :, None] + torch.arange(-reach, reach + 1, device=weights.device)  # positions
        far = (wanted < 0) | (wanted > last)
        keys = wanted.clamp(0, last)[:, None].expand(*weights.shape[:3], -1)
        return Kept(weights.gather(-1, keys).masked_fill(far[:, None], 0.0), keys)

    return keep


class Seen(Mapping[str, Tensor]):
    """The recorded weights by site: (batch, heads, targets, sources), with zeros for rows that were not kept.

    A site is the path of the attention: `decoder.blocks.3.cross`. Calls of one site, as with a cache, are joined.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.heads: dict[str, tuple[int, ...]] = {}
        self.pieces: dict[str, list[Kept]] = {}
        self.widths: dict[str, int] = {}

    def __getitem__(self, site: str) -> Float[Tensor, "batch heads targets sources"]:
        width = self.widths[site]
        return torch.cat([_dense(piece, width) for piece in self.pieces[site]], dim=2)

    def __iter__(self) -> Iterator[str]:
        return iter(self.pieces)

    def __len__(self) -> int:
        return len(self.pieces)

    @property
    def nbytes(self) -> int:
        kept = [part for pieces in self.pieces.values() for piece in pieces for part in piece if part is not None]
        return sum(part.nbytes for part in kept)

    def take(self, site: str, heads: Sequence[int], piece: Kept, keys: int) -> None:
        self.heads[site] = tuple(heads)
        self.widths[site] = max(self.widths.get(site, 0), keys)
        self.pieces.setdefault(site, []).append(piece)

    def refuse_beyond_limit(self, size: int, site: str) -> None:
        if self.nbytes + size > self.limit:
            raise UserError(
                f"{site}: its weights take {amount(size)}, {amount(self.nbytes + size)} with the others; the "
                f"limit is {amount(self.limit)}. Choose fewer with only=, heads= or rows=, keep less with reduce=, or "
                "raise limit=")


def sites(model: nn.Module) -> dict[str, Attend]:
    """Every attention of a model by the path of its owner."""
    if isinstance(model, Attend):
        return {"": model}
    found: dict[str, Attend] = {}

    def walk(owner: nn.Module, path: str) -> None:  # named_modules takes many times as long as a small forward pass
        for name, part in owner._modules.items():
            here = f"{path}.{name}" if path else name
            if isinstance(part, Attend):
                found[path if name == "attend" else here] = part
            elif part is not None and part._modules:
                walk(part, here)

    walk(model, "")
    return found


def matching(known: Iterable[str], only: str | Sequence[str]) -> list[str]:
    """The sites that one of these patterns names, as file names are: `decoder.*.cross`."""
    patterns, known = [only] if isinstance(only, str) else list(only), list(known)
    if not known:
        raise UserError("this model has no attention to look at: its blocks read one token after the other; `regard "
                        "predict` gives its answers and `regard wrong` its mistakes")
    chosen = [site for site in known if any(fnmatchcase(site, pattern) for pattern in patterns)]
    if not chosen:
        raise UserError(f"{', '.join(patterns)}: no attention of this name; there are {', '.join(known)}")
    return chosen


@contextmanager
def watch(model: nn.Module, only: str | Sequence[str] = "*", *, heads: Sequence[int] | None = None,
          rows: Sequence[int] | None = None, reduce: Reduce | None = None, limit: int = LIMIT) -> Iterator[Seen]:
    """Keep the weights of the attentions whose site matches `only`.

    `heads` and `rows` (the positions of queries) select weights, and only these are computed; `reduce` keeps less
    of each. Compiled models run eagerly meanwhile: hooks do not fire in compiled code. Calls from other threads are
    not recorded.
    """
    known = sites(model)
    chosen = matching(known, only)
    seen = Seen(limit)
    hooks = []
    try:
        for site in chosen:
            wanted = range(known[site].heads) if heads is None else heads
            if wrong := [head for head in wanted if not 0 <= head < known[site].heads]:
                raise UserError(f"head {wrong[0]}: {site} has heads 0 to {known[site].heads - 1}")
            take = partial(_take, seen=seen, site=site, heads=list(wanted), rows=rows, reduce=reduce)
            hooks.append(known[site].register_forward_pre_hook(in_this_thread(take), with_kwargs=True))
        with eagerly():
            yield seen
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def _take(attend: Attend, inputs: tuple[Tensor, ...], options: dict[str, Any], *, seen: Seen, site: str,
          heads: list[int], rows: Sequence[int] | None, reduce: Reduce | None) -> None:
    q, k = inputs[:2]
    places: AttentionPositions = options.get("positions") or AttentionPositions(
        whole(q.shape[2], q.device), whole(k.shape[2], k.device))
    if rows is not None:
        queries = _chosen(places.queries, rows)
        q, places = q.index_select(2, queries), places._replace(queries=places.queries[:, queries])
    wanted = q.shape[2]
    if not wanted:
        return
    size = 4 * q.shape[0] * len(heads) * wanted * k.shape[2]
    kept = size if reduce is None else size * min(1.0, _share(reduce, k.shape[2], len(heads)))
    seen.refuse_beyond_limit(int(kept), site)
    parts = [(attend.pick(few), few) for few in _by_memory(heads, k, max(KEYS, size))]

    @lru_cache(maxsize=1)  # once where all heads go together, one after the other where they do not
    def keys_of(part: int) -> Tensor:
        return _heads(k, [head * k.shape[1] // q.shape[1] for head in parts[part][1]])

    together = max(1, WEIGHT_BYTES_AT_ONCE // max(1, size // wanted))
    with torch.autocast(q.device.type, enabled=False):
        for asking, at in zip(q.split(together, dim=2), places.queries.split(together, dim=1), strict=True):
            here = places._replace(queries=at)
            weights = [part.weights(_heads(asking, few), keys_of(i), mask=options["mask"], positions=here,
                                    bias=_of_heads(options.get("bias"), few))
                       for i, (part, few) in enumerate(parts)]
            whole_piece = weights[0] if len(weights) == 1 else torch.cat(weights, dim=1)
            seen.take(site, heads, Kept(whole_piece) if reduce is None else reduce(whole_piece, here), k.shape[2])


def _by_memory(heads: list[int], k: Float[Tensor, "rows groups keys head"], most: int) -> list[list[int]]:
    """Heads whose float32 keys take `most` bytes together: those of a long text are larger than one row of weights."""
    several = max(1, most // max(1, 4 * k.shape[0] * k.shape[2] * k.shape[3]))
    return [heads[start: start + several] for start in range(0, len(heads), several)]


def _heads(x: Float[Tensor, "rows all length head"], heads: list[int]) -> Float[Tensor, "rows some length head"]:
    """In float32. By views, since a list of numbers as an index makes a GPU wait for it."""
    if len(heads) == 1:
        return x[:, heads[0] : heads[0] + 1].float()
    return torch.stack([x[:, head] for head in heads], dim=1).float()


def _chosen(positions: Int[Tensor, "#batch queries"], rows: Sequence[int]) -> Int[Tensor, " chosen"]:
    """Which queries of this call stand at the wanted positions."""
    here = positions[0]
    return torch.isin(here, torch.tensor(list(rows), device=here.device)).nonzero()[:, 0]


def _of_heads(bias: Bias | None, heads: list[int]) -> Bias | None:
    if bias is None:
        return None

    def of_heads(queries: Tensor, keys: Tensor) -> Tensor:
        added = bias(queries, keys)
        return added[:, heads] if added.shape[1] > 1 else added

    return of_heads


def _share(reduce: Reduce, keys: int, heads: int) -> float:
    """How much of some weights a reduction keeps, found by trying it on one query."""
    positions = AttentionPositions(torch.zeros(1, 1, dtype=torch.long), whole(keys, CPU))
    tried = reduce(torch.zeros(1, heads, 1, keys), positions)
    return sum(part.nbytes for part in tried if part is not None) / (4 * heads * keys)


def _dense(piece: Kept, width: int) -> Tensor:
    if piece.keys is None:
        return nn.functional.pad(piece.weights, (0, width - piece.weights.shape[-1]))
    whole = piece.weights.new_zeros(*piece.weights.shape[:3], width)
    return whole.scatter_add_(-1, piece.keys, piece.weights)  # added: a band's ends are clamped to one key, as zeros
