"""What each kernel has to prove: on calls that it serves, it runs, and gives what the definition gives."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from unittest import mock

import torch
from torch import Tensor, nn

from regard.kernels import launch
from regard.kernels.quantize import ScaledLinear
from regard.models.decoder import Decoder
from regard.nn.attend import Attend, AttentionPositions
from regard.nn.attention import Memory
from regard.nn.feed_forward import FeedForward
from regard.nn.linear import Linear
from regard.nn.loss import cross_entropy
from regard.nn.mask import Mask, whole
from regard.nn.norm import Norm
from regard.nn.positions import Alibi, RelativeBias
from regard.nn.score import DotAttend, ScaledDotAttend
from regard.settings.schema import Tower

HAS_GPU = torch.cuda.is_available()
HAS_TRITON = find_spec("triton") is not None
Dice = random.Random


@dataclass(frozen=True)
class Asked:
    """Something to compute, and the tensors whose gradients are to agree as well."""

    compute: Callable[[], Tensor]
    inputs: tuple[Tensor, ...] = ()
    device: str = "cpu"


@dataclass(frozen=True)
class Proof:
    """`draw` makes a call that the kernel serves. `near`: the largest difference, in parts of the largest value."""

    draw: Callable[[Dice], Asked]
    near: float = 1e-5
    needs_gpu: bool = False
    draws: int = 25


@contextmanager
def machine(proof: Proof) -> Iterator[None]:
    """Where there is no GPU, Triton's interpreter stands for it: then tensors on the CPU count as on the GPU."""
    if not proof.needs_gpu or HAS_GPU:
        yield
        return
    with (mock.patch.object(launch, "on_gpu", return_value=True),
          mock.patch.object(launch, "starts_early", return_value=False)):
        yield


def place(proof_on_gpu: bool) -> str:
    return "cuda" if proof_on_gpu and HAS_GPU else "cpu"


# Attention.


def masks(dice: Dice, rows: int, length: int, kinds: str, device: str) -> Mask:
    """A mask of these kinds, filled by chance."""
    torch.manual_seed(dice.randrange(10**6))
    shape, named = (rows, length), kinds.split()
    keys, globals_ = torch.rand(shape, device=device) < 0.7, torch.rand(shape, device=device) < 0.1
    keys[0] = keys[0] & (dice.random() < 0.7)  # now and then a row that may see nothing
    spans, documents = (torch.randint(0, most, shape, device=device) for most in (3, 2))
    window = dice.randint(0, max(0, length // 4)) if "window" in named or "globals" in named else None
    return Mask(
        causal="causal" in named or "spans" in named, window=window, keys=keys if "keys" in named else None,
        globals=globals_ if "globals" in named else None, spans=spans if "spans" in named else None,
        documents=documents.cumsum(1) if "documents" in named else None)


def attention(
    dice: Dice, *, masked: tuple[str, ...], queries: tuple[int, int], keys: tuple[int, int] | None = None,
    heads: tuple[int, ...] = (8,) * 4, groups: tuple[int, ...] = (4, 2, 1), biased: bool = False,
    learns: bool = True, dtype: torch.dtype = torch.float32, gpu: bool = False, cached: bool = False,
    lines: bool = False, lying: bool = False,
) -> Asked:
    """Attention of `queries` to `keys` (absent: to themselves), each between two numbers."""
    device = place(gpu)
    rows, asked = dice.randint(1, 3), dice.randint(*queries)
    known = asked if keys is None else dice.randint(max(keys[0], asked), keys[1])
    group = dice.choice(groups) if len(set(heads)) == 1 else len(heads)
    kind = ScaledDotAttend if len(set(heads)) > 1 else dice.choice([DotAttend, ScaledDotAttend])
    attend: Attend = kind(heads, temperature=dice.choice([1.0, 0.7, 2.0])).to(device)
    torch.manual_seed(dice.randrange(10**6))
    q, k, v = (torch.randn(rows, length, count, max(heads), device=device).to(dtype).transpose(1, 2)
               for length, count in ((asked, len(heads)), (known, group), (known, group)))
    if kind is DotAttend:
        q = q / 3
    inputs = tuple(x.requires_grad_() for x in (q, k, v)) if learns else ()
    mask = masks(dice, rows, known + (0 if keys is None else 4), dice.choice(masked), device)
    positions, bias = None, None
    if cached or lines or lying:
        start = dice.randint(0, known - asked)
        positions = AttentionPositions(whole(asked, torch.device(device)) + start, whole(known, torch.device(device)),
                           in_order=cached or lying)
    if lines:
        seen = torch.rand(rows, 1, asked, known, device=device) < 0.7
        positions = positions and positions._replace(visible_keys=seen)
    if lying:
        positions = positions and positions._replace(rows=torch.randint(rows, (rows, known), device=device))
    if biased and dice.random() < 0.6:
        relative = RelativeBias(len(heads), causal=mask.causal, buckets=8, farthest=16).to(device)
        nn.init.normal_(relative.table)
        bias = dice.choice([Alibi(len(heads)).to(device), relative]).bias()

    def compute() -> Tensor:
        return attend(q, k, v, mask=mask, positions=positions, bias=bias).context

    return Asked(compute, inputs, device)


EVERY_MASK = ("", "causal", "keys", "causal keys", "window", "causal window keys", "globals", "causal globals", "spans",
              "window spans", "documents", "causal documents keys")
WINDOWS = ("window", "causal window", "window keys", "globals", "causal globals keys", "globals documents",
           "causal window documents")
UNEQUAL = (8, 2, 5, 1)


def batched(dice: Dice) -> Asked:
    return attention(dice, masked=("", "keys"), queries=(16, 40), groups=(4,))


def explicit(dice: Dice) -> Asked:
    lines = dice.random() < 0.3
    return attention(dice, masked=("causal",) if lines else EVERY_MASK, queries=(1, 9), keys=(1, 12) if lines else None,
                     heads=(8,) * 4 if lines else dice.choice([(8,) * 4, UNEQUAL]), biased=True, lines=lines)


def sliding_window(dice: Dice) -> Asked:
    return attention(dice, masked=WINDOWS, queries=(40, 150), heads=(16,) * 4, dtype=torch.float16, gpu=True)


def window_blocks(dice: Dice) -> Asked:
    return attention(dice, masked=WINDOWS, queries=(40, 300), biased=True, heads=dice.choice([(8,) * 4, UNEQUAL]))


def cached_window(dice: Dice) -> Asked:
    return attention(dice, masked=("causal window",), queries=(1, 4), keys=(30, 60), cached=True, biased=True,
                     learns=dice.random() < 0.5)


def short(dice: Dice) -> Asked:
    return attention(dice, masked=("", "causal", "keys", "causal keys"), queries=(1, 64), heads=(16,) * 4, groups=(4,),
                     dtype=torch.float16, gpu=True)


def decode(dice: Dice) -> Asked:
    return attention(dice, masked=("causal", "causal window", "causal keys", "causal documents"), queries=(1, 5),
                     keys=(8, 90), heads=(16,) * 4, learns=False, gpu=True, cached=True, lying=dice.random() < 0.5)


def sdpa(dice: Dice) -> Asked:
    cached = dice.random() < 0.4
    return attention(dice, masked=EVERY_MASK, queries=(1, 12), keys=dice.choice([None, (1, 20)]), biased=True,
                     heads=dice.choice([(8,) * 4, UNEQUAL]), cached=cached)


# Products and norms.


def filled(module: nn.Module, device: str, dtype: torch.dtype = torch.float32) -> nn.Module:
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)
    return module.to(device, dtype)


def linear(dice: Dice, *, rows: tuple[int, int], inputs: int, outputs: int, learns: bool, gpu: bool = False,
           dtype: torch.dtype = torch.float32) -> Asked:
    torch.manual_seed(dice.randrange(10**6))
    layer = filled(Linear(inputs, outputs, bias=dice.random() < 0.7), place(gpu), dtype)
    x = torch.randn(dice.randint(*rows), 1, inputs, device=place(gpu)).to(dtype)
    if not learns:
        return Asked(torch.no_grad()(lambda: layer(x)), device=place(gpu))
    x.requires_grad_()
    return Asked(lambda: layer(x), (x, *layer.parameters()))


def few_rows(dice: Dice) -> Asked:
    if dice.random() < 0.6:
        inputs, outputs = dice.choice([40, 64]), dice.choice([24, 70])
        return linear(dice, rows=(1, 4), inputs=inputs, outputs=outputs, learns=False, gpu=True)
    torch.manual_seed(dice.randrange(10**6))
    layer = ScaledLinear(nn.Linear(40, 24)).to(place(True))
    x = torch.randn(dice.randint(1, 4), 1, 40, device=place(True))
    plain = filled(Linear(40, 24), place(True))  # so that a product of the table is among what is drawn
    return Asked(torch.no_grad()(lambda: layer(x) + plain(x)), device=place(True))


def aligned_rows(dice: Dice) -> Asked:
    return linear(dice, rows=(5, 9), inputs=16, outputs=dice.choice([4_097, 5_001]), learns=False, gpu=True)


def onednn(dice: Dice) -> Asked:
    if dice.random() < 0.5:
        return linear(dice, rows=(512, 600), inputs=24, outputs=40, learns=True)
    return linear(dice, rows=(8, 20), inputs=256, outputs=4_096, learns=False)


def activated(dice: Dice, *, names: tuple[str, ...], gpu: bool) -> Asked:
    torch.manual_seed(dice.randrange(10**6))
    part = filled(FeedForward(64, 4_096, activation=dice.choice(names)), place(gpu)).eval()
    x = torch.randn(dice.randint(40, 60), 1, 64, device=place(gpu))
    return Asked(torch.no_grad()(lambda: part.hidden(x)), device=place(gpu))


def norms(dice: Dice, *, gpu: bool) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(dice.randrange(10**6))
    width = dice.choice([37, 64])
    return (filled(Norm(width, kind=dice.choice(["layer", "rms"])), place(gpu)),
            3 * torch.randn(3, 5, width, device=place(gpu)) + 1)


def triton_norm(dice: Dice) -> Asked:
    norm, x = norms(dice, gpu=True)
    return Asked(torch.no_grad()(lambda: norm(x)), device=place(True))


def mixed_norm(dice: Dice) -> Asked:
    norm, x = norms(dice, gpu=False)
    x = x.bfloat16().requires_grad_()

    def compute() -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return norm(x).float()  # type: ignore[no-any-return]

    return Asked(compute, (x, *norm.parameters()))


def cross_entropies(dice: Dice) -> Asked:
    torch.manual_seed(dice.randrange(10**6))
    rows, vocabulary = dice.randint(1, 20), dice.randint(2, 30)
    states, weight = torch.randn(rows, 6, requires_grad=True), torch.randn(vocabulary, 6, requires_grad=True)
    bias = torch.randn(vocabulary, requires_grad=True) if dice.random() < 0.5 else None
    targets, smoothing = torch.randint(vocabulary, (rows,)), dice.choice([0.0, 0.1, 0.5])
    learned = (states, weight) if bias is None else (states, weight, bias)
    return Asked(lambda: cross_entropy(states, weight, targets, ignore=0, smoothing=smoothing, bias=bias)[0], learned)


# The decode step.

PLAIN = Tower(width=32, depth=2, heads=4, dropout=0.1)
CPU_TOWERS = (
    replace(PLAIN, positions="learned", activation="gelu-tanh"), replace(PLAIN, norm_place="post"),
    replace(PLAIN, positions="rotary", norm="rms", activation="swiglu", kv_heads=2, bias=False),
    replace(PLAIN, positions="rotary", qk_norm=True), replace(PLAIN, temperature=2.0, head_width=16))
GPU_TOWERS = tuple(replace(tower, width=64) for tower in CPU_TOWERS) + tuple(
    replace(PLAIN, width=64, **more) for more in (  # type: ignore[arg-type]
        {"positions": "alibi"}, {"positions": "relative"}, {"window": 2}, {"score": "bilinear"}))


def steps(dice: Dice, tower: Tower, *, gpu: bool, translates: bool) -> Asked:
    """A prompt, then token by token."""
    device, rows = place(gpu), dice.randint(1, 6)
    torch.manual_seed(dice.randrange(10**6))
    model = Decoder(tower, vocabulary=40, memory_width=24 if translates else None)
    filled(model, device).eval()  # biases and gains included, which begin as zeros and ones
    prompt = torch.randint(40, (rows, 5), device=device)
    sources = torch.randn(rows if not gpu or dice.random() < 0.5 else 1, 7, 24, device=device)
    memory = Memory(sources, Mask(keys=torch.rand(len(sources), 7, device=device) < 0.8)) if translates else None
    capacity, beams = (None, dice.choice([1, 3])) if not gpu and dice.random() < 0.6 else (12, 1)
    tokens = torch.randint(40, (3, rows * beams, 1), device=device)
    siblings = torch.arange(rows * beams).view(rows, beams).flip(1).flatten()

    @torch.no_grad()
    def compute() -> Tensor:
        state = model.begin(rows, memory, capacity=capacity)
        model.step(prompt, state)
        if beams > 1:
            state.fan_out(beams)
        found = []
        for step in tokens:
            found.append(model.step(step, state))
            if beams > 1:  # each goes on from a sibling
                state.reorder(siblings)
        return torch.cat(found, dim=1)

    return Asked(compute, device=device)


def cpu_steps(dice: Dice) -> Asked:
    return steps(dice, dice.choice(CPU_TOWERS), gpu=False, translates=dice.random() < 0.5)


def gpu_steps(dice: Dice) -> Asked:
    return steps(dice, dice.choice(GPU_TOWERS), gpu=True, translates=dice.random() < 0.5)


PROOFS: dict[str, Proof] = {
    "attention.batched": Proof(batched),
    "attention.explicit": Proof(explicit),
    "attention.sliding_window": Proof(sliding_window, near=2e-2, needs_gpu=True),
    "attention.window_blocks": Proof(window_blocks),
    "attention.cached_window": Proof(cached_window),
    "attention.short": Proof(short, near=2e-2, needs_gpu=True),
    "attention.decode": Proof(decode, near=2e-5, needs_gpu=True, draws=25 if HAS_GPU else 12),
    "attention.sdpa": Proof(sdpa),
    "linear.few_rows": Proof(few_rows, near=2e-5, needs_gpu=True),
    "linear.aligned_rows": Proof(aligned_rows, near=2e-5, needs_gpu=True),
    "linear.onednn": Proof(onednn),
    "activated_linear.cublas": Proof(
        partial(activated, names=("relu", "gelu-tanh"), gpu=True), near=1e-4, needs_gpu=True),
    "activated_linear.onednn": Proof(partial(activated, names=("relu", "gelu", "gelu-tanh", "silu"), gpu=False)),
    "norm.triton": Proof(triton_norm, near=2e-5, needs_gpu=True),
    "norm.mixed_precision": Proof(mixed_norm, near=2e-2),
    "cross_entropy.in_pieces": Proof(cross_entropies),
    "decode_step.cpu": Proof(cpu_steps, near=2e-5),
    "decode_step.gpu": Proof(gpu_steps, near=5e-5, needs_gpu=True, draws=25 if HAS_GPU else 3),
}
