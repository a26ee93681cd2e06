"""Shared by both kernels of windowed attention: when a window is worth it, and the global tokens."""

from torch import Tensor

from regard.kernels.calls import AttentionCall
from regard.nn.mask import AttentionPositions, whole

__all__ = ["is_windowed", "with_globals"]


def is_windowed(call: AttentionCall) -> bool:
    """A sequence with itself that is much longer than its window. Spans see past any window."""
    window, length = call.mask.window, call.q.shape[2]
    return (window is not None and call.mask.spans is None and call.positions is None
            and length == call.k.shape[2] > 2 * window)


def with_globals(call: AttentionCall, context: Tensor) -> Tensor:
    """The context of all queries, with that of the global tokens, which see everything, in its place."""
    mask, (batch, heads, length, head) = call.mask, call.q.shape
    # Where the global tokens ask elsewhere, with queries of their own, they are blind here.
    if mask.globals is None or mask.blind is mask.globals or mask.global_count == 0:
        return context
    places = AttentionPositions(mask.global_places.expand(batch, -1), whole(length, call.q.device))
    index = places.queries[:, None, :, None]
    # A token that is not global, in a row with fewer of them than others, gets what it has once more.
    seen = call.attend(call._replace(q=call.q.gather(2, index.expand(-1, heads, -1, head)), positions=places))
    return context.scatter(2, index.expand_as(seen), seen)
