"""Write checkpoints in the background during training."""

import time
from collections.abc import Collection, Mapping
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.checkpoint.checkpoint import retire, save_checkpoint
from regard.settings.errors import Failure

__all__ = ["Saver"]

GRAIN = 64  # bytes: where each buffer begins


class Saver:
    """Saves checkpoints in a thread, one at a time; the next call raises an error of the last one.

        with Saver(run, keep=2) as saver:
            saver.save(step, weights=named_tensors(model), optimizer=…, state={…}, also=[best_step])

    The tensors may be changed as soon as `save` returns. `room` is the number of their bytes on a GPU: memory for the
    copies is then pinned at the start, because pinning it in the first save would pause training for a second.
    """

    seconds = 0.0
    """Seconds that the last checkpoint took to write, read back and hash."""
    stalled = 0.0
    """Seconds that the last `save` paused its caller."""

    def __init__(self, run: Path, *, keep: int, room: int = 0) -> None:
        self.run, self.keep = run, keep
        self.room = _Room(room)
        self.pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="saver")
        self.pending: Future[None] | None = None
        self.buffers: dict[str, dict[str, Tensor]] = {"weights": {}, "optimizer": {}}

    def save(self, step: int, *, weights: Mapping[str, Tensor], optimizer: Mapping[str, Tensor],
             state: Mapping[str, Any], also: Collection[int] = ()) -> None:
        """Take a copy and write it in the background; then delete all but the newest and the steps in `also`."""
        began = time.monotonic()
        self.wait()  # the thread reads the buffers that are filled next
        copies = {name: _copy(tensors, self.buffers[name], self.room)
                  for name, tensors in (("weights", weights), ("optimizer", optimizer))}
        ready = _recorded([*weights.values(), *optimizer.values()])
        self.pending = self.pool.submit(self._write, step, copies, dict(state), tuple(also), ready)
        self.stalled = time.monotonic() - began

    def wait(self) -> None:
        """Wait until everything is on the disk."""
        if self.pending is not None:
            futures.wait([self.pending])  # if this is interrupted, it is still pending
            done, self.pending = self.pending, None
            done.result()

    def _write(self, step: int, copies: dict[str, dict[str, Tensor]], state: dict[str, Any], also: tuple[int, ...],
               ready: list[torch.cuda.Event]) -> None:
        began = time.monotonic()
        for event in ready:
            event.synchronize()
        checkpoint = save_checkpoint(self.run, step, **copies, state=state)
        if wrong := checkpoint.verify():
            raise Failure(f"{wrong}, right after it was written; no older checkpoint was removed for it")
        retire(checkpoint, self.keep, also)
        self.seconds = time.monotonic() - began

    def __enter__(self) -> "Saver":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.wait()
        except Exception as lost:
            if error is None:
                raise
            error.add_note(str(lost))  # the run ends with the first error
        finally:
            self.pool.shutdown()


class _Room:
    """Pinned host memory, to which a GPU copies in the background; in one piece, because many pieces take longer."""

    def __init__(self, size: int) -> None:
        self.memory = torch.empty(size, dtype=torch.uint8, pin_memory=size > 0)
        self.taken = 0

    def like(self, tensor: Tensor) -> Tensor:
        """A buffer for a tensor; separate memory if there is no room left."""
        start = -(-self.taken // GRAIN) * GRAIN
        if not tensor.is_cuda or start + tensor.nbytes > len(self.memory):
            return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
        self.taken = start + tensor.nbytes
        return self.memory[start : self.taken].view(tensor.dtype).view(tensor.shape)


def _copy(tensors: Mapping[str, Tensor], buffers: dict[str, Tensor], room: _Room) -> dict[str, Tensor]:
    """Copy the tensors into host memory, in reused buffers: pinning memory is slow.

    Copies from a GPU are asynchronous: they are only queued when this returns. They are in the current stream, so the
    kernels of the next step run after them.
    """
    for name in buffers.keys() - tensors.keys():
        del buffers[name]
    for name, tensor in tensors.items():
        buffer = buffers.get(name)
        if buffer is None or buffer.shape != tensor.shape or buffer.dtype != tensor.dtype:
            buffers[name] = room.like(tensor)
        buffers[name].copy_(tensor.detach(), non_blocking=tensor.is_cuda)
    return dict(buffers)


def _recorded(tensors: list[Tensor]) -> list[torch.cuda.Event]:
    """An event for each GPU, after all work queued so far."""
    devices = {tensor.device for tensor in tensors if tensor.is_cuda}
    # Blocking events: a thread that spins would take a core from the training.
    return [torch.cuda.current_stream(device).record_event(torch.cuda.Event(blocking=True)) for device in devices]
