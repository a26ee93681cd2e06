"""Narrow weights: a step of generation reads every weight to use it once, so fewer bytes are less time.

int8: a quarter of the bytes. Every output has a scale of its own, by which its largest weight is 127. On a CPU inputs
are rounded to 8 bits as they come, and their products are summed as whole numbers; on a GPU they stay as they are.
float16, on a CPU: half of the bytes, and the arithmetic of float32.
"""

import warnings
from collections.abc import Callable

import torch
from jaxtyping import Float, Int8
from torch import Tensor, nn

from regard.kernels.fused_linear import Weights, few_rows, fused_linear
from regard.settings.errors import NotFinite, UserError

__all__ = ["QUANTIZED_ENGINES", "QuantizedLinear", "ScaledLinear", "quantize"]

QUANTIZED_ENGINES = {"int8": ("x86", "fbgemm", "qnnpack"), "float16": ("x86", "fbgemm")}
"""The quantized types, and torch's engines that multiply with them, the best first."""

# Texts up to which their next tokens share one scale: there its own for each is no more exact, and slower.
MAX_SHARED_ROWS = 8
LIFT = 1_024.0  # by which few rows are multiplied first, and their weights divided: a step below 6e-5 is none to torch

Product = Callable[[Tensor], Tensor]


def quantize(model: nn.Module, kind: str) -> None:
    """Narrow the weights of every linear layer, in place and for good. A table of tokens tied to one stays as it is."""
    if kind not in QUANTIZED_ENGINES:
        raise UserError(f"quantize={kind}: there are {' and '.join(QUANTIZED_ENGINES)}")
    device = next(model.parameters()).device.type
    if device != "cpu" and (device, kind) != ("cuda", "int8"):
        raise UserError(f"quantize={kind}: such weights are for the CPU; choose device=cpu")
    if not all(parameter.isfinite().all() for parameter in model.parameters()):  # rounded, they might look like others
        raise NotFinite(f"quantize={kind}: the model's weights are not all finite; train it again")
    if device == "cuda":
        _replace(model, ScaledLinear)
        return
    engines, there = QUANTIZED_ENGINES[kind], torch.backends.quantized.supported_engines
    engine = next((name for name in engines if name in there), None)
    if engine is None:
        raise UserError(f"quantize={kind}: torch was built for this machine without {' or '.join(engines)}, which "
                        "multiply by such weights; leave it away, or try precision=bfloat16")
    _replace(model, lambda linear: QuantizedLinear(linear, kind, engine=engine))


def _replace(model: nn.Module, narrow: Callable[[nn.Linear], nn.Module]) -> None:
    for module in list(model.modules()):
        for name, part in module.named_children():
            if isinstance(part, nn.Linear):
                setattr(module, name, narrow(part))


class QuantizedLinear(nn.Module):
    """x Wᵀ + b of a linear layer, with weights that were narrowed and packed once. It has no gradient."""

    def __init__(self, linear: nn.Linear, kind: str, *, engine: str) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        weight, bias = linear.weight.detach().float(), None if linear.bias is None else linear.bias.detach().float()
        before, torch.backends.quantized.engine = torch.backends.quantized.engine, engine
        try:  # what is packed knows its engine from then on
            self.product = _int8(weight, bias, engine) if kind == "int8" else _float16(weight, bias)
        finally:
            torch.backends.quantized.engine = before

    def forward(self, x: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
        return self.product(x.float()).to(x.dtype)

    @property
    def weight(self) -> Float[Tensor, "outputs inputs"]:
        """The quantized weights, unpacked: the products of the unit vectors."""
        # Ones and zeros are exact.
        columns = [self.product(few) for few in torch.eye(self.in_features).split(MAX_SHARED_ROWS)]
        return (torch.cat(columns) - self.product(torch.zeros(1, self.in_features))).T


class ScaledLinear(nn.Module):
    """x Wᵀ + b of a linear layer, its weights whole numbers of 8 bits, each output's with a scale. It has no gradient.

    A few rows are multiplied as they are, by the kernel of `product`; for many the weights are unpacked first.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        whole, scales = _rounded(linear.weight.detach().float())
        self.register_buffer("whole", whole)
        self.register_buffer("scales", scales.float())
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().clone())
        self.whole: Tensor
        self.scales: Tensor
        self.bias: Tensor | None

    def forward(self, x: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
        weights = Weights(self.whole, self.scales, self.bias)
        if few_rows(x, weights):
            return fused_linear(x, weights)
        return nn.functional.linear(x, self.weight.to(x.dtype), None if self.bias is None else self.bias.to(x.dtype))

    @property
    def weight(self) -> Float[Tensor, "outputs inputs"]:
        return self.whole * self.scales.float()[:, None]


def _rounded(weight: Float[Tensor, "outputs inputs"]) -> tuple[Int8[Tensor, "outputs inputs"], Tensor]:
    """Whole numbers up to 127, and what each output's are to be multiplied with again."""
    scales = weight.abs().amax(1).clamp(min=1e-30).double() / 127
    return (weight / scales[:, None]).round().to(torch.int8), scales


def _int8(weight: Float[Tensor, "outputs inputs"], bias: Float[Tensor, " outputs"] | None, engine: str) -> Product:
    whole, scales = _rounded(weight)
    with warnings.catch_warnings():
        # torch 2.13 deprecates tensors of this kind. Here they only lead to the packed form; their successor, products
        # of plain 8-bit tensors, takes twice as long with few rows.
        warnings.filterwarnings("ignore", message=".*quantized tensor creation", category=UserWarning)
        lifted, typed = (torch._make_per_channel_quantized_tensor(
            whole, each, torch.zeros_like(each, dtype=torch.long), 0) for each in (scales / LIFT, scales))
    packed = torch.ops.quantized.linear_prepack(lifted, bias)
    together = torch.ops.quantized.linear_prepack(typed, None)
    lift = torch.tensor(LIFT)  # a Python number would be converted at every product
    of_one = (whole.double() * scales[:, None]).sum(1).float()  # the product of an input of ones
    # Without instructions for it, pairs of 8-bit products are summed in 16 bits, which may be too few: there the
    # inputs have 7 bits. (torch has no public name for the question yet.)
    reduced = engine != "qnnpack" and not getattr(torch.cpu, "_is_vnni_supported", lambda: False)()

    def product(x: Tensor) -> Tensor:
        if x.shape[:-1].numel() <= MAX_SHARED_ROWS and (x.ndim < 3 or x.shape[-2] == 1):
            return torch.ops.quantized.linear_dynamic(x * lift, packed, reduced)  # type: ignore[no-any-return]
        # The product knows one scale for all its inputs; rows that are moved and stretched to reach from −1 to 1 can
        # share it, and their products are moved and stretched back, where they lie.
        low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
        middle, reach = (low + high) / 2, ((high - low) / 2).clamp(min=1e-30)
        y: Tensor = torch.ops.quantized.linear_dynamic((x - middle).div_(reach), together, reduced)
        y.mul_(reach).addcmul_(middle, of_one)
        return y if bias is None else y.add_(bias)

    return product


def _float16(weight: Float[Tensor, "outputs inputs"], bias: Float[Tensor, " outputs"] | None) -> Product:
    if (largest := float(weight.abs().max())) > (most := torch.finfo(torch.float16).max):  # torch would cut it off
        raise UserError(f"quantize=float16: a weight of {largest:,.0f} is beyond its largest number, {most:,.0f}; "
                        "choose int8")
    packed = torch.ops.quantized.linear_prepack_fp16(weight, bias)
    return lambda x: torch.ops.quantized.linear_dynamic_fp16(x, packed)
