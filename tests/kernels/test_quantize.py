"""Narrow weights: what they are rounded to, how far their products may be off, and where they are refused."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from regard.generate.beam import Beam, beam
from regard.generate.sampler import Sampling, gather, sample
from regard.kernels import quantize as quantizing
from regard.kernels.quantize import MAX_SHARED_ROWS, QUANTIZED_ENGINES, QuantizedLinear, quantize
from regard.models.build import translator
from regard.models.decoder import Decoder
from regard.nn.init import initialize
from regard.settings.errors import NotFinite, UserError
from regard.settings.schema import Tower

ENGINES = [engine for engine in QUANTIZED_ENGINES["int8"] if engine in torch.backends.quantized.supported_engines]
VOCABULARY = 64

pytestmark = pytest.mark.skipif(not ENGINES, reason="torch was built without 8-bit products")


def linear(inputs: int = 24, outputs: int = 40, *, bias: bool = True) -> nn.Linear:
    layer = nn.Linear(inputs, outputs, bias=bias)
    nn.init.normal_(layer.weight)
    return layer.requires_grad_(False)


def largest_step(x: Tensor) -> Tensor:
    """Between two neighbouring values of an input of 7 bits, the fewest there are, of a range of both signs."""
    rows = x.flatten(0, -2).abs()
    return 2 * (rows.amax(-1, keepdim=True) if len(rows) > MAX_SHARED_ROWS else rows.amax()) / 127


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=30)
@given(rows=st.integers(1, 3 * MAX_SHARED_ROWS), bias=st.booleans(), spread=st.sampled_from([0.0, 3.0]),
       seed=st.integers(0, 99))
def test_a_product_is_off_by_no_more_than_the_rounding_of_its_inputs(
        engine: str, rows: int, bias: bool, spread: float, seed: int) -> None:
    torch.manual_seed(seed)
    layer, x = linear(bias=bias), torch.randn(rows, 24) * (spread * torch.randn(rows, 1)).exp()
    packed = QuantizedLinear(layer, "int8", engine=engine)
    exact = x @ packed.weight.T + (layer.bias if bias else 0.0)
    bound = largest_step(x) * packed.weight.abs().sum(1) + 1e-4 * exact.abs().max()
    assert bool(((packed(x) - exact).abs() <= bound).all())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("size", [1e-6, 1e-3, 1e3])
def test_small_and_large_inputs_lose_as_little(engine: str, size: float) -> None:
    torch.manual_seed(0)
    packed, x = QuantizedLinear(linear(bias=False), "int8", engine=engine), size * torch.randn(1, 24)
    exact = x @ packed.weight.T
    assert float((packed(x) - exact).abs().max() / exact.abs().max()) < 0.03


@pytest.mark.parametrize("engine", ENGINES)
def test_each_output_rounds_its_weights_by_a_scale_of_its_own(engine: str) -> None:
    layer = linear(bias=False)
    layer.weight *= torch.logspace(-6, 6, 40)[:, None]
    found, largest = QuantizedLinear(layer, "int8", engine=engine).weight, layer.weight.abs().amax(1, keepdim=True)
    assert bool(((found - layer.weight).abs() <= 0.501 * largest / 127).all())
    torch.testing.assert_close(found.abs().amax(1, keepdim=True), largest)
    whole = found / largest * 127
    torch.testing.assert_close(whole, whole.round(), atol=1e-3, rtol=0)


@pytest.mark.skipif("fbgemm" not in ENGINES, reason="torch was built without fbgemm")
def test_float16_rounds_the_weights_alone() -> None:
    layer, x = linear(), torch.randn(5, 24)
    packed = QuantizedLinear(layer, "float16", engine="fbgemm")
    torch.testing.assert_close(packed.weight, layer.weight.half().float())
    torch.testing.assert_close(packed(x), x @ layer.weight.half().float().T + layer.bias)


@pytest.mark.parametrize("rows", [1, MAX_SHARED_ROWS, MAX_SHARED_ROWS + 1])
def test_zeros_stay_what_they_are(rows: int) -> None:
    layer = linear()
    layer.weight[3] = 0.0
    packed, x = QuantizedLinear(layer, "int8", engine=ENGINES[0]), torch.randn(rows, 24)
    torch.testing.assert_close(packed(x)[:, 3], layer.bias[3].expand(rows))
    torch.testing.assert_close(packed(torch.zeros(rows, 24)), layer.bias.expand(rows, -1))


def test_a_row_among_many_is_rounded_as_finely_as_alone() -> None:
    """One row of huge numbers must not leave the others with a few steps."""
    packed, x = QuantizedLinear(linear(), "int8", engine=ENGINES[0]), torch.randn(2 * MAX_SHARED_ROWS, 24)
    x[0] *= 1e4
    alone = torch.cat([packed(row[None]) for row in x[1:]])
    apart = (packed(x)[1:] - alone).abs().max() / alone.std()
    assert apart < 0.05


def test_shapes_and_kinds_of_numbers_go_through() -> None:
    packed, x = QuantizedLinear(linear(), "int8", engine=ENGINES[0]), torch.randn(2, 3, 24)
    assert packed(x).shape == (2, 3, 40)
    assert packed(x.bfloat16()).dtype == torch.bfloat16


def test_packing_leaves_the_chosen_engine_as_it_was() -> None:
    before = torch.backends.quantized.engine
    for engine in ENGINES:
        QuantizedLinear(linear(), "int8", engine=engine)
        assert torch.backends.quantized.engine == before


# Models.


def tower(**more: object) -> Tower:
    return Tower(width=32, depth=2, heads=4, dropout=0.0, **more)  # type: ignore[arg-type]


def apart(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().mean() / b.std())


@pytest.mark.parametrize("kind", QUANTIZED_ENGINES)
@pytest.mark.parametrize("tied", ["all", "none"])
@torch.no_grad()
def test_a_decoder_says_nearly_the_same(kind: str, tied: str) -> None:
    model = Decoder(tower(tied=tied, positions="rotary", activation="swiglu"), vocabulary=VOCABULARY)
    initialize(model.eval(), seed=0)
    tokens = torch.randint(VOCABULARY, (3, 20))
    before = model.logits(model(model.embed(tokens)))
    quantize(model, kind)
    assert not any(isinstance(part, nn.Linear) for part in model.modules())
    after = model.logits(model(model.embed(tokens)))
    assert 0 < apart(after, before) < (0.05 if kind == "int8" else 0.001)


@pytest.mark.parametrize("kind", QUANTIZED_ENGINES)
@torch.no_grad()
def test_an_encoder_decoder_says_nearly_the_same(kind: str) -> None:
    model = translator(tower(norm_place="post"), sources=VOCABULARY, targets=VOCABULARY)
    initialize(model.eval(), seed=0)
    source, target = torch.randint(VOCABULARY, (3, 9)), torch.randint(VOCABULARY, (3, 7))
    before = model.logits(model(source, target))
    quantize(model, kind)
    assert 0 < apart(model.logits(model(source, target)), before) < (0.05 if kind == "int8" else 0.001)


@torch.no_grad()
def test_a_tied_table_still_gives_the_vectors_it_gave() -> None:
    model = Decoder(tower(tied="output"), vocabulary=VOCABULARY)
    initialize(model.eval(), seed=0)
    tokens = torch.arange(VOCABULARY)[None]
    before = model.embed(tokens)
    quantize(model, "int8")
    assert torch.equal(model.embed(tokens), before)


@pytest.mark.parametrize("kind", QUANTIZED_ENGINES)
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_searching_and_drawing_work_alike(kind: str, precision: torch.dtype) -> None:
    model = Decoder(tower(), vocabulary=VOCABULARY)
    initialize(model.eval(), seed=0)
    quantize(model, kind)
    model.to(precision)
    prompt = torch.randint(2, VOCABULARY, (2, 3))
    greedy = gather(sample(model, prompt, how=Sampling(end=1, longest=6, temperature=0)), end=1)
    one_beam = beam(model, prompt, how=Beam(end=1, longest=6, size=1))
    if precision == torch.float32:
        assert [row.tokens for row in greedy] == [row[0].tokens for row in one_beam]
    assert all(len(row.tokens) <= 6 for row in greedy)


# Refusals.


def test_weights_that_are_not_on_a_cpu_are_refused() -> None:
    with pytest.raises(UserError, match="device=cpu"):
        quantize(nn.Sequential(nn.Linear(2, 2, device="meta")), "int8")


def test_a_kind_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(UserError, match="quantize=int4: there are int8 and float16"):
        quantize(nn.Sequential(linear()), "int4")


def test_a_torch_that_cannot_multiply_so_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(quantizing.QUANTIZED_ENGINES, "int8", ("an engine of another machine",))
    with pytest.raises(UserError, match="precision=bfloat16"):
        quantize(nn.Sequential(linear()), "int8")


@pytest.mark.parametrize("kind", QUANTIZED_ENGINES)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_model_with_weights_that_are_no_numbers_is_refused(kind: str, bad: float) -> None:
    """What comes out of a norm as nan, an int8 product may turn into any number."""
    model = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 4))
    model[0].weight.data[3] = bad
    with pytest.raises(NotFinite, match="not all finite"):
        quantize(model, kind)


def test_weights_that_float16_cannot_hold_are_refused() -> None:
    model = nn.Sequential(nn.Linear(8, 4))
    model[0].weight.data[1, 2] = -1e5
    with pytest.raises(UserError, match=r"quantize=float16: .* 65,504"):
        quantize(model, "float16")
