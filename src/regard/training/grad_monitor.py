"""Monitors gradients: counts skipped updates, and reports unusually large gradients."""

import math
from collections import deque
from statistics import median

import torch
from torch import Tensor

from regard.settings.errors import NotFinite, count
from regard.training.log import Log

__all__ = ["GradMonitor"]

SPIKE = 10.0  # times the median norm of the gradient; a larger one is reported
# And times the largest recent one: if most examples are memorized, or batches are small, a gradient of ten times
# the median is common and harmless.
BEYOND = 3.0
RECENT_GRADIENTS = 100  # gradients to compare with
MIN_GRADIENTS = 20  # at least this many for a median


class GradMonitor:
    """Reads each step's gradient norm one step late: reading it at once would make the GPU wait for the host."""

    def __init__(self, log: Log, *, most: int, clip: float | None = None, skipped: int = 0, in_row: int = 0) -> None:
        self.log, self.most, self.clip = log, most, clip
        self.skipped, self.in_row = skipped, in_row
        self.recent: deque[float] = deque(maxlen=RECENT_GRADIENTS)
        self.waiting: deque[tuple[int, Tensor, torch.cuda.Event | None]] = deque()

    def note(self, step: int, norm: Tensor) -> None:
        """Record the gradient norm of the update before `step`, and judge the one before it."""
        event = None
        if norm.is_cuda:
            held = torch.empty((), dtype=norm.dtype, pin_memory=True)
            held.copy_(norm, non_blocking=True)
            norm, event = held, torch.cuda.current_stream().record_event()
        self.waiting.append((step, norm, event))
        while len(self.waiting) > 1:
            self._judge()

    def settle(self) -> None:
        """Judge the last gradient, for example before a checkpoint."""
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
            self.log.say(f"step {step:>6,}: the gradient is not finite; the update was skipped")
            if self.in_row >= self.most:
                raise NotFinite(f"{count(self.in_row, 'update')} in a row had a gradient that is not finite, the last "
                                f"at step {step:,}; earlier checkpoints are intact. A lower train.learning_rate, a "
                                "longer train.warmup or train.precision=float32 may help")
            return
        self.in_row = 0
        if len(self.recent) >= MIN_GRADIENTS and norm > BEYOND * max(self.recent):
            self._weigh(step, norm, median(self.recent))
        self.recent.append(norm)

    def _weigh(self, step: int, norm: float, usual: float) -> None:
        """Report a gradient that is larger than all recent ones and far from the median."""
        if 0 < usual < norm / SPIKE:
            self.log.write("spike", step=step, norm=norm, usual=usual)
            self.log.say(f"step {step:>6,}: a gradient of {norm:.3g}, {norm / usual:,.0f} times the median"
                         + ", was clipped" * (self.clip is not None and norm > self.clip))
