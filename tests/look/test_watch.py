"""Watching shows the weights of the very pass that it watches, and changes nothing of it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from regard.look.watch import Seen, mean_over_heads, sites, sliding_window, top, watch
from regard.models import build
from regard.models.build import text_encoder
from regard.models.decoder import Decoder
from regard.models.encoder_decoder import EncoderDecoder
from regard.nn.init import initialize
from regard.nn.mask import Mask
from regard.nn.score import SCORES
from regard.settings.errors import UserError
from regard.settings.schema import Tower

TOWER = Tower(width=32, depth=2, heads=4, dropout=0.0)
VOCABULARY = 40
SOURCE = torch.tensor([[3, 4, 5, 6, 7], [8, 9, 10, 0, 0]])
TARGET = torch.tensor([[1, 11, 12, 13], [1, 14, 15, 0]])


def translator(**settings: object) -> EncoderDecoder:
    model = build.translator(Tower(width=32, depth=2, heads=4, **settings), sources=VOCABULARY, targets=VOCABULARY)
    initialize(model, seed=0)
    return model.eval()


def read(model: EncoderDecoder) -> Tensor:
    with torch.no_grad():
        return model(SOURCE, TARGET, mask=Mask(keys=SOURCE != 0))


def test_every_attention_is_a_site() -> None:
    assert list(sites(translator())) == [
        "encoder.blocks.0.self", "encoder.blocks.1.self", "decoder.blocks.0.self", "decoder.blocks.0.cross",
        "decoder.blocks.1.self", "decoder.blocks.1.cross"]


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "relative", "alibi"])
@pytest.mark.parametrize("kv_heads", [None, 2])
def test_watching_changes_no_bit_of_the_output(score: str, positions: str, kv_heads: int | None) -> None:
    model = translator(score=score, positions=positions, kv_heads=kv_heads)
    before = read(model)
    with watch(model) as seen:
        watched = read(model)
    assert torch.equal(before, watched)
    assert torch.equal(before, read(model))
    assert len(seen) == 6
    assert seen["decoder.blocks.1.cross"].shape == (2, 4, 4, 5)


@pytest.mark.parametrize("score", SCORES)
def test_a_head_by_itself_has_the_weights_it_has_among_all(score: str) -> None:
    model = translator(score=score, positions="relative", kv_heads=2)
    with watch(model) as every:
        read(model)
    with watch(model, "decoder.*", heads=[3, 1], rows=[2]) as some:
        read(model)
    assert set(some) == {site for site in every if site.startswith("decoder")}
    for site, weights in some.items():
        torch.testing.assert_close(weights, every[site][:, [3, 1]][:, :, [2]], rtol=1e-6, atol=1e-7)


def test_rows_sum_to_one_and_padding_gets_nothing() -> None:
    model = translator()
    with watch(model, "*.cross") as seen:
        read(model)
    for weights in seen.values():
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 4))
        assert weights[1, :, :, 3:].abs().max() == 0


def test_the_context_is_the_weights_times_the_values() -> None:
    """The weights are those of the pass: with the values the pass used, they give what it gave."""
    model = translator()
    caught: dict[str, Tensor] = {}
    attend = model.decoder.blocks[1].cross.attend
    hook = attend.register_forward_hook(lambda module, inputs, output: caught.update(v=inputs[2], out=output.context))
    with watch(model, "decoder.blocks.1.cross") as seen:
        read(model)
    hook.remove()
    torch.testing.assert_close(seen["decoder.blocks.1.cross"] @ caught["v"], caught["out"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("capacity", [None, 8])
def test_steps_with_a_cache_give_the_rows_of_the_whole(capacity: int | None) -> None:
    model = translator()
    memory = model.encode(SOURCE, Mask(keys=SOURCE != 0))
    with watch(model, "decoder.*") as whole:
        read(model)
    state = model.begin(2, memory, capacity=capacity)
    with torch.no_grad(), watch(model, "decoder.*") as stepped:
        for place in range(TARGET.shape[1]):
            model.step(TARGET[:, [place]], state)
    for site, weights in whole.items():
        torch.testing.assert_close(stepped[site][..., : weights.shape[-1]], weights, rtol=1e-5, atol=1e-6)


@given(count=st.integers(1, 9), reach=st.integers(0, 6))
def test_what_is_reduced_is_part_of_the_whole(count: int, reach: int) -> None:
    model = text_encoder(TOWER, vocabulary=VOCABULARY).eval()
    initialize(model, seed=1)
    x = torch.arange(7)[None]

    def run() -> None:
        model(model.embed(x), mask=Mask())

    with torch.no_grad():
        with watch(model) as whole:
            run()
        with watch(model, reduce=top(count)) as best:
            run()
        with watch(model, reduce=sliding_window(reach)) as near:
            run()
        with watch(model, reduce=mean_over_heads) as mean:
            run()
    away = (torch.arange(7)[:, None] - torch.arange(7)).abs()
    for site, weights in whole.items():
        kept = weights.where(weights >= weights.topk(min(count, 7)).values[..., -1:], 0.0)
        torch.testing.assert_close(best[site], kept)
        torch.testing.assert_close(near[site], weights.where(away <= reach, 0.0))
        torch.testing.assert_close(mean[site], weights.mean(1, keepdim=True))


def test_a_record_says_its_size_before_it_would_grow_too_large() -> None:
    model = translator()
    with pytest.raises(UserError, match=r"encoder\.blocks\.0\.self: its weights take .* the limit is 0\.0 MB"), \
            watch(model, limit=100):
        read(model)
    with watch(model, limit=10_000) as seen:
        read(model)
    assert seen.nbytes == 4 * 2 * 4 * (2 * 5 * 5 + 2 * 4 * 4 + 2 * 4 * 5)
    assert torch.equal(read(model), read(model))


def test_large_weights_are_worked_out_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    model = translator()
    with watch(model) as whole:
        read(model)
    monkeypatch.setattr("regard.look.watch.WEIGHT_BYTES_AT_ONCE", 200)
    with watch(model) as pieces:
        read(model)
    with watch(model, heads=[2, 0, 1], rows=[1]) as single:  # less than the keys it is worked out from
        read(model)
    for site in whole:
        assert torch.equal(whole[site], pieces[site])
        assert torch.equal(whole[site][:, [2, 0, 1]][:, :, [1]], single[site])


@given(cut=st.integers(1, 6), positions=st.sampled_from(["rotary", "relative", "alibi", "none"]))
def test_texts_packed_into_one_row_have_the_weights_of_each_alone(cut: int, positions: str) -> None:
    model = Decoder(Tower(width=32, depth=2, heads=4, positions=positions), vocabulary=VOCABULARY).eval()
    initialize(model, seed=0)
    tokens = torch.tensor([[5, 6, 7, 8, 9, 10, 11]])
    documents = (torch.arange(7) >= cut).long()[None]

    def weights(tokens: Tensor, mask: Mask) -> Seen:
        with torch.no_grad(), watch(model) as seen:
            model(model.embed(tokens), mask=mask)
        return seen

    packed = weights(tokens, Mask(causal=True, documents=documents))
    first, second = (weights(part, Mask(causal=True)) for part in (tokens[:, :cut], tokens[:, cut:]))
    assert list(packed) == list(first) == list(second)
    for site, whole in packed.items():
        torch.testing.assert_close(whole[..., :cut, :cut], first[site], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(whole[..., cut:, cut:], second[site], rtol=1e-5, atol=1e-6)
        assert whole[..., cut:, :cut].abs().max() == whole[..., :cut, cut:].abs().max() == 0


def test_a_packed_row_is_watched_with_its_padding_and_one_query_at_a_time() -> None:
    model = Decoder(TOWER, vocabulary=VOCABULARY).eval()
    initialize(model, seed=0)
    documents, real = torch.tensor([[0, 0, 1, 1, 2, 2]]), torch.tensor([[True] * 5 + [False]])
    mask = Mask(causal=True, documents=documents, keys=real)
    x = model.embed(torch.arange(3, 9)[None])
    with torch.no_grad(), watch(model) as every:
        model(x, mask=mask)
    with torch.no_grad(), watch(model, rows=[3]) as one:
        model(x, mask=mask)
    for site, weights in every.items():
        assert (weights > 0).any(1)[0].nonzero().tolist() == [[0, 0], [1, 0], [1, 1], [2, 2], [3, 2], [3, 3], [4, 4],
                                                              [5, 4]]
        torch.testing.assert_close(one[site], weights[:, :, [3]], rtol=1e-6, atol=1e-7)


class Largest(TorchDispatchMode):
    """The largest tensor of float32 that is made meanwhile, in bytes."""

    size = 0

    def __torch_dispatch__(self, act: Any, types: Any, inputs: Any = (), options: Any = None) -> Any:
        made = act(*inputs, **(options or {}))
        if isinstance(made, Tensor) and made.dtype == torch.float32:
            self.size = max(self.size, made.untyped_storage().nbytes())
        return made


def test_one_row_of_a_long_text_takes_far_less_than_its_keys() -> None:
    heads, keys = 8, 16_384
    attend = SCORES["scaled-dot"]((32,) * heads)
    q, k, v = (torch.randn(1, length, heads * 32, dtype=torch.bfloat16) for length in (1, keys, keys))
    q, k, v = (x.unflatten(-1, (heads, 32)).transpose(1, 2) for x in (q, k, v))
    with watch(attend, "", rows=[0]) as seen, Largest() as largest:
        attend(q, k, v, mask=Mask())
    assert seen[""].shape == (1, heads, 1, keys)
    assert largest.size <= 4 << 20 < k.nbytes


def test_an_unknown_site_or_head_is_refused_with_those_there_are() -> None:
    model = translator()
    with pytest.raises(UserError, match=r"there are encoder.blocks.0.self"), watch(model, "decoder.blocks.9.*"):
        pass
    with pytest.raises(UserError, match="heads 0 to 3"), watch(model, heads=[4]):
        pass


COMPILED = """
import torch
from regard.look.watch import watch
from regard.models.decoder import Decoder
from regard.nn.init import initialize
from regard.settings.schema import Tower
model = Decoder(Tower(width=32, depth=2, heads=4), vocabulary=40).eval()
initialize(model, seed=0)
x = model.embed(torch.arange(6)[None])
model.compile(backend="eager")
with torch.no_grad():
    model(x)
    with watch(model) as seen:
        model(x)
print(*seen)
"""


def test_a_compiled_model_is_watched_too() -> None:
    # In a process of its own: the checks of types that tests run under cannot be compiled.
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, timeout=120)
    assert done.stdout == "blocks.0.self blocks.1.self\n", done.stderr


def test_hooks_are_gone_afterwards_even_after_an_error() -> None:
    model = translator()
    with pytest.raises(ZeroDivisionError), watch(model):
        raise ZeroDivisionError
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_the_benchmark_of_watching_finds_the_same_bits_everywhere() -> None:
    sizes = {"rows": 2, "length": 32, "width": 32, "depth": 2, "heads": 4, "vocabulary": 128, "long": 64, "rounds": 1}
    command = [sys.executable, str(Path(__file__).parents[2] / "benchmarks" / "watch.py"),
               *(part for name, value in sizes.items() for part in (f"--{name}", str(value)))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("same bits") == 8
    assert "OTHER" not in done.stdout
    assert "transformers, eager, output_attentions=True" in done.stdout
