"""The table: which kernel takes a call. `nn/` asks here, and computes its definition where none does.

The order is the order of preference. A new kernel is a file and a line here; its proof is a line in
`tests/kernels/proof.py`, and a test fails as long as a kernel of the table has none.
"""

from torch import Tensor

from regard.kernels import (
    activated_linear_cublas,
    attention_batched,
    attention_cached_window,
    attention_decode,
    attention_explicit,
    attention_sdpa,
    attention_short,
    attention_sliding_window,
    attention_window_blocks,
    fused_linear,
    linear_aligned,
    linear_onednn,
)
from regard.kernels import cross_entropy_chunked as cross_entropies
from regard.kernels import decode_step as decode_steps
from regard.kernels import norm as norms
from regard.kernels.calls import ActivatedLinearCall, AttentionCall, CrossEntropyCall, LinearCall, NormCall
from regard.kernels.decode_step import DecodeCall
from regard.kernels.kernel import Kernel, run_first

__all__ = ["ACTIVATED_LINEAR", "ATTENTION", "CROSS_ENTROPY", "DECODE_STEP", "LINEAR", "NORM", "activated_linear",
           "attention", "cross_entropy", "decode_step", "linear", "norm"]

ATTENTION: tuple[Kernel[AttentionCall, Tensor], ...] = (
    attention_batched.KERNEL,
    attention_explicit.KERNEL,
    attention_sliding_window.KERNEL,
    attention_window_blocks.KERNEL,
    attention_cached_window.KERNEL,
    attention_short.KERNEL,
    attention_decode.KERNEL,
    attention_sdpa.KERNEL,
)
LINEAR: tuple[Kernel[LinearCall, Tensor], ...] = (fused_linear.KERNEL, linear_aligned.KERNEL, linear_onednn.KERNEL)
ACTIVATED_LINEAR: tuple[Kernel[ActivatedLinearCall, Tensor], ...] = (
    activated_linear_cublas.KERNEL, linear_onednn.ACTIVATED)
NORM: tuple[Kernel[NormCall, Tensor], ...] = (norms.TRITON, norms.MIXED_PRECISION)
CROSS_ENTROPY: tuple[Kernel[CrossEntropyCall, tuple[Tensor, Tensor]], ...] = (cross_entropies.KERNEL,)
DECODE_STEP: tuple[Kernel[DecodeCall, Tensor], ...] = (decode_steps.CPU, decode_steps.GPU)


def attention(call: AttentionCall) -> Tensor | None:
    return run_first(ATTENTION, call, call.q)


def linear(call: LinearCall) -> Tensor | None:
    return run_first(LINEAR, call, call.x)


def activated_linear(call: ActivatedLinearCall) -> Tensor | None:
    return run_first(ACTIVATED_LINEAR, call, call.x)


def norm(call: NormCall) -> Tensor | None:
    return run_first(NORM, call, call.x)


def decode_step(call: DecodeCall) -> Tensor | None:
    return run_first(DECODE_STEP, call, call.x)


def cross_entropy(call: CrossEntropyCall) -> tuple[Tensor, Tensor] | None:
    return run_first(CROSS_ENTROPY, call, call.states)
