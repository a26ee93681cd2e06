"""The numbers of a run: which updates were not applied, and which gradients stood out."""

import math
from collections import deque
from statistics import median

import torch
from torch import Tensor

from regard.settings.errors import NotFinite, count
from regard.training.log import Log

__all__ = ["GradMonitor"]

SPIKE = 10.0  # times the usual length of the gradient, beyond which it is worth a line
# And times the longest of late: where most examples are known by heart, or batches are small, a gradient of ten times
# the median comes every now and then, and means nothing.
BEYOND = 3.0
RECENT_GRADIENTS = 100  # gradients that are compared with
MIN_GRADIENTS = 20  # of them, before which nothing is usual yet


class GradMonitor:
    """Looks at each step's gradient one step late: to look at once would let a GPU wait for the host."""

    def __init__(self, log: Log, *, most: int, clip: float | None = None, skipped: int = 0, in_row: int = 0) -> None:
        self.log, self.most, self.clip = log, most, clip
        self.skipped, self.in_row = skipped, in_row
        self.recent: deque[float] = deque(maxlen=RECENT_GRADIENTS)
        self.waiting: deque[tuple[int, Tensor, torch.cuda.Event | None]] = deque()

    def note(self, step: int, norm: Tensor) -> None:
        """The gradient of the update before `step`; the one before it is judged now."""
        event = None
        if norm.is_cuda:
            held = torch.empty((), dtype=norm.dtype, pin_memory=True)
            held.copy_(norm, non_blocking=True)
            norm, event = held, torch.cuda.current_stream().record_event()
        self.waiting.append((step, norm, event))
        while len(self.waiting) > 1:
            self._judge()

    def settle(self) -> None:
        """Judge what is left, as before a checkpoint."""
        while self.waiting:
            self._judge()

    def _judge(self) -> None:
        step, held, event = self.waiting.popleft()
        if event is not None:
            event.synchronize()
        norm = float(held)
        if not math.isfinite(norm):
            self.skipped, self.in_row = self.skipped + 1, self.in_row + 1
            self.log.write("skipped", step=step, in_row=self.in_row)
            self.log.say(f"step {step:>6,}: the gradient is not finite; the update was not applied")
            if self.in_row >= self.most:
                raise NotFinite(f"{count(self.in_row, 'update')} in a row had a gradient that is not finite, the last "
                                f"at step {step:,}; what was saved before is intact. A lower train.learning_rate, a "
                                "longer train.warmup or train.precision=float32 may help")
            return
        self.in_row = 0
        if len(self.recent) >= MIN_GRADIENTS and norm > BEYOND * max(self.recent):
            self._weigh(step, norm, median(self.recent))
        self.recent.append(norm)

    def _weigh(self, step: int, norm: float, usual: float) -> None:
        """A gradient longer than all of late is worth a line if it is far from the usual one, too."""
        if 0 < usual < norm / SPIKE:
            self.log.write("spike", step=step, norm=norm, usual=usual)
            self.log.say(f"step {step:>6,}: a gradient of {norm:.3g}, {norm / usual:,.0f} times the usual"
                         + ", was clipped" * (self.clip is not None and norm > self.clip))
