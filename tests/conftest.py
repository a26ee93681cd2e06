"""For every test: shapes and types are checked at run time, seeds are set, hypothesis has no deadline."""

import inspect
import os
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from shutil import which
from typing import Any

import pytest
from hypothesis import settings

# Before torch is imported: threads only get in each other's way in tensors as small as these.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Without a GPU, Triton's kernels run in its interpreter, where it is installed: it has to know before they are made.
if which("nvidia-smi") is None:
    os.environ.setdefault("TRITON_INTERPRET", "1")

if find_spec("beartype") and find_spec("jaxtyping"):
    from jaxtyping import install_import_hook

    assert "regard" not in sys.modules, "the hook only sees what is imported after it"
    # The tower lets an int be a float, as mypy does.
    install_import_hook("regard", "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))")

    if find_spec("triton"):
        import triton

        compiled = triton.jit

        # Triton compiles a kernel with the global names of the function that it is given. The checker's wrapper is a
        # function of jaxtyping's, which knows no `tl`. Nothing is lost: inside a kernel there are only pointers.
        def unchecked(kernel: Callable[..., Any] | None = None, **options: Any) -> Any:
            return partial(unchecked, **options) if kernel is None else compiled(inspect.unwrap(kernel), **options)

        triton.jit = unchecked

# A test that fails in CI must fail again on the next machine; elsewhere new examples are worth more.
settings.register_profile("regard", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("regard")


def pytest_configure(config: pytest.Config) -> None:
    # beartype looks at one item of a list, by chance; hypothesis takes that for a test's own dice.
    config.addinivalue_line("filterwarnings", "ignore:Do not use the `random` module inside strategies")
    # torch.compile says that its guards are slower on Python 3.13.0 than on 3.13.1.
    config.addinivalue_line("filterwarnings", "ignore:Guards may run slower on Python 3.13.0:RuntimeWarning")
    # From Python 3.13 on, Triton's compiler is warned about how it builds a syntax tree.
    config.addinivalue_line("filterwarnings", "ignore::DeprecationWarning:triton.compiler.code_generator")


@pytest.fixture(autouse=True)
def same_seed() -> None:
    # Importing torch takes seconds: a test of the settings does not wait for it.
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
