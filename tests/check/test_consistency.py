"""The checks hold of every sound model, and each fault of a broken one is named by its own line."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from regard.check.consistency import CHECKS, Check, checks
from regard.check.probe import Padded, Probe, of_decoder, of_encoder, of_encoder_decoder
from regard.generate.beam import Search
from regard.generate.detokenize import StreamingDecoder
from regard.generate.sampler import Sampler
from regard.models import build
from regard.models.build import image_encoder, text_encoder
from regard.models.classifier import Classifier
from regard.models.decoder import Decoder
from regard.models.decoder_state import DecoderState
from regard.models.encoder import Encoder
from regard.models.encoder_decoder import EncoderDecoder
from regard.nn.attend import Attend
from regard.nn.attention import Memory
from regard.nn.init import initialize
from regard.nn.kv_cache import GrowingCache
from regard.nn.mask import Mask
from regard.settings.schema import Head, Image, Tower

VOCABULARY = 40
SOURCES = [[5, 6, 7, 2], [8, 9, 10, 11, 12, 13, 14, 2], [15, 2]]
ROWS = [[1, 20, 21, 22, 23, 24, 25], [1, 26, 27], [1, 28, 29, 30]]
Patch = pytest.MonkeyPatch


def translator(**settings: object) -> EncoderDecoder:
    model = build.translator(Tower(width=32, depth=1, heads=4, **settings), sources=VOCABULARY, targets=VOCABULARY)
    initialize(model, seed=0)
    return model.eval()


def language(**settings: object) -> Decoder:
    model = Decoder(Tower(width=32, depth=1, heads=4, **settings), vocabulary=VOCABULARY)
    initialize(model, seed=0)
    return model.eval()


def checked(model: EncoderDecoder | Decoder) -> list[Check]:
    asked = (of_decoder(model, ROWS, pad=0, end=2, decode=text_of) if isinstance(model, Decoder)
             else of_encoder_decoder(model, SOURCES, ROWS, pad=0, token_pad=0, end=2, decode=text_of))
    return list(checks(asked))


def text_of(ids: Sequence[int]) -> str:
    """Half of the tokens are half a character."""
    parts = (bytes([id + 40]) if id % 2 else "é".encode()[id // 2 % 2 :][:1] for id in ids)
    return b"".join(parts).decode(errors="replace")


def failed(model: EncoderDecoder | Decoder) -> list[str]:
    return [check.name for check in checked(model) if not check.holds]


@pytest.mark.parametrize(("score", "positions", "kv_heads"), [
    ("scaled-dot", "sinusoidal", None), ("dot", "none", 1), ("bilinear", "fourier", 2), ("additive", "learned", None),
    ("distance", "rotary", 2), ("scaled-dot", "relative", 1), ("scaled-dot", "alibi", 4)])
def test_all_hold_whatever_the_score_and_the_positions(score: str, positions: str, kv_heads: int | None) -> None:
    model = translator(score=score, positions=positions, kv_heads=kv_heads, temperature=0.7, norm_place="post")
    assert failed(model) == []


@pytest.mark.parametrize(("positions", "kv_heads", "window"), [
    ("learned", None, None), ("rotary", 2, 3), ("alibi", None, None), ("relative", 1, 5), ("sinusoidal", None, 2)])
def test_all_hold_of_a_decoder_alone(positions: str, kv_heads: int | None, window: int | None) -> None:
    model = language(positions=positions, kv_heads=kv_heads, window=window, norm="rms", qk_norm=True, tied="output")
    found = checked(model)
    assert len(found) == len(CHECKS)
    assert all(check.holds for check in found)


def test_of_a_model_that_writes_nothing_only_what_it_reads_is_checked() -> None:
    encoder = text_encoder(Tower(width=32, depth=1, heads=4), vocabulary=VOCABULARY)
    initialize(encoder, seed=0)
    encoder.eval()

    def states(read: Padded) -> Tensor:
        return encoder(encoder.embed(read.values), mask=Mask(keys=read.real))

    found = list(checks(of_encoder(encoder, encoder, ROWS, pad=0, logits=states)))
    assert [check.name for check in found] == ["batch = single", "padded = unpadded", "fused = explicit",
                                               "equivariant without positions"]
    assert all(check.holds for check in found)


def test_inputs_of_one_size_have_no_padding_to_check() -> None:
    encoder = text_encoder(Tower(width=32, depth=1, heads=4), vocabulary=VOCABULARY)
    initialize(encoder, seed=0)
    asked = of_encoder(encoder.eval(), encoder, [[4, 5, 6], [7, 8, 9]], pad=None,
                       logits=lambda read: encoder(encoder.embed(read.values)))
    assert [check.name for check in checks(asked) if check.holds] == ["batch = single", "fused = explicit",
                                                                      "equivariant without positions"]


def pictures(tower: Tower) -> Probe:
    model = Classifier(image_encoder(tower), tower, labels=5)
    initialize(model, seed=0)
    with torch.no_grad():
        for parameter in model.parameters():  # no norm may hide a state by a weight of 0
            parameter += 0.1 * torch.randn(parameter.shape)
    return of_encoder(model.eval(), model.encoder, list(torch.randn(3, 3, 12, 12)), pad=None,
                      logits=lambda read: model(read.values)[:, None])


@pytest.mark.parametrize("positions", ["none", "sinusoidal", "learned", "rotary", "relative", "alibi"])
@pytest.mark.parametrize("image", [Image(size=12, patch=4), Image(size=12, patch=4, class_token=False),
                                   Image(size=12, patch=4, stem="convolutions")])
def test_a_set_of_patches_has_no_order_whatever_the_positions_tell(positions: str, image: Image) -> None:
    found = list(checks(pictures(Tower(width=32, depth=1, heads=4, positions=positions, image=image))))
    assert [check.name for check in found if check.holds] == ["batch = single", "fused = explicit",
                                                              "equivariant without positions"]


def test_a_resnet_has_no_attention_to_check() -> None:
    image = Image(size=12, stem="resnet", patch=1, stages=(1, 1))
    found = list(checks(pictures(Tower(width=16, head=Head(pool="mean"), image=image))))
    assert [check.name for check in found if check.holds] == ["batch = single"]


def test_the_differences_are_those_of_rounding() -> None:
    found = checked(translator())
    assert len(found) == len(CHECKS) == 10
    assert 0 < max(check.difference for check in found) < 1e-5


def test_a_decoder_that_takes_back_what_it_has_said_is_no_fault_of_the_model() -> None:
    def decode(ids: Sequence[int]) -> str:  # as a run of bytes is read of which the eighth makes no character
        return "\N{REPLACEMENT CHARACTER}" * len(ids) if len(ids) > 7 else "".join(chr(60 + id) for id in ids)

    found = checks(of_decoder(language(), ROWS, pad=0, end=2, decode=decode))
    assert all(check.holds for check in found)


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
        if self.keys is not None:
            self.keys = self.keys[rows]

    patch.setattr(GrowingCache, "reorder", reorder)


def another_scale_in_the_fused_kernel(patch: Patch) -> None:
    sound = functional.scaled_dot_product_attention
    patch.setattr(functional, "scaled_dot_product_attention", lambda *inputs, scale, **options: sound(
        *inputs, scale=1.01 * scale, **options))


def norm_over_the_batch(patch: Patch) -> None:
    sound = functional.layer_norm  # which the decode step of a CPU calls directly, too
    patch.setattr(functional, "layer_norm", lambda x, *others: sound(x - 0.01 * x.mean(0, keepdim=True), *others))


def beam_that_prefers_the_second_best(patch: Patch) -> None:
    sound = Search.candidates

    def candidates(self: Search, logits: Tensor, totals: Tensor) -> tuple[Tensor, ...]:
        best = logits.argmax(-1, keepdim=True)
        return sound(self, logits.scatter(1, best, -1e9), totals)

    patch.setattr(Search, "candidates", candidates)


def prompts_of_one_length(patch: Patch) -> None:
    sound = Sampler.__init__
    patch.setattr(Sampler, "__init__", lambda self, *inputs, lengths=None, **options: sound(self, *inputs, **options))


def text_that_is_cut(patch: Patch) -> None:
    patch.setattr(StreamingDecoder, "flush", lambda self: "")
    patch.setattr(StreamingDecoder, "push", lambda self, id: self.decode([id]).rstrip("\ufffd"))


def encoder_that_only_looks_back(patch: Patch) -> None:
    sound = Encoder.forward
    patch.setattr(Encoder, "forward", lambda self, x, *, mask=None, positions=None: sound(
        self, x, mask=Mask(causal=True), positions=positions if positions is None else torch.arange(x.shape[1])[None]))


@pytest.mark.parametrize("model", [translator, language])
@pytest.mark.parametrize(("fault", "wrong"), [
    (mask_off_by_one, {"no look into the future", "cache = none", "padded = unpadded", "reordered = fresh",
                       "alone = in a batch"}),
    (positions_not_advanced_with_the_cache, {"cache = none", "reordered = fresh"}),
    (values_not_reordered, {"reordered = fresh"}),
    (another_scale_in_the_fused_kernel, {"fused = explicit", "reordered = fresh"}),
    (norm_over_the_batch, {"batch = single", "no look into the future", "alone = in a batch"}),
    (beam_that_prefers_the_second_best, {"beam 1 = greedy"}),
    (prompts_of_one_length, {"alone = in a batch"}),
    (text_that_is_cut, {"streamed = whole"}),
], ids=lambda value: getattr(value, "__name__", ""))
def test_a_fault_is_named_by_its_own_line(
    fault: Callable[[Patch], None], wrong: set[str], model: Callable[[], EncoderDecoder | Decoder],
    monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    assert set(failed(model())) == wrong


@pytest.mark.parametrize(("fault", "wrong"), [
    (padding_seen, {"padded = unpadded", "alone = in a batch"}),
    (padding_seen_by_the_decoder_alone, {"padded = unpadded", "alone = in a batch"}),
    (encoder_that_only_looks_back, {"equivariant without positions"}),
], ids=lambda value: getattr(value, "__name__", ""))
def test_a_fault_of_the_encoder_is_named_by_its_own_line(
    fault: Callable[[Patch], None], wrong: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    assert set(failed(translator())) == wrong


def test_patches_that_only_look_back_are_found(monkeypatch: Patch) -> None:
    encoder_that_only_looks_back(monkeypatch)
    asked = pictures(Tower(width=32, depth=1, heads=4, image=Image(size=12, patch=4)))
    assert [check.name for check in checks(asked) if not check.holds] == ["equivariant without positions"]


def test_the_line_says_where_the_fault_is() -> None:
    model = translator()
    model.decoder.blocks[0].cross.attend.forward = lambda q, *others, **options: Attend.forward(  # type: ignore
        model.decoder.blocks[0].cross.attend, 2 * q, *others, **options)
    [fused] = [check for check in checked(model) if check.name == "fused = explicit"]
    assert fused.place == "decoder.blocks.0.cross"
    assert fused.difference > 1e-3


def test_of_what_is_not_a_number_nothing_holds() -> None:
    model = translator()
    model.decoder.output.weight.data[:] = torch.nan
    assert {"batch = single", "cache = none", "beam 1 = greedy", "no look into the future"} <= set(failed(model))
