"""A vector for each text: an encoder's states, pooled."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from threading import Lock

import numpy as np
import torch
from jaxtyping import Float
from torch import nn

from regard.data.text.rows import RowBatch, by_length, encoder_mask
from regard.kernels.linear_onednn import Layouts, lasting
from regard.models.encoder import Encoder
from regard.nn.head import pooled
from regard.settings.errors import NotFinite

__all__ = ["vectors"]

SMALLEST = 1e-12  # length by which a vector is divided: zeros stay zeros
_SIDE_BY_SIDE = Lock()  # held while batches are read so


def vectors(model: nn.Module, rows: Sequence[Sequence[int]], *, pad: int, pool: str,
            normalize: bool = False) -> Float[np.ndarray, "rows width"]:
    """A vector for each row, in order; with `normalize`, of length 1."""
    encoder, device = model.encoder, next(model.parameters()).device
    assert isinstance(encoder, Encoder)
    # A learned query is the model's own.
    one_of = model.get_submodule("pool") if pool == "learned" else partial(pooled, how=pool)
    found, layouts = np.empty((len(rows), encoder.width), np.float32), Layouts()

    def read(some: RowBatch) -> None:
        places, tokens = some
        with torch.no_grad(), lasting(layouts):  # it must be set in every thread
            states = encoder(encoder.embed(tokens), mask=encoder_mask(tokens, pad=pad, window=encoder.window))
            found[places] = one_of(states, tokens != pad).float().cpu().numpy()

    batches = by_length(rows, pad=pad, device=device)
    if device.type == "cpu" and not _is_looked_into(encoder):
        _side_by_side(read, list(batches))
    else:  # on a GPU they are made, and their memory taken, one by one
        for batch in batches:
            read(batch)
    if not np.isfinite(found).all():
        raise NotFinite("the model's states are not finite; train it again")
    return found / np.linalg.norm(found, axis=1, keepdims=True).clip(min=SMALLEST) if normalize else found


def _is_looked_into(encoder: Encoder) -> bool:
    """Whether a hook is there, which wants to be called in the thread that put it there, and in order."""
    return any(part._forward_hooks or part._forward_pre_hooks for part in encoder.modules())


def _side_by_side(read: Callable[[RowBatch], None], batches: Sequence[RowBatch]) -> None:
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
