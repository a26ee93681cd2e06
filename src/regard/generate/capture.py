"""Capturing a step on a GPU: its hundreds of launches become one."""

from collections.abc import Callable

import torch

__all__ = ["capture"]


def capture(advance: Callable[[], None]) -> Callable[[], None]:
    """The same step, recorded at its second call and replayed from the third on.

    `advance` must change tensors in place and look at none of their values from the host.
    """
    graph = torch.cuda.CUDAGraph()
    calls = 0

    def step() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:  # a first call in the open: libraries set themselves up, memory is found
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                advance()
            torch.cuda.current_stream().wait_stream(stream)
            return
        if calls == 2:
            with torch.cuda.graph(graph):
                advance()
        graph.replay()

    return step
