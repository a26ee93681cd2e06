"""What `pip install` leaves on a machine."""

import os
import re
import shutil
from importlib.metadata import PackageNotFoundError, distribution, distributions
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "regard"


def has_gpu() -> bool:
    return shutil.which("nvidia-smi") is not None or any(Path("/dev").glob("nvidia[0-9]*"))


@pytest.mark.skipif(has_gpu(), reason="this machine has a GPU: torch may bring CUDA")
def test_a_machine_without_a_gpu_gets_no_cuda() -> None:
    installed = {re.sub(r"[-_.]+", "-", found.metadata["Name"] or "").lower() for found in distributions()}
    unwanted = {name for name in installed if re.fullmatch(r"(nvidia|cuda)-.*|(pytorch-)?triton", name)}
    assert not unwanted, (f"gigabytes for nothing: {', '.join(sorted(unwanted))}; in a new environment, "
                          "first `pip install torch --index-url https://download.pytorch.org/whl/cpu`")


@pytest.mark.skipif("CI" not in os.environ, reason="only in CI is the installed copy sure to be new")
def test_the_installed_package_holds_every_file_of_the_tree() -> None:
    try:
        files = distribution("regard").files or []
    except PackageNotFoundError:
        pytest.skip("regard is not installed")
    installed = {file.as_posix() for file in files}
    if not any(name.startswith("regard/") for name in installed):
        pytest.skip("regard is installed in editable form")
    tree = {path.relative_to(PACKAGE.parent).as_posix() for path in PACKAGE.rglob("*")
            if path.is_file() and "__pycache__" not in path.parts}
    assert not tree - installed
