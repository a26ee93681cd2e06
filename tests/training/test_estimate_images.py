"""What a step on images needs, foretold: against what real steps hold and do."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from regard.models.build import image_encoder
from regard.models.classifier import Classifier
from regard.nn.init import initialize
from regard.settings.presets import PRESETS
from regard.settings.schema import Head, Image, Tower
from regard.training.estimate import Parameters
from regard.training.meta_trace import Ledger, Trace, trace

VIT = Tower(width=32, depth=2, heads=2, dropout=0.0, positions="learned", image=Image(size=24, patch=4))
CNN = Tower(width=32, dropout=0.0, head=Head(pool="mean"),
            image=Image(size=24, stem="resnet", patch=4, stages=(1, 2), bottleneck=True))
CASES = {
    "vit": VIT, "cnn": CNN,
    "cct": replace(VIT, head=Head(pool="learned"), image=Image(size=24, stem="convolutions", patch=4))}
PRECISIONS = (torch.float32, torch.bfloat16)


def step(tower: Tower, device: str, rows: int = 4, labels: int = 10) -> tuple[Classifier, Callable[[], Tensor]]:
    assert tower.image is not None
    with torch.device(device):
        model = Classifier(image_encoder(tower), tower, labels=labels).train()
        pixels = torch.zeros(rows, 3, tower.image.size, tower.image.size)
        targets = torch.zeros(rows, dtype=torch.long)
    return model, lambda: cross_entropy(model(pixels).float(), targets, reduction="sum")


def foretold(tower: Tower, precision: torch.dtype, device: str = "cpu", **sizes: int) -> Trace:
    model, loss = step(tower, "meta", **sizes)
    return trace(model, loss, device=device, precision=precision)


def real(tower: Tower, precision: torch.dtype) -> tuple[Classifier, Callable[[], Tensor]]:
    model, loss = step(tower, "cpu")
    initialize(model, seed=0)

    def cast() -> Tensor:
        with torch.autocast("cpu", precision, enabled=precision != torch.float32):
            return loss()

    return model, cast


@pytest.mark.parametrize("precision", PRECISIONS, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_a_trace_counts_the_operations_of_a_step_on_images(name: str, precision: torch.dtype) -> None:
    _, loss = real(CASES[name], precision)
    with FlopCounterMode(display=False) as counter:
        loss().backward()
    assert foretold(CASES[name], precision).operations == pytest.approx(counter.get_total_flops(), rel=1e-6)


@pytest.mark.parametrize("precision", PRECISIONS, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_a_trace_of_images_holds_at_its_fullest_what_a_real_step_holds(name: str, precision: torch.dtype) -> None:
    _, loss = real(CASES[name], precision)
    with Ledger() as ledger:
        value = loss()
        forward, ledger.most = ledger.most, ledger.held
        value.backward()
    found = foretold(CASES[name], precision)
    assert found.forward == pytest.approx(forward, rel=0.03)
    assert found.backward == pytest.approx(ledger.most, rel=0.03)


@pytest.mark.parametrize(("preset", "products"), [("vit-base", 17.58e9), ("resnet-50", 4.089e9)])
def test_a_step_does_six_operations_for_each_published_multiplication(preset: str, products: float) -> None:
    """Two in the forward pass, four in the backward pass; the first layer has no gradient of its input."""
    found = foretold(PRESETS[preset](), torch.bfloat16, "cuda", rows=1, labels=1000).operations
    assert found == pytest.approx(6 * products, rel=0.02)


def test_only_blocks_of_attention_are_recomputed() -> None:
    assert len(foretold(VIT, torch.float32).blocks) == len(foretold(CASES["cct"], torch.float32).blocks) == 2
    assert not foretold(CNN, torch.float32).blocks


def test_the_parts_of_a_model_of_images_are_named() -> None:
    parts = Parameters.of(step(VIT, "meta")[0]).parts
    assert parts["embeddings"] == 48 * 32 + 32 + 32 + 37 * 32
    assert parts["output"] == 330
    cnn = Parameters.of(step(CNN, "meta")[0]).parts
    assert cnn["embeddings"] == 3 * 7 * 7 * 4 + 2 * 4  # the first convolution and its norm
    assert sum(cnn.values()) == cnn["embeddings"] + cnn["encoder"] + 330
