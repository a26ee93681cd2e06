"""Whoever looks into a model leaves it to the other threads as it is."""

import sys

import pytest
import torch

from regard.look.thread_hooks import eagerly


def stance() -> str:
    from torch._dynamo import eval_frame

    return str(eval_frame._stance.stance)


def test_compiled_models_run_eagerly_until_the_last_who_looks_has_gone() -> None:
    pytest.importorskip("torch._dynamo")
    assert "torch._dynamo" in sys.modules
    one, other = eagerly(), eagerly()
    before = stance()
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)  # the first to come is the first to go
    assert stance() == "force_eager"
    other.__exit__(None, None, None)
    assert stance() == before == "default"
    with torch.compiler.set_stance("eager_on_recompile"):
        with eagerly():
            assert stance() == "force_eager"
        assert stance() == "eager_on_recompile"
