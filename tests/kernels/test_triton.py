"""Triton's kernels as the tests import them: compiled here, without a GPU, where Triton is installed."""

import importlib
import os
from pathlib import Path

import pytest

import regard

triton = pytest.importorskip("triton")
if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("Triton's interpreter stands for the compiler here", allow_module_level=True)

PACKAGE = Path(regard.__file__).parent
MODULES = sorted(".".join(("regard", *file.relative_to(PACKAGE).with_suffix("").parts))
                 for file in PACKAGE.rglob("*.py") if "@triton.jit" in file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", MODULES)
def test_a_kernel_is_compiled_with_the_names_of_its_own_module(name: str) -> None:
    module = importlib.import_module(name)
    kernels = [value for value in vars(module).values()
               if isinstance(value, triton.JITFunction) and value.fn.__module__ == name]
    assert kernels
    for kernel in kernels:
        assert kernel.fn.__globals__ is vars(module), kernel.fn


def test_a_kernel_compiles_although_shapes_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from triton.backends.compiler import GPUTarget

    from regard.kernels import norm

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))  # not what another run compiled
    constants = {"K": 64, "SUM": True, "CENTRED": True, "SHIFT": True}
    kinds = {**dict.fromkeys(("x_", "y_", "gain_", "shift_", "out"), "*fp32"), "width": "i32", "epsilon": "fp32",
             **dict.fromkeys(constants, "constexpr")}
    source = triton.compiler.ASTSource(fn=norm._normed, signature=kinds, constexprs=constants)
    # An H100's: the instructions are made without it.
    assert "ptx" in triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm
