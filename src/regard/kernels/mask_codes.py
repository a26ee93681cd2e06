"""A mask of padding and documents as one number for each token: what the windowed kernels compare."""

import torch
from torch import Tensor

from regard.kernels.once import once
from regard.nn.mask import Mask

__all__ = ["BLIND", "UNSEEN", "codes"]

UNSEEN, BLIND = -(2**31), 1 - 2**31  # the codes of a key that no query sees, and of a query that sees no key


def codes(mask: Mask) -> tuple[Tensor, Tensor] | None:
    """A number for each token (rows, length) as a query and as a key: a query sees no key of another number.

    None: it sees all.
    """
    known = [part for part in (mask.keys, mask.documents, mask.blind) if part is not None]
    return once(mask, "codes", lambda: _coded(mask, known[0])) if known else None


def _coded(mask: Mask, like: Tensor) -> tuple[Tensor, Tensor]:
    document = torch.zeros_like(like, dtype=torch.int32) if mask.documents is None else mask.documents.int()
    asks = document if mask.blind is None else document.masked_fill(mask.blind, BLIND)
    return asks, document if mask.keys is None else document.masked_fill(~mask.keys, UNSEEN)
