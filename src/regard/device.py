"""Where a model runs."""

import ctypes
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from regard.kernels.memory import free_memory
from regard.settings.errors import Failure, UserError

__all__ = ["available", "choose_device", "fast_bfloat16", "fits", "large_pages", "size_in_words"]

LARGE = 1 << 21  # bytes of a large page
MADV_HUGEPAGE = 14  # Linux's number for the wish


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


def available(device: torch.device) -> int | None:
    """Bytes of memory that a run can have here: of a machine's own, what is free. None where nothing says it."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved()
    if device.type == "mps":
        return torch.mps.recommended_max_memory()
    if Path("/proc/meminfo").exists():
        return free_memory()
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else None


def size_in_words(size: float) -> str:
    """Bytes, for a person.

    >>> size_in_words(3 * 2**19), size_in_words(80e9), size_in_words(0)
    ('1.5 MiB', '74.5 GiB', '0.0 MiB')
    """
    power = max(2, int(math.log2(max(size, 1)) // 10))
    return f"{size / 2**(10 * min(power, 6)):,.1f} {('MiB', 'GiB', 'TiB', 'PiB', 'EiB')[min(power, 6) - 2]}"


@contextmanager
def fits(what: str, advice: str) -> Iterator[None]:
    """Turn an error about too little memory into advice; other errors pass unchanged."""
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
    if (libc := _libc()) is None or not hasattr(libc, "mallopt"):
        return
    largest_mapped, trim = -4, -1  # M_MMAP_MAX: map nothing; M_TRIM_THRESHOLD: never give back
    libc.mallopt(largest_mapped, 0)
    libc.mallopt(trim, -1)


def large_pages(size: int) -> None:
    """Let the next `size` bytes of memory come in pages of 2 MiB, where Linux gives them on request.

    A CPU that reads all weights for every token looks up where each page lies: with pages of 4 KiB this is a fifth of
    the time of a step in int8. Memory that is kept (`_keep_memory`) keeps its pages, too: so it is asked for, marked
    and freed again before anything is in it.
    """
    if (libc := _libc()) is None:
        return
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.madvise.argtypes, libc.free.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int], [ctypes.c_void_p]
    if (start := libc.malloc(size)) is None:
        return
    first, end = -(-start // LARGE) * LARGE, (start + size) // LARGE * LARGE
    if end > first:
        libc.madvise(first, end - first, MADV_HUGEPAGE)
    libc.free(start)


def _libc() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL("libc.so.6") if sys.platform == "linux" else None
    except OSError:  # another C library
        return None
