"""The benchmarks build the models that ours are compared with: tests use the same ones (`import peers`)."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
