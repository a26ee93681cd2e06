"""How a model knows the order of its tokens."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.models.build import text_encoder
from regard.nn.mask import Mask
from regard.nn.positions import Alibi, Fourier, Learned, Positions, RelativeBias, Rotary, Sinusoidal
from regard.nn.score import ScaledDotAttend
from regard.settings.schema import Tower

CPU = torch.device("cpu")
even = st.integers(1, 16).map(lambda half: 2 * half)


def test_the_lecture_s_four_numbers_of_position_1_come_out() -> None:
    vector = Sinusoidal(4).vectors(torch.tensor([[1]])).flatten()
    assert vector.tolist() == pytest.approx([0.8415, 0.5403, 0.0100, 0.99995], abs=5e-5)


@given(even, st.integers(0, 1000), st.sampled_from([100.0, 10_000.0]))
def test_sinusoidal_positions_are_the_paper_s_formula(size: int, i: int, base: float) -> None:
    loop = [(math.sin if d % 2 == 0 else math.cos)(i / base ** (2 * (d // 2) / size)) for d in range(size)]
    vector = Sinusoidal(size, base=base).vectors(torch.tensor([[i]])).flatten()
    assert vector.tolist() == pytest.approx(loop, abs=1e-4)


@given(even, st.integers(1, 64), st.data())
def test_fourier_positions_have_linear_frequencies(size: int, longest: int, data: st.DataObject) -> None:
    t = data.draw(st.integers(0, longest))
    loop = [f(math.pi * k * t / longest) for k in range(1, size // 2 + 1) for f in (math.cos, math.sin)]
    vector = Fourier(size, longest=longest).vectors(torch.tensor([[t]])).flatten()
    assert vector.tolist() == pytest.approx(loop, abs=1e-4)


@given(even, st.integers(1, 64), st.integers(-64, 64))
def test_a_shift_of_fourier_positions_is_one_matrix(size: int, longest: int, distance: int) -> None:
    fourier, t = Fourier(size, longest=longest), torch.arange(-64, 65)[None]
    shifted = fourier.vectors(t) @ fourier.shift(distance).T
    torch.testing.assert_close(shifted, fourier.vectors(t - distance), rtol=0, atol=2e-3)


@given(even, st.integers(1, 64), st.integers(-64, 64))
def test_the_shift_matrix_turns_each_plane_by_itself(size: int, longest: int, distance: int) -> None:
    matrix = Fourier(size, longest=longest).shift(distance)
    torch.testing.assert_close(matrix @ matrix.T, torch.eye(size), rtol=0, atol=1e-5)
    assert (matrix[~torch.block_diag(*[torch.ones(2, 2)] * (size // 2)).bool()] == 0).all()


@pytest.mark.parametrize("distance", [0, 1, 3, 7])
def test_a_head_whose_query_projection_is_the_shift_looks_that_many_steps_back(distance: int) -> None:
    fourier = Fourier(32, longest=40)
    e = fourier.vectors(torch.arange(40)[None])[:, None]
    weights = ScaledDotAttend((32,)).weights(e @ fourier.shift(distance).T, e, mask=Mask())
    assert weights[0, 0].argmax(-1)[distance:].tolist() == list(range(40 - distance))


@given(st.integers(0, 500), st.integers(0, 500), st.integers(0, 500))
def test_a_rotary_score_depends_on_the_distance_alone(query: int, key: int, shift: int) -> None:
    rotary, q, k = Rotary(16), torch.randn(1, 1, 1, 16), torch.randn(1, 1, 1, 16)

    def score(i: int, j: int) -> Tensor:
        return rotary.rotate(q, torch.tensor([[i]])) @ rotary.rotate(k, torch.tensor([[j]])).mT

    torch.testing.assert_close(score(query, key), score(query + shift, key + shift), rtol=1e-3, atol=5e-3)


@given(st.integers(0, 1000))
def test_rotary_positions_turn_and_never_stretch(position: int) -> None:
    x = torch.randn(2, 3, 1, 16)
    turned = Rotary(16).rotate(x, torch.tensor([[position]]))
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    if position == 0:
        assert torch.equal(turned, x)


def test_rotary_planes_are_those_of_the_formula() -> None:
    x, t = torch.randn(1, 1, 1, 6), 5
    turned = Rotary(6).rotate(x, torch.tensor([[t]])).flatten()
    for j in range(3):
        angle = torch.tensor(t / 10_000 ** (2 * j / 6))
        plane = torch.tensor([[angle.cos(), -angle.sin()], [angle.sin(), angle.cos()]])
        torch.testing.assert_close(turned[[j, j + 3]], plane @ x.flatten()[[j, j + 3]])


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (8, 16), (16, 50)])
def test_relative_buckets_are_those_of_t5(causal: bool, buckets: int, farthest: int) -> None:
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5").T5Attention
    distance = torch.arange(-400, 401)[None, None]
    expected = t5._relative_position_bucket(distance, bidirectional=not causal, num_buckets=buckets,
                                            max_distance=farthest)
    ours = RelativeBias(4, causal=causal, buckets=buckets, farthest=farthest)
    assert torch.equal(ours.bucket(distance), expected)


def test_a_relative_bias_is_one_number_per_head_and_distance() -> None:
    relative = RelativeBias(3, causal=False)
    torch.nn.init.normal_(relative.table)
    bias = relative.bias()(torch.arange(4, 8)[None], torch.arange(9)[None])
    assert bias.shape == (1, 3, 4, 9)
    for step in range(-4, 5):
        for head in bias[0]:
            assert head.diagonal(4 + step).unique().numel() <= 1


def test_the_slopes_of_8_alibi_heads_go_from_a_half_to_a_256th() -> None:
    assert Alibi(8).slopes.tolist() == [2.0**-i for i in range(1, 9)]


def test_the_slopes_of_12_alibi_heads_are_those_of_8_and_every_other_one_of_16() -> None:
    between = [2.0 ** (-i / 2) for i in (1, 3, 5, 7)]
    assert Alibi(12).slopes.tolist() == pytest.approx([2.0**-i for i in range(1, 9)] + between)


@given(st.integers(1, 40))
def test_every_alibi_head_has_a_slope_of_its_own(heads: int) -> None:
    slopes = Alibi(heads).slopes
    assert slopes.unique().numel() == heads
    assert ((slopes > 0) & (slopes < 1)).all()


def test_an_alibi_bias_is_minus_the_slope_times_the_distance() -> None:
    bias = Alibi(8).bias()(torch.tensor([[3, 4]]), torch.tensor([[0, 1, 2, 3, 4]]))
    assert bias[0, 0].tolist() == [[-1.5, -1.0, -0.5, 0.0, -0.5], [-2.0, -1.5, -1.0, -0.5, 0.0]]


def table(kind: str, size: int, *, concatenate: bool) -> Positions:
    made = {"sinusoidal": lambda: Sinusoidal(size, concatenate=concatenate),
            "fourier": lambda: Fourier(size, longest=32, concatenate=concatenate),
            "learned": lambda: Learned(size, longest=32, concatenate=concatenate)}[kind]()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter)
    return made


@pytest.mark.parametrize("kind", ["sinusoidal", "fourier", "learned"])
def test_added_positions_keep_the_width_and_concatenated_ones_add_their_own(kind: str) -> None:
    x, here = torch.randn(2, 5, 8), torch.arange(5)[None]
    added, beside = table(kind, 8, concatenate=False), table(kind, 6, concatenate=True)
    assert added.width == 0
    torch.testing.assert_close(added.embed(x, here), x + added.vectors(here))
    assert beside.width == 6
    assert torch.equal(beside.embed(x, here), torch.cat([x, beside.vectors(here).expand(2, -1, -1)], -1))


@pytest.mark.parametrize("kind", ["sinusoidal", "fourier", "learned"])
def test_a_position_looks_the_same_alone_and_in_its_sequence(kind: str) -> None:
    positions, here = table(kind, 8, concatenate=False), torch.tensor([[4, 0, 31], [7, 7, 1]])
    whole = positions.vectors(torch.arange(32)[None])[0]
    assert torch.equal(positions.vectors(here), whole[here])


def test_at_equal_widths_concatenating_doubles_the_vectors_and_quadruples_the_matrices() -> None:
    tower = replace(Tower(), width=16, depth=1, heads=4, bias=False)
    added = text_encoder(tower, vocabulary=50)
    beside = text_encoder(replace(tower, width=32, position_width=16), vocabulary=50)
    assert added.inputs.tokens.table.weight.shape == beside.inputs.tokens.table.weight.shape
    assert beside.embed(torch.tensor([[1, 2]])).shape[-1] == 2 * added.embed(torch.tensor([[1, 2]])).shape[-1]
    matrices = [[p for p in model.blocks.parameters() if p.dim() == 2] for model in (added, beside)]
    assert [4 * small.numel() for small in matrices[0]] == [large.numel() for large in matrices[1]]


@pytest.mark.parametrize("positions", [Sinusoidal(16), Fourier(16, longest=600)])
def test_positions_of_a_bfloat16_model_are_those_of_float32_rounded_once(positions: Positions) -> None:
    x, here = torch.zeros(1, 600, 16), torch.arange(600)[None]
    exact = positions.embed(x, here)
    rough = positions.to(torch.bfloat16).embed(x.bfloat16(), here)
    torch.testing.assert_close(rough.float(), exact, rtol=0, atol=0.01)


def test_rotary_positions_of_a_bfloat16_model_turn_by_the_same_angles() -> None:
    x, here = torch.randn(1, 1, 600, 16), torch.arange(600)[None]
    exact = Rotary(16).rotate(x, here)
    rough = Rotary(16).to(torch.bfloat16).rotate(x.bfloat16(), here)
    torch.testing.assert_close(rough.float(), exact, rtol=0, atol=0.1)


def test_alibi_of_a_bfloat16_model_tells_far_distances_apart() -> None:
    queries, keys = torch.tensor([[1000]]), torch.arange(1001)[None]
    rough = Alibi(12).to(torch.bfloat16).bias()(queries, keys)
    torch.testing.assert_close(rough.float(), Alibi(12).bias()(queries, keys), rtol=1e-3, atol=1e-3)
