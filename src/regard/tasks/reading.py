"""What all tasks of an encoder share: texts to rows of ids, rows to states, vectors and attention."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Lock
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.data.notes import Notes
from regard.data.tokenizer import Tokenizer
from regard.kernels.linear_onednn import Layouts, lasting
from regard.look.hooks import in_this_thread
from regard.look.outputs import records
from regard.look.record import Labels, Record
from regard.look.watch import watch
from regard.models.encoder import Encoder
from regard.nn.head import pooled
from regard.nn.mask import Mask
from regard.settings.errors import NotFinite, out_of

__all__ = ["alike", "attention", "layers", "padded", "rows_of", "seen", "vectors"]

MAX_GPU_TOKENS = 1 << 14  # tokens that are read at once on a GPU
# On a CPU: enough to keep it busy, and so few that they stay in its caches.
MIN_CPU_TOKENS, MAX_CPU_TOKENS = 1 << 8, 1 << 10
SMALLEST = 1e-12  # length by which a vector is divided: zeros stay zeros
_SIDE_BY_SIDE = Lock()  # held while batches are read so


class Alike(NamedTuple):
    """Rows of like lengths, and the places that they had among all."""

    places: list[int]
    tokens: Int[Tensor, "rows length"]


def rows_of(tokens: Tokenizer, texts: Sequence[str], *, longest: int,
            notes: Notes | None = None) -> list[list[int]]:
    """Each text between its start and its end, cut so that both are there; the notes say how many were."""
    encoded = tokens.encode(texts)
    cut = sum(len(ids) > longest - 2 for ids in encoded)
    if notes is not None:
        notes.count_up("texts", cut, len(texts), lambda part, whole, _: (
            f"{out_of(part, whole, 'text')} cut to data.max_tokens={longest} tokens"))
    return [[tokens.start, *ids[: longest - 2], tokens.end] for ids in encoded]


def padded(rows: Sequence[Sequence[int]], *, pad: int,
           shape: tuple[int, int] | None = None) -> Int[Tensor, "rows length"]:
    """In a tensor as long as the longest, or of a given shape; what is missing is padding."""
    whole = np.full(shape or (len(rows), max(map(len, rows))), pad, dtype=np.int64)
    for place, row in zip(whole, rows, strict=False):
        place[: len(row)] = row
    return torch.from_numpy(whole)


def alike(rows: Sequence[Sequence[int]], *, pad: int, device: torch.device) -> Iterator[Alike]:
    """All rows, the longest first, in batches with next to no padding."""
    order, at = sorted(range(len(rows)), key=lambda i: -len(rows[i])), 0
    while at < len(order):
        length = len(rows[order[at]])
        count = max(1, (MAX_CPU_TOKENS if device.type == "cpu" else MAX_GPU_TOKENS) // length)
        if device.type == "cpu":  # which reads small batches as fast: others join those of one length if these are few
            same = sum(len(rows[i]) == length for i in order[at : at + count])
            count = max(same, -(-MIN_CPU_TOKENS // length))
        some = order[at : at + count]
        at += count
        yield Alike(some, padded([rows[i] for i in some], pad=pad).to(device))


def seen(tokens: Int[Tensor, "rows length"], *, pad: int, window: int | None) -> Mask:
    """Padding is not looked at. Beside a window, the first token sees all and is seen by all: it stands for them."""
    real = tokens != pad
    if window is None:
        # A CPU can look whether there is any; without a mask its attention is faster. In training, what is done must
        # not depend on it: a step may be compiled, or only traced.
        can_look = real.device.type == "cpu" and not torch.is_grad_enabled()
        return Mask() if can_look and bool(real.all()) else Mask(keys=real)
    first = torch.zeros_like(real)
    first[:, 0] = True
    # That it is one at the most is said here: to count them, a GPU would have to be waited for.
    return Mask(keys=real, globals=first & real, most_globals=1)


def vectors(model: nn.Module, rows: Sequence[Sequence[int]], *, pad: int, pool: str,
            normalize: bool = False) -> Float[np.ndarray, "rows width"]:
    """A vector for each row, in order; with `normalize`, of length 1."""
    encoder, device = _encoder(model), next(model.parameters()).device
    found, layouts = np.empty((len(rows), encoder.width), np.float32), Layouts()

    def read(some: Alike) -> None:
        places, tokens = some
        with torch.no_grad(), lasting(layouts):  # every thread has to be told
            states = encoder(encoder.embed(tokens), mask=seen(tokens, pad=pad, window=encoder.window))
            found[places] = pooled(states, tokens != pad, how=pool).float().cpu().numpy()

    batches = alike(rows, pad=pad, device=device)
    if device.type == "cpu" and not _is_looked_into(encoder):
        _side_by_side(read, list(batches))
    else:  # on a GPU they are made, and their memory taken, one by one
        for batch in batches:
            read(batch)
    if not np.isfinite(found).all():
        raise NotFinite("the model's states are not numbers: its training went wrong")
    return found / np.linalg.norm(found, axis=1, keepdims=True).clip(min=SMALLEST) if normalize else found


def _is_looked_into(encoder: Encoder) -> bool:
    """Whether a hook is there, which wants to be called in the thread that put it there, and in order."""
    return any(part._forward_hooks or part._forward_pre_hooks for part in encoder.modules())


def _side_by_side(read: Callable[[Alike], None], batches: Sequence[Alike]) -> None:
    """On a CPU every thread reads batches of its own: those that share one wait for each other at each operation."""
    threads = torch.get_num_threads()
    # The number of threads is one for all: who comes while others read so finds no idle core, and changes nothing.
    if not 1 < threads <= len(batches) or not _SIDE_BY_SIDE.acquire(blocking=False):
        for batch in batches:
            read(batch)
        return
    with ExitStack() as after:
        after.callback(_SIDE_BY_SIDE.release)  # last, whatever goes wrong before
        after.callback(torch.set_num_threads, threads)  # for threads to come; this one had them all the time
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            for _ in pool.map(read, batches):
                pass  # what went wrong in a thread is raised here


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
        encoder(encoder.embed(tokens), mask=seen(tokens, pad=pad, window=encoder.window))
    finally:
        for hook in hooks:
            hook.remove()
    return torch.cat(found).float().cpu()


@torch.no_grad()
def attention(model: nn.Module, tokens: Tokenizer, rows: Sequence[Sequence[int]], *, only: str | Sequence[str] = "*",
              heads: Sequence[int] | None = None, said: Sequence[Sequence[int]] | None = None,
              segments: Callable[[Tensor], Tensor | None] = lambda read: None) -> list[Record]:
    """What each token of each row looks at, in every row alone; `said` is what is read at its places, where it differs.

    `segments` tells those of a row of ids.
    """
    encoder, found = _encoder(model), list[Record]()
    for row, output in zip(rows, said or rows, strict=True):
        read = torch.tensor([list(row)], device=next(model.parameters()).device)
        with watch(model, only, heads=heads) as watched:
            encoder(encoder.embed(read, segments=segments(read)),
                    mask=seen(read, pad=tokens.pad, window=encoder.window))
        targets, sources = tuple(tokens.pieces(output)), tuple(tokens.pieces(row))
        # A first token that looks by projections of its own is the one row of that attention.
        rows_at = {site: sum(piece.weights.shape[2] for piece in watched.pieces[site]) for site in watched}
        found += records(watched, [{site: Labels(targets[:count], sources) for site, count in rows_at.items()}])
    return found


def _encoder(model: nn.Module) -> Encoder:
    encoder = model.encoder
    assert isinstance(encoder, Encoder)
    return encoder
