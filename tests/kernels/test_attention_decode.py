"""The kernel for few queries is the definition, wherever the keys lie. Needs a GPU."""

import pytest
import torch

from regard.kernels.kernel import log_kernels
from regard.nn.attend import AttentionPositions
from regard.nn.mask import Mask
from regard.nn.score import ScaledDotAttend

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("queries", "keys", "head", "groups", "moved"), [
    (1, 33, 64, 4, True), (1, 300, 32, 2, True), (5, 17, 16, 4, False), (3, 128, 128, 1, True)])
def test_it_gives_the_context_of_the_definition(
    dtype: torch.dtype, queries: int, keys: int, head: int, groups: int, moved: bool
) -> None:
    torch.manual_seed(0)
    q = torch.randn(6, queries, 4, head, device="cuda", dtype=dtype).transpose(1, 2)
    k, v = (torch.randn(6, groups, keys, head, device="cuda", dtype=dtype) for _ in range(2))
    rows = torch.randint(6, (6, keys), device="cuda") if moved else None
    here = torch.arange(keys - queries - 3, keys - 3, device="cuda")[None]
    places, mask = AttentionPositions(here, torch.arange(keys, device="cuda")[None], rows), Mask(causal=True)
    attend = ScaledDotAttend((head,) * 4)
    with torch.no_grad(), log_kernels() as log:
        fast = attend(q, k, v, mask=mask, positions=places).context
        weights = attend.weights(q.float(), k.float(), mask=mask, positions=places)
    assert log == ["attention.decode"]
    if rows is not None:
        v = v.gather(0, rows[:, None, :, None].expand(-1, groups, -1, head))
    slow = weights @ v.float().repeat_interleave(4 // groups, dim=1)
    near = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(fast.float(), slow, atol=near, rtol=near)
