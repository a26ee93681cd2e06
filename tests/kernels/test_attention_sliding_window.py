"""The kernel for a window and global tokens is the definition, forth and back. Needs a GPU."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from regard.kernels import attention_sliding_window
from regard.kernels.calls import AttentionCall
from regard.kernels.kernel import log_kernels
from regard.nn.attention import Attention
from regard.nn.global_attention import GlobalAttention
from regard.nn.init import initialize
from regard.nn.mask import Mask
from regard.nn.score import ScaledDotAttend

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
ROWS, HEADS = 3, 4


def drawn(length: int, head: int, groups: int = HEADS) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = (torch.randn(ROWS, length, heads, head, device="cuda", dtype=torch.bfloat16).transpose(1, 2)
               for heads in (HEADS, groups, groups))
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_()


def some(length: int, share: float) -> Tensor:
    return torch.rand(ROWS, length, device="cuda") < share


@needs_gpu
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("length", "window", "head", "groups", "kinds"), [
    (512, 64, 64, HEADS, ""), (512, 64, 64, HEADS, "globals"), (777, 100, 64, 2, "globals keys"),
    (300, 0, 32, 1, "globals documents"), (1_500, 256, 128, HEADS, "globals keys documents"),
    (1_025, 17, 16, 2, "globals keys blind"), (2_049, 300, 64, HEADS, "many globals keys")])
def test_it_gives_the_context_and_the_gradients_of_the_definition(
    length: int, window: int, head: int, groups: int, kinds: str, causal: bool
) -> None:
    q, k, v = drawn(length, head, groups)
    keys, chosen = some(length, 0.8), some(length, 0.05 if "many" in kinds else 3 / length)
    keys[0] = False  # a text of padding alone sees nothing
    mask = Mask(
        causal=causal, window=window, keys=keys if "keys" in kinds else None,
        globals=chosen if "globals" in kinds else None,
        documents=some(length, 0.01).cumsum(1) if "documents" in kinds else None,
        blind=some(length, 0.2) if "blind" in kinds else None)
    attend = ScaledDotAttend((head,) * HEADS)
    with log_kernels() as log:
        fast = attend(q, k, v, mask=mask).context
    assert log[0] == "attention.sliding_window"
    share = HEADS // groups
    slow = attend.weights(q.float(), k.float(), mask=mask) @ v.float().repeat_interleave(share, dim=1)
    torch.testing.assert_close(fast.float(), slow, atol=2e-2, rtol=2e-2)
    grad = torch.randn_like(fast)
    for mine, theirs in zip(torch.autograd.grad(fast, (q, k, v), grad),
                            torch.autograd.grad(slow, (q, k, v), grad.float()), strict=True):
        assert (mine - theirs).norm() <= 1e-2 * theirs.norm() + 1e-6


@needs_gpu
def test_dropout_drops_the_same_weights_forth_and_back() -> None:
    length = head = 128  # values that are the rows of a unit matrix: what comes out is the weights
    q, k, _ = drawn(length, head)
    v = torch.eye(length, device="cuda", dtype=torch.bfloat16).expand(ROWS, HEADS, -1, -1).contiguous().requires_grad_()
    mask = Mask(window=10, globals=torch.arange(length, device="cuda").expand(ROWS, -1) == 0, most_globals=1)
    mask = mask.apart[0]
    whole, kept = (attention_sliding_window.run(AttentionCall(
        q, k, v, mask, None, None, 0.1, 1.0, dropout, lambda call: call.q)) for dropout in (0.0, 0.25))
    assert 0.7 < float((kept != 0).sum() / (whole != 0).sum()) < 0.8
    torch.testing.assert_close(kept, torch.where(kept != 0, whole / 0.75, 0.0), atol=1e-2, rtol=1e-2)
    [back] = torch.autograd.grad(kept, v, torch.eye(length, device="cuda").to(kept).expand_as(kept))
    torch.testing.assert_close(back, kept.mT)


@needs_gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("own", [False, True])
def test_nobody_waits_for_the_gpu_where_the_number_of_global_tokens_is_known(own: bool) -> None:
    layer = (GlobalAttention if own else Attention)(64, heads=HEADS)
    initialize(layer, seed=0)
    layer.to("cuda", torch.bfloat16)
    x = torch.randn(2, 2_048, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    mask = Mask(window=64, globals=torch.arange(2_048, device="cuda").expand(2, -1) == 0, most_globals=1,
                keys=torch.arange(2_048, device="cuda").expand(2, -1) < 2_000)
    layer(x, mask=mask).sum().backward()  # the first call sets things up
    torch.cuda.set_sync_debug_mode("error")
    try:
        layer(x, mask=replace(mask)).sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@needs_gpu
@pytest.mark.parametrize("own", [False, True])
def test_a_layer_in_half_precision_is_near_the_same_one_in_single(own: bool) -> None:
    layer = (GlobalAttention if own else Attention)(256, heads=HEADS)
    initialize(layer, seed=0)
    layer.to("cuda")
    x = torch.randn(2, 1_500, 256, device="cuda")
    mask = Mask(window=64, globals=torch.rand(2, 1_500, device="cuda") < 0.003)
    whole = layer(x, mask=mask)
    half = layer.to(torch.bfloat16)(x.bfloat16(), mask=mask)
    assert (half - whole).norm() <= 1e-2 * whole.norm()


COMPILED = """
import torch
from regard.nn.global_attention import GlobalAttention
from regard.nn.init import initialize
from regard.nn.mask import Mask
layer = GlobalAttention(256, heads=4)
initialize(layer, seed=0)
layer.to("cuda", torch.bfloat16)
x = torch.randn(2, 1_500, 256, device="cuda", dtype=torch.bfloat16, requires_grad=True)
places = torch.arange(1_500, device="cuda").expand(2, -1)
def call(x):
    return layer(x, mask=Mask(window=64, globals=places == 0, keys=places < 1_400, most_globals=1))
given = []
for way in (call, torch.compile(call, fullgraph=True)):
    out = way(x)
    given.append((out, *torch.autograd.grad(out.float().square().sum(), (x, *layer.parameters()))))
print(all((a - b).norm() <= 2e-2 * b.norm() for a, b in zip(*given)))
"""


@needs_gpu
def test_compiled_it_gives_the_same() -> None:
    # In a process of its own: the checks of types that tests run under cannot be compiled.
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, timeout=280)
    assert done.stdout == "True\n", done.stderr
