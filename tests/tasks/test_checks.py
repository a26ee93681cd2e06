"""The checks hold of every sound model, and each fault of a broken one is named by its own line."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from regard.generate.beam import Search
from regard.models.decoder import Decoder, DecoderState
from regard.models.encoder import Encoder
from regard.models.encoder_decoder import EncoderDecoder
from regard.nn.attend import DotAttend
from regard.nn.attention import Memory
from regard.nn.cache import GrowingCache, Stored
from regard.nn.init import initialize
from regard.nn.mask import Mask
from regard.nn.norm import Norm
from regard.settings.schema import Tower
from regard.tasks.checks import CHECKS, Sentences, checks

VOCABULARY = 40
ASKED = Sentences([[5, 6, 7, 2], [8, 9, 10, 11, 12, 13, 14, 2], [15, 2]],
                  [[1, 20, 21, 22, 23, 24, 25], [1, 26, 27], [1, 28, 29, 30]], pad=0, end=2)
Patch = pytest.MonkeyPatch


def translator(**settings: object) -> EncoderDecoder:
    model = EncoderDecoder(Tower(width=32, depth=1, heads=4, **settings), sources=VOCABULARY, targets=VOCABULARY)
    initialize(model, seed=0)
    return model.eval()


def failed(model: EncoderDecoder) -> list[str]:
    return [check.name for check in checks(model, ASKED) if not check.holds]


@pytest.mark.parametrize(("score", "positions", "key_heads"), [
    ("scaled-dot", "sinusoidal", None), ("dot", "none", 1), ("bilinear", "fourier", 2), ("additive", "learned", None),
    ("distance", "rotary", 2), ("scaled-dot", "relative", 1), ("scaled-dot", "alibi", 4)])
def test_all_hold_whatever_the_score_and_the_positions(score: str, positions: str, key_heads: int | None) -> None:
    model = translator(score=score, positions=positions, key_heads=key_heads, temperature=0.7, norm_place="post")
    assert failed(model) == []


def test_the_differences_are_those_of_rounding() -> None:
    found = list(checks(translator(), ASKED))
    assert len(found) == len(CHECKS) == 8
    assert 0 < max(check.difference for check in found) < 1e-5


# Models that are broken, each in one place.


class OffByOne(Mask):
    only_causal = False

    def dense(self, queries: Tensor, keys: Tensor) -> Tensor:
        return keys[:, None, None, :] <= queries[:, None, :, None] + 1


def mask_off_by_one(patch: Patch) -> None:
    sound = Decoder.forward
    patch.setattr(Decoder, "forward", lambda self, x, memory=None, **options: sound(
        self, x, memory, **{**options, "mask": OffByOne()}))


def positions_not_advanced_with_the_cache(patch: Patch) -> None:
    def step(self: Decoder, tokens: Tensor, state: DecoderState) -> Tensor:
        here = state.position + torch.arange(tokens.shape[1])
        x = self(self.embed(tokens), state.memory, positions=here, cache=state.caches)  # embedded as if at the start
        state.position += tokens.shape[1]
        return x

    patch.setattr(Decoder, "step", step)


def padding_seen(patch: Patch) -> None:
    sound = EncoderDecoder.encode
    patch.setattr(EncoderDecoder, "encode", lambda self, source, mask=None: sound(self, source))


def padding_seen_by_the_decoder_alone(patch: Patch) -> None:
    sound = EncoderDecoder.encode
    patch.setattr(EncoderDecoder, "encode", lambda self, source, mask: Memory(sound(self, source, mask).states))


def values_not_reordered(patch: Patch) -> None:
    def reorder(self: GrowingCache, rows: Tensor) -> None:
        if self.stored is not None:
            k, v, places, *_ = self.stored
            self.stored = Stored(k[rows], v, places)

    patch.setattr(GrowingCache, "reorder", reorder)


def another_scale_in_the_fused_kernel(patch: Patch) -> None:
    sound = DotAttend._fused
    patch.setattr(DotAttend, "_fused", lambda self, q, *others: sound(self, 1.01 * q, *others))


def norm_over_the_batch(patch: Patch) -> None:
    sound = Norm.forward
    patch.setattr(Norm, "forward", lambda self, x: sound(self, x - 0.01 * x.mean(0, keepdim=True)))


def beam_that_prefers_the_second_best(patch: Patch) -> None:
    sound = Search.candidates

    def candidates(self: Search, logits: Tensor, count: int) -> tuple[Tensor, ...]:
        best = logits.argmax(-1, keepdim=True)
        return sound(self, logits.scatter(1, best, -1e9), count)

    patch.setattr(Search, "candidates", candidates)


def encoder_that_only_looks_back(patch: Patch) -> None:
    sound = Encoder.forward
    patch.setattr(Encoder, "forward", lambda self, x, *, mask=None, positions=None: sound(
        self, x, mask=Mask(causal=True), positions=positions if positions is None else torch.arange(x.shape[1])[None]))


@pytest.mark.parametrize(("fault", "wrong"), [
    (mask_off_by_one, {"no look into the future", "cache = none", "padded = unpadded", "reordered = fresh"}),
    (positions_not_advanced_with_the_cache, {"cache = none", "reordered = fresh"}),
    (padding_seen, {"padded = unpadded"}),
    (padding_seen_by_the_decoder_alone, {"padded = unpadded"}),
    (values_not_reordered, {"reordered = fresh"}),
    (another_scale_in_the_fused_kernel, {"fused = explicit"}),
    (norm_over_the_batch, {"batch = single", "no look into the future"}),
    (beam_that_prefers_the_second_best, {"beam 1 = greedy"}),
    (encoder_that_only_looks_back, {"equivariant without positions"}),
], ids=lambda value: getattr(value, "__name__", ""))
def test_a_fault_is_named_by_its_own_line(
    fault: Callable[[Patch], None], wrong: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    assert set(failed(translator())) == wrong


def test_the_line_says_where_the_fault_is() -> None:
    model = translator()
    model.decoder.blocks[0].cross.attend.forward = lambda q, *others, **options: DotAttend.forward(  # type: ignore
        model.decoder.blocks[0].cross.attend, 2 * q, *others, **options)
    [fused] = [check for check in checks(model, ASKED) if check.name == "fused = explicit"]
    assert fused.place == "decoder.blocks.0.cross"
    assert fused.difference > 1e-3


def test_of_what_is_not_a_number_nothing_holds() -> None:
    model = translator()
    model.decoder.output.weight.data[:] = torch.nan
    assert {"batch = single", "cache = none", "beam 1 = greedy", "no look into the future"} <= set(failed(model))
