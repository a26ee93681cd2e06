"""What is forced or foretold for one purpose leaves others alone."""

from threading import Thread

import torch
from torch import Tensor

from regard.kernels.kernel import Kernel, log_kernels, planning, run_first, use

DOUBLE: Kernel[Tensor, Tensor] = Kernel("double", lambda x: True, lambda x: 2 * x, keeps=lambda x: 0)


def test_a_kernel_is_foretold_in_the_thread_that_plans_only() -> None:
    """Another thread that answers meanwhile gets numbers, not shapes; and one plan may end inside another."""
    x, found = torch.ones(2), list[Tensor | None]()
    with planning(lambda kernel, call: torch.zeros(2)):
        with planning(lambda kernel, call: torch.full((2,), 3.0)):
            assert run_first((DOUBLE,), x, x).tolist() == [3, 3]
        assert run_first((DOUBLE,), x, x).tolist() == [0, 0]
        other = Thread(target=lambda: found.append(run_first((DOUBLE,), x, x)))
        other.start()
        other.join()
    assert found[0] is not None
    assert found[0].tolist() == [2, 2]
    assert run_first((DOUBLE,), x, x).tolist() == [2, 2]


def test_only_what_is_named_runs_and_what_ran_is_logged() -> None:
    x = torch.ones(2)
    with use() as log:
        assert run_first((DOUBLE,), x, x) is None
    assert log == []
    with use("double") as log, log_kernels() as inner:
        run_first((DOUBLE,), x, x)
    assert (log, inner) == ([], ["double"])
