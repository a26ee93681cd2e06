"""A product on a GPU that ends with its nonlinearity. (The GELU that the library knows is the one with tanh.)"""

import torch
from torch import Tensor

from regard.kernels.calls import ActivatedLinearCall
from regard.kernels.kernel import Kernel

__all__ = ["KERNEL"]


def serves(call: ActivatedLinearCall) -> bool:
    return (not torch.is_grad_enabled() and not torch.is_autocast_enabled("cuda") and call.can_be_fused
            and call.activation.name in ("relu", "gelu-tanh") and call.layer.bias is not None)


def run(call: ActivatedLinearCall) -> Tensor:
    layer, x = call.layer, call.x
    bias, weight = layer.bias, layer.weight
    assert isinstance(bias, Tensor)
    assert isinstance(weight, Tensor)
    flat = torch._addmm_activation(bias, x.flatten(0, -2), weight.T, use_gelu=call.activation.name != "relu")
    return flat.view(*x.shape[:-1], -1)


KERNEL = Kernel("activated_linear.cublas", serves, run, device="gpu")
