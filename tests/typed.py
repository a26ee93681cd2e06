"""regard as it is typed: a command's exit code, and what it says."""

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import pytest

from regard.cli import main

__all__ = ["regard_says"]


def regard_says(*words: str | Path) -> tuple[int, str, str]:
    """The exit code, stdout and stderr of a command."""
    stdout, stderr = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with (patch.object(sys, "argv", ["regard", *map(str, words)]), redirect_stdout(stdout), redirect_stderr(stderr),
          pytest.raises(SystemExit) as ended):
        main()
    for stream in (stdout, stderr):
        stream.seek(0)
    return int(ended.value.code or 0), stdout.read(), stderr.read()
