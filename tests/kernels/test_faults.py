"""A proof that the proofs of kernels can fail: each fault, put into a kernel's arithmetic by hand, is seen."""

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kernels.faults import faulty
from kernels.proof import filled
from kernels.test_proof import test_a_kernel_runs_and_gives_what_the_definition_gives as proof
from models import test_shared_kv_cache as shared
from models import test_translators as translators
from regard.kernels import cross_entropy_chunked as pieces
from regard.kernels.quantize import QuantizedLinear
from regard.models.decoder import Decoder
from regard.nn.loss import cross_entropy
from regard.settings.schema import Tower


class Fault(NamedTuple):
    """In `regard.kernels`: the module, the function, what stands there, and what is put there."""

    module: str
    function: str
    right: str
    wrong: str


def of(module: str, function: str, right: str, wrong: str) -> Fault:
    return Fault(module, function, right, wrong)


def named(fault: Fault) -> Any:
    found: Any = importlib.import_module(f"regard.kernels.{fault.module}")
    for part in fault.function.split("."):
        found = vars(found)[part] if isinstance(found, type) else getattr(found, part)
    return getattr(found, "__func__", getattr(found, "fget", found))  # of a static method, or of a property


# What sees them: true sentences about the library that are quickly tried.


@torch.no_grad()
def a_fixed_cache_goes_on_as_one_that_grows() -> None:
    torch.manual_seed(0)
    model = filled(Decoder(Tower(width=16, depth=2, heads=4, dropout=0.0, kv_heads=2), vocabulary=11), "cpu").eval()
    changes: list[Callable[[Any], object]] = [
        lambda state: None, lambda state: state.reorder(torch.tensor([2, 0, 0])),
        lambda state: state.truncate(5), lambda state: state.reorder(torch.tensor([1, 1, 2])),
        lambda state: state.reorder(torch.tensor([2, 1])), lambda state: state.reorder(torch.tensor([1, 0]))]
    for some in (changes, [lambda state: state.truncate(torch.tensor([[3], [1], [4]]))]):
        states = [model.begin(3, capacity=30), model.begin(3)]
        read = torch.randint(11, (3, 4))
        same(*(model.step(read, state) for state in states))
        for change in some:
            for state in states:
                change(state)
            for count in (1, 2, 1):
                read = torch.randint(11, (states[0].rows, count))
                same(*(model.step(read, state) for state in states))


def rows_that_share_a_store_are_what_they_are_with_their_own() -> None:
    shared.test_rows_change_places_and_leave_their_keys({}, 3)
    shared.test_sources_leave_as_they_end()
    shared.test_several_tokens_at_once_and_back_again()
    model = shared.decoder()
    states = shared.both(model, prompt=1)
    for _ in range(2):
        shared.same_step(model, states, 2)
        for state in states:
            state.reorder(torch.arange(12).view(3, 4).flip(1).flatten())
            state.truncate(2)


def a_loss_in_pieces_is_the_loss_at_once() -> None:
    torch.manual_seed(0)
    states, weight, bias = (torch.randn(*shape, requires_grad=True) for shape in ((20, 6), (17, 6), (17,)))
    targets = torch.randint(17, (20,))
    targets[::4] = 0
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(pieces.MAX_CHUNK_LOGITS, "cpu", 17 * 7)
        for smoothing in (0.0, 0.3):
            loss, plain = cross_entropy(states, weight, targets, ignore=0, smoothing=smoothing, bias=bias)
            expected, bare = (F.cross_entropy(states @ weight.T + bias, targets, ignore_index=0, label_smoothing=amount,
                                              reduction="sum") for amount in (smoothing, 0.0))
            same(loss, expected)
            same(plain, bare.detach())
            for mine, theirs in zip(*(torch.autograd.grad(2 * each, (states, weight, bias))
                                      for each in (loss, expected)), strict=True):
                same(mine, theirs)


def a_narrow_product_is_nearly_the_layer_s() -> None:
    engines = [name for name in ("x86", "fbgemm") if name in torch.backends.quantized.supported_engines]
    if not engines:
        pytest.skip("torch was built without such products")
    torch.manual_seed(0)
    layer = nn.Linear(24, 40).requires_grad_(False)
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias, 5.0)
    for kind, near in (("int8", 0.02), ("float16", 1e-3)):
        packed = QuantizedLinear(layer, kind, engine=engines[0])
        assert (packed.weight - layer.weight).abs().max() < near * layer.weight.abs().max()
        for rows in (3, 20):
            x = torch.randn(rows, 24)
            if rows == 20:  # each has a scale of its own
                x = x * torch.logspace(-2, 2, rows)[:, None] + 2
            exact = layer(x)
            scale = exact.abs().amax(1, keepdim=True) if rows == 20 else exact.abs().max()
            assert ((packed(x) - exact).abs() / scale).max() < near, rows


def same(mine: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(mine, theirs, atol=2e-5, rtol=2e-5)


def a_gradient_by_hand_is_the_one_of_autograd() -> None:
    translators.test_the_gradient_by_hand_is_the_one_that_autograd_finds(False, 1.5)


PIECES = a_loss_in_pieces_is_the_loss_at_once
FIXED = a_fixed_cache_goes_on_as_one_that_grows
SHARED = rows_that_share_a_store_are_what_they_are_with_their_own
NARROW = a_narrow_product_is_nearly_the_layer_s
BY_HAND = a_gradient_by_hand_is_the_one_of_autograd
LINEAR, ACTIVATED = (partial(proof, f"{kind}.onednn") for kind in ("linear", "activated_linear"))
NORM, STEP = partial(proof, "norm.mixed_precision"), partial(proof, "decode_step.cpu")

ON_A_CPU: list[tuple[Callable[[], None], Fault]] = [
    *((LINEAR, of("linear_onednn", *fault)) for fault in [
        ("_without_gradient", "_product(x, weight, call.bias, activation)", "_product(x, weight, None, activation)"),
        ("_product", "(x, weight, bias, name", "(1.001 * x, weight, bias, name"),
        ("_Linear.forward", "_product(x, weight, bias)", "_product(x, weight, None)"),
        ("_Linear.backward", "_product(grad, weight.T)", "_product(grad, -weight.T)"),
        ("_Linear.backward", "x.flatten(0, -2) if", "x.flatten(0, -2).roll(1, 0) if"),
        ("_Linear.backward", "rows.sum(0)", "rows[1:].sum(0)")]),
    *((ACTIVATED, of("linear_onednn", *fault)) for fault in [
        ("run_activated", "call.activation.name", "'relu'"),
        ("run_activated", "layer.bias", "None"),
        ("_product", "name, [], kind", "name, [], 'tanh' if name == 'gelu' else kind")]),
    *((NORM, of("norm", "_without_autocast", "call.definition(call.x)", wrong)) for wrong in (
        "-call.definition(call.x)", "call.definition(call.x.roll(1, -1))", "call.definition(call.x) * 1.05")),
    *((PIECES, of("cross_entropy_chunked", *fault)) for fault in [
        ("_Pieces.forward", "x * real[:, None], times", "x, times"),
        ("_Pieces.forward", "grad * real[:, None]", "grad"),
        ("_Pieces.forward", "(total - own) * real", "(total - own)"),
        ("_Pieces.forward", "1 - smoothing, wants", "1.0, wants"),
        ("_Pieces.forward", "@ mean - mean_bias", "@ mean"),
        ("_Pieces.forward", "grad -= (smoothing * mean)", "grad += (smoothing * mean)"),
        ("_Pieces.forward", "weight_grad -= smoothing", "weight_grad += smoothing"),
        ("_Pieces.forward", "weight.shape[0] * real.sum()", "weight.shape[0] * len(real)"),
        ("_Pieces.forward", "(1 - smoothing) * plain + smoothing * spread", "plain + smoothing * spread"),
        ("_Pieces.backward", "weight_grad * factor", "weight_grad"),
        ("_added", "sum.addmm_(error.T, x)", "(error.T @ x)"),
        ("_errors", "own - chances.gather", "own + chances.gather"),
        ("_less", "chances.exp_()", "chances.exp_().mul_(1.01)"),
        ("_less", "-amount, dtype", "amount, dtype")]),
    (partial(proof, "cross_entropy.in_pieces"), of("linear_onednn", "times", "torch.addmm(bias, x, weight.T)",
                                                   "x @ weight.T")),
    *((STEP, of("decode_step", *fault)) for fault in [
        ("_CpuLayer.__init__", "scale / attention.attend.temperature", "scale"),
        ("_CpuLayer.__call__", "return x + self.feed", "return self.feed"),
        ("_CpuLayer.__call__", "x + self.attend(self.self_norm(x)", "x + self.attend(x"),
        ("_CpuLayer.__call__", "x + self.cross(self.cross.norm(x)", "x - self.cross(self.cross.norm(x)"),
        ("_CpuLayer.__call__", "self.feed_norm(x + self.feed(x))", "self.feed_norm(self.feed(x))"),
        ("_CpuLayer.attend", "q, k, v = heads", "q, v, k = heads"),
        ("_CpuLayer.attend", "if self.qk_norm", "if False"),
        ("_CpuLayer.attend", "if not self.stores_plain_keys", "if False"),
        ("_CpuLayer.attend", "self.rotate(q, call.positions)", "self.rotate(q, call.positions + 1)"),
        ("_CpuLayer.attend", "stored.k, stored.v, scale", "stored.k[:, :, 1:], stored.v[:, :, 1:], scale"),
        ("_CpuLayer.attend_to_shared", "stored.places(call.positions)", "stored.places(call.positions - 1)"),
        ("_CpuLayer.attend_to_shared", "attend.temperature", "2 * attend.temperature"),
        ("_CpuLayer.feed", "self.activation(self.up(x))", "self.up(x)"),
        ("_CpuCross.__call__", "call.memory.mask, None", "type(call.memory.mask)(), None"),
        ("_CpuCross.__call__", "known.keys, known.values", "known.values, known.keys"),
        ("_norm", "weight, bias, epsilon)", "weight, None, epsilon)"),
        ("_product", "weight=weight, bias=bias", "weight=weight, bias=None")]),
    *((FIXED, of("fixed_kv_cache", *fault)) for fault in [
        ("FixedCache._append_on_cpu", "narrow(2, filled - 1, 1).copy_(v)", "narrow(2, filled - 2, 1).copy_(v)"),
        ("FixedCache._append_on_cpu", "self._stored(filled,", "self._stored(filled - 1,"),
        ("FixedCache._write", "positions[0], v)", "positions[0], k)"),
        ("FixedCache.reorder", "self.values[rows]", "self.values[rows.flip(0)]"),
        ("FixedCache.reorder", "self.values.gather(0, lying)", "self.values"),
        ("BeamAncestry.write", "self.rows.index_copy_", "self.rows.index_copy"),
        ("BeamAncestry.write", "int(positions.max()) + 1", "int(positions.max()) + 2"),
        ("BeamAncestry.reorder", "self.rows[rows]", "self.rows[rows.flip(0)]"),
        ("BeamAncestry.restart", "torch.arange(rows, device=self.device)",
         "torch.arange(rows, device=self.device).flip(0)")]),
    *((SHARED, of("shared_kv_cache", *fault)) for fault in [
        ("SharedKVCache.append", "self.values[:, :, :stop]", "self.keys[:, :, :stop]"),
        ("SharedKVCache.append", "repeat_interleave(size, 1)", "repeat(1, size)"),
        ("SharedKVIndex.visible_keys", "== torch.arange(self.size)", "!= torch.arange(self.size)"),
        ("SharedKVIndex.reorder", "self.line[sources[:, None], places % self.size]", "self.line[sources]"),
        ("SharedKVIndex.reorder", "places[:, 0] // self.size", "torch.arange(len(places))"),
        ("SharedKVIndex.truncate", "self.line[:, :, :length]", "self.line"),
        ("SharedKVCache.truncate", "self.places < length", "self.places <= length"),
        ("_side_by_side", "permute(0, 2, 3, 1, 4)", "permute(0, 2, 1, 3, 4)"),
        ("_of_first", "room[:, :, :, 0] = x", "room[:, :, :, 1] = x")]),
    *((NARROW, of("quantize", *fault)) for fault in [
        ("_rounded", ".double() / 127", ".double() / 64"),
        ("_rounded", "(weight / scales[:, None]).round()", "(weight / scales[:, None]).floor()"),
        ("_int8", "linear_prepack(lifted, bias)", "linear_prepack(lifted, None)"),
        ("_int8", "scales / LIFT", "scales"),
        ("_int8", "addcmul_(middle, of_one)", "add_(middle)"),
        ("_int8", "y.mul_(reach)", "y.mul_(2 * reach)"),
        ("_int8", "y if bias is None else y.add_(bias)", "y"),
        ("_float16", "linear_prepack_fp16(weight, bias)", "linear_prepack_fp16(weight, None)"),
        ("QuantizedLinear.weight", "self.product(torch.zeros(1, self.in_features))", "0")]),
    *((BY_HAND, of("unrolled_decoder", *fault)) for fault in [
        ("_Unrolled.backward", "flow + grads[0][step]", "flow"),
        ("_Unrolled.backward", "flow * z[step], done", "flow, done"),
        ("_Unrolled.backward", "flow, z[step], value=-1", "flow, z[step], value=1"),
        ("_Unrolled.backward", "carried * before[step]", "carried"),
        ("_Unrolled.backward", "done.candidate[step] - before[step]", "done.candidate[step] + before[step]"),
        ("_Unrolled.backward", "addcmul_(carried, r[step])", "add_(carried)"),
        ("_Unrolled.backward", ".addmm_(back.asked[step], m.asked.T)", ""),
        ("_Unrolled.backward", "_rows(r * before)", "_rows(before)"),
        ("_Back.look", "scores / temperature", "scores"),
        ("_Back.look", "self.projected_keys.add_(bent)", "self.projected_keys.copy_(bent)"),
        ("_Back.look", "asked[:, None] + projected_keys", "projected_keys")]),
]


def title(fault: Fault) -> str:
    return f"{fault.module}.{fault.function}: {fault.right} → {fault.wrong}"


@pytest.mark.parametrize("sees", [PIECES, FIXED, SHARED, NARROW, BY_HAND], ids=lambda sees: sees.__name__)
def test_without_a_fault_the_sentences_are_true(sees: Callable[[], None]) -> None:
    sees()


@pytest.mark.parametrize(("sees", "fault"), ON_A_CPU, ids=[title(fault) for _, fault in ON_A_CPU])
def test_a_fault_in_a_kernel_for_a_cpu_is_seen(sees: Callable[[], None], fault: Fault) -> None:
    with faulty(named(fault), fault.right, fault.wrong), pytest.raises(AssertionError):
        sees()
