"""A large product on a GPU whose outputs are an odd number: in rows that all begin in line.

The library would store it number by number otherwise.
"""

import torch
from torch import Tensor

from regard.kernels.calls import LinearCall
from regard.kernels.kernel import Kernel

__all__ = ["KERNEL"]

ALIGNMENT = 64  # numbers: the step in which the library likes rows to begin
MANY_OUTPUTS = 4_096  # from which on it matters


def serves(call: LinearCall) -> bool:
    x, outputs = call.x, call.weight.shape[0]
    return (not torch.is_grad_enabled() and not torch.is_autocast_enabled("cuda")
            and x.dtype == call.weight.dtype and outputs % ALIGNMENT != 0 and outputs > MANY_OUTPUTS)


def run(call: LinearCall) -> Tensor:
    """Rows with room to their right; the odd end separately."""
    rows, outputs = call.x.flatten(0, -2), call.weight.shape[0]
    even = outputs // ALIGNMENT * ALIGNMENT
    room = rows.new_empty(len(rows), even + ALIGNMENT)
    for part in (slice(0, even), slice(even, outputs)):
        torch.mm(rows, call.weight[part].T, out=room[:, part])
    y: Tensor = room[:, :outputs].unflatten(0, call.x.shape[:-1])
    return y if call.bias is None else y.add_(call.bias)


KERNEL = Kernel("linear.aligned_rows", serves, run, device="gpu")
