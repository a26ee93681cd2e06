"""Every kernel of the table runs where it should, and gives the definition's values and gradients."""

import random
import zlib
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from kernels.proof import HAS_GPU, HAS_TRITON, PROOFS, Asked, machine
from regard.kernels import table
from regard.kernels.kernel import Kernel, use

KERNELS: list[Kernel] = [kernel for name in dir(table) if name.isupper() for kernel in getattr(table, name)]  # type: ignore[type-arg]


def apart(fast: Tensor, slow: Tensor) -> float:
    """The largest difference, in parts of the largest value. What is drawn is of the size of 1: below, it is noise."""
    fast, slow = fast.detach().double(), slow.detach().double()
    if not fast.isfinite().all():
        return float("inf")
    return float((fast - slow).abs().max() / slow.abs().max().clamp(min=1.0))


def answer(asked: Asked) -> list[Tensor]:
    """What comes out, and the gradients of some direction of it."""
    out = asked.compute()
    if not asked.inputs:
        return [out]
    torch.manual_seed(0)
    direction = torch.randn(out.shape, device=out.device).to(out.dtype)
    return [out.detach(), *torch.autograd.grad(out, asked.inputs, direction)]


@pytest.mark.parametrize("name", PROOFS)
def test_a_kernel_runs_and_gives_what_the_definition_gives(name: str) -> None:
    proof = PROOFS[name]
    if proof.needs_gpu and not HAS_GPU and not HAS_TRITON:
        pytest.skip("needs a GPU, or Triton's interpreter")
    for number in range(proof.draws):
        asked = proof.draw(random.Random(zlib.crc32(f"{name} {number}".encode())))
        with machine(proof), use(name) as log:
            fast = answer(asked)
        with use():
            slow = answer(asked)
        assert set(log) == {name}, f"draw {number}: {log}"
        gaps = [apart(*pair) for pair in zip(fast, slow, strict=True)]
        assert max(gaps) <= proof.near, f"draw {number}: {gaps}"


def test_every_kernel_of_the_table_has_a_proof_and_a_name_of_its_own() -> None:
    names = [kernel.name for kernel in KERNELS]
    assert sorted(names) == sorted(PROOFS)


FAULTS = {"scale": lambda x: 1.01 * x, "sign": lambda x: -x,
          "off by one": lambda x: x.flatten().roll(1).view(x.shape) + 0.01}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", [name for name, proof in PROOFS.items() if not proof.needs_gpu])
def test_a_fault_in_a_kernel_fails_its_proof(name: str, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In what it gives, put there by hand."""
    def faulty(out: Any) -> Any:
        return tuple(map(FAULTS[fault], out)) if isinstance(out, tuple) else FAULTS[fault](out)

    for kind in [kind for kind in dir(table) if kind.isupper()]:
        monkeypatch.setattr(table, kind, tuple(
            replace(kernel, run=lambda call, run=kernel.run: faulty(run(call))) if kernel.name == name else kernel
            for kernel in getattr(table, kind)))
    with pytest.raises(AssertionError, match=r"draw \d+: \["):
        test_a_kernel_runs_and_gives_what_the_definition_gives(name)
