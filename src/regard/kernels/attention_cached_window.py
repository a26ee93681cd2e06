"""Windowed attention of the newest tokens over a cache: only the keys that they can reach are looked at at all."""

from torch import Tensor

from regard.kernels.calls import AttentionCall
from regard.kernels.kernel import Kernel
from regard.nn.mask import AttentionPositions

__all__ = ["KERNEL"]


def serves(call: AttentionCall) -> bool:
    low, high = _reached(call)
    return low > 0 or high < call.k.shape[2]


def run(call: AttentionCall) -> Tensor:
    assert call.positions is not None
    low, high = _reached(call)
    return call.attend(call._replace(k=call.k[:, :, low:high], v=call.v[:, :, low:high],
                                     positions=call.positions.part(low, high)))


def _reached(call: AttentionCall) -> tuple[int, int]:
    """From which key up to which the queries can see at all, key j standing at position j."""
    mask, places, keys = call.mask, call.positions, call.k.shape[2]
    if (mask.window is None or mask.spans is not None or mask.globals is not None  # spans see past any window
            or places is None or (span := _span(places)) is None):
        return 0, keys
    first, stop = span
    return max(first - mask.window, 0), min(stop if mask.causal else stop + mask.window, keys)


def _span(places: AttentionPositions) -> tuple[int, int] | None:
    """Between which positions all queries stand, the second left out; None where only waiting for a GPU would tell.

    A CPU can look. Elsewhere it is known of the newest only.
    """
    if places.in_order and places.queries.device.type == "cpu":
        return int(places.queries.min()), int(places.queries.max()) + 1
    count, keys = places.queries.shape[1], places.keys.shape[1]
    return (keys - count, keys) if places.in_order and places.newest else None


KERNEL = Kernel("attention.cached_window", serves, run)
