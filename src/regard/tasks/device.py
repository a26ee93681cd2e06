"""Where a model runs."""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from regard.settings.errors import Failure, UserError

__all__ = ["choose_device", "fast_bfloat16", "fits"]


def choose_device(name: str) -> torch.device:
    """`auto`: the best there is. A device that is not there is an error that says what is."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(device for device, is_there in there.items() if is_there)
    if not there.get(name):
        others = ", ".join(device for device, is_there in there.items() if is_there)
        raise UserError(f"device={name}: not available here; there is: {others}")
    if name == "cpu":
        _keep_memory()
    if name == "cuda":
        # Products of float32 numbers by the matrix units (TF32): three times as fast, with an error of a thousandth.
        torch.set_float32_matmul_precision("high")
    return torch.device(name)


def fast_bfloat16(device: torch.device) -> bool:
    """Whether products of bfloat16 numbers are done by units of their own. Emulated, they are slower than float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    asked = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")  # torch has no public name for this yet
    return device.type == "cpu" and any(getattr(torch.cpu, name, lambda: False)() for name in asked)


@contextmanager
def fits(what: str, advice: str) -> Iterator[None]:
    """What to do where the memory does not suffice; any other error stays itself."""
    try:
        yield
    except RuntimeError as error:
        if not (isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)):
            raise
        raise Failure(f"{what} does not fit into memory; {advice}") from error


def _keep_memory() -> None:
    """Let the C library keep freed memory instead of giving it back to the system after every operation.

    Each tensor of more than a few hundred kilobytes is otherwise mapped, cleared page by page and unmapped again:
    a sixth of a training step on a CPU. Only glibc has this switch; elsewhere nothing happens.
    """
    if sys.platform != "linux":
        return
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):  # another C library
        return
    largest_mapped, trim = -4, -1  # M_MMAP_MAX: map nothing; M_TRIM_THRESHOLD: never give back
    mallopt(largest_mapped, 0)
    mallopt(trim, -1)
