"""Attention over short sequences on a CPU: the heads of all rows in two batched products, and a softmax between them.

The general kernel goes through rows and heads one by one, which is slower the shorter they are: at 24 to 64 tokens
this takes four fifths of its time, and where there is padding, two thirds.
"""

import math

import torch
from torch import Tensor

from regard.nn.mask import Mask

__all__ = ["attend", "serves"]

SHORTEST = 16  # keys; torch's softmax takes fewer one by one
LONGEST = 64


def serves(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> bool:
    """Whether to attend so: a sequence with itself, without a gradient, and no mask but padding."""
    return (
        q.device.type == "cpu" and q.dtype == k.dtype == torch.float32 and q.shape == k.shape == v.shape
        and SHORTEST <= k.shape[2] <= LONGEST and not torch.is_grad_enabled() and not torch.compiler.is_compiling()
        and not mask.causal and mask.window is None and mask.documents is None and mask.blind is None
        # A row that may see nothing would be 0/0.
        and (mask.keys is None or bool(mask.keys.any(1).all())))


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Mask, scale: float) -> Tensor:
    rows, heads, length, _ = q.shape
    unseen = q.new_zeros(1, 1, length)
    if mask.keys is not None:
        unseen = unseen.where(mask.keys[:, None], -math.inf).repeat_interleave(heads, 0)
    q, k, v = (x.flatten(0, 1) for x in (q, k, v))
    scores = torch.baddbmm(unseen, q, k.mT, alpha=scale)
    return torch.bmm(scores.softmax(-1), v).unflatten(0, (rows, heads))
