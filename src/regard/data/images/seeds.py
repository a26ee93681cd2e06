"""Random numbers that are functions of whole numbers, on any device, for many examples at once."""

import hashlib
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["MISSING", "draws", "pixel_seeds", "seeds"]

MISSING = -1  # the seed of a row without an example
BITS = 0xFFFFFFFF

Numbers = TypeVar("Numbers", Tensor, NDArray[np.int64])


def seeds(seed: int, epoch: int, indices: Int[np.ndarray, " examples"]) -> Int[np.ndarray, " examples"]:
    """A random number below 2³² for each example in an epoch."""
    key = int(np.random.SeedSequence([seed, epoch]).generate_state(1)[0])
    return _mixed(_mixed(indices.astype(np.int64) & BITS) ^ key)


def pixel_seeds(pixels: UInt8[np.ndarray, "channels size size"]) -> list[int]:
    """Numbers that belong to an image: its answers are drawn by them, whatever else is in the batch."""
    digest = hashlib.blake2b(np.ascontiguousarray(pixels).data, digest_size=16).digest()
    return [int(number) for number in np.frombuffer(digest, np.uint32)]


def draws(seeds: Int[Tensor, " rows"], count: int, *, kind: int) -> Float[Tensor, "rows count"]:
    """Numbers from 0 to 1 for each row, others for each `kind` of use."""
    places = torch.arange(kind << 8, (kind << 8) + count, device=seeds.device)
    mixed = _mixed(_mixed(seeds & BITS)[:, None] ^ _mixed(places))
    return (mixed >> 8).float() / 2**24  # as many bits as a float has


def _mixed(x: Numbers) -> Numbers:
    """A permutation of the numbers below 2³² in which every bit depends on every other (a hash of 32 bits).

    The products may exceed 64 bits: only their lower half is used, and that is exact.
    """
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = ((x ^ (x >> shift)) * factor) & BITS
    return x ^ (x >> 16)
