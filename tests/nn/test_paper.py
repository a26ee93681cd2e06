"""`nn/` and `models/` are the paper: what a machine wants is asked in `kernels/`."""

import re
from pathlib import Path

import pytest

import regard

PACKAGE = Path(regard.__file__).parent
MACHINE = re.compile(
    r"device\.type|is_cuda|autocast\(|is_autocast|triton|_hooks|register_\w*hook|is_compiling|is_inference"
    r"|dtype (==|!=|in|not in) |free_memory|mkldnn|is_grad_enabled|torch\.backends|torch\.cuda", re.IGNORECASE)


@pytest.mark.parametrize("file", [
    file.relative_to(PACKAGE) for part in ("nn", "models") for file in sorted((PACKAGE / part).glob("*.py"))], ids=str)
def test_a_file_of_the_paper_asks_nothing_of_the_machine(file: Path) -> None:
    lines = (PACKAGE / file).read_text(encoding="utf-8").splitlines()
    assert [f"{number}: {line.strip()}" for number, line in enumerate(lines, 1) if MACHINE.search(line)] == []


def test_the_search_would_find_one() -> None:
    for line in ('if x.device.type == "cpu":', "if x.is_cuda", "if torch.is_autocast_enabled(kind):", "import triton",
                 "if layer._forward_hooks", "if x.dtype == torch.bfloat16:", "if torch.is_grad_enabled()"):
        assert MACHINE.search(line), line
