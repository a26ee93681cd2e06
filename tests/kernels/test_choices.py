"""A search asks once which kernel takes a kind of call, and its answer is never out of date."""

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from weakref import ReferenceType, ref

import pytest
import torch
from torch import Tensor, nn

from kernels.proof import filled
from regard.generate.beam import Beam, beam
from regard.generate.sampler import Sampling, sample
from regard.kernels import decode_step, linear_onednn, table
from regard.kernels import kernel as kernels
from regard.kernels.calls import ActivatedLinearCall, AttentionCall, Bias, LinearCall
from regard.kernels.decode_step import DecodeCall, DecodePlan
from regard.kernels.kernel import Choices, Kernel, caching_choices, choose, log_kernels, use
from regard.kernels.linear_onednn import Layouts, lasting
from regard.kernels.quantize import quantize
from regard.models.build import translator
from regard.models.decoder import Decoder
from regard.models.encoder_decoder import EncoderDecoder
from regard.nn.feed_forward import FeedForward
from regard.nn.init import initialize
from regard.nn.linear import Linear
from regard.nn.mask import AttentionPositions, Mask, whole
from regard.settings.schema import Tower

VOCABULARY, PROMPT, NEVER = 40, 8, 99
Asked = tuple[tuple[Kernel[Any, Any], ...], Any]
"""The kernels of a family, and a call."""


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How often each kernel is asked whether it serves."""
    asked = Counter[str]()

    def counting(kernel: Kernel[Any, Any]) -> Kernel[Any, Any]:
        def serves(call: object) -> bool:
            asked[kernel.name] += 1
            return kernel.serves(call)

        return replace(kernel, serves=serves)

    with monkeypatch.context() as patched:
        for kind in [name for name in dir(table) if name.isupper()]:
            patched.setattr(table, kind, tuple(map(counting, getattr(table, kind))))
        patched.setattr(decode_step, "TO_MEMORY", tuple(map(counting, decode_step.TO_MEMORY)))
        patched.setattr(linear_onednn, "KERNEL", counting(linear_onednn.KERNEL))
        yield asked


def writer(depth: int) -> Decoder:
    torch.manual_seed(0)
    model = Decoder(Tower(width=32, depth=depth, heads=4, dropout=0.0), vocabulary=VOCABULARY)
    filled(model, "cpu")
    return model.eval()


def write(model: Decoder, tokens: int) -> None:
    with torch.inference_mode():
        list(sample(model, torch.arange(PROMPT)[None], how=Sampling(end=NEVER, longest=tokens, temperature=0)))


def translate(model: EncoderDecoder, tokens: int) -> None:
    with torch.inference_mode():
        beam(model, torch.zeros(1, 1, dtype=torch.long), how=Beam(end=VOCABULARY - 1, longest=tokens, size=5),
             memory=model.encode(torch.arange(PROMPT)[None]))


def test_writing_a_sentence_asks_less_than_a_twentieth_of_the_questions_it_once_did(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three blocks, 40 tokens: 729 before the choices were kernels of a table. All tokens and blocks ask the same."""
    with counted(monkeypatch) as asked:
        write(writer(3), 40)
    assert 0 < asked.total() <= 729 // 20, asked
    for depth, tokens in ((3, 80), (6, 40)):
        with counted(monkeypatch) as more:
            write(writer(depth), tokens)
        assert more == asked


def test_searching_a_translation_asks_less_than_a_twentieth_of_the_questions_it_once_did(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two blocks on either side, beam 5, 40 tokens: 2,158 before the choices were kernels of a table."""
    model = translator(Tower(width=32, depth=2, heads=4, dropout=0.0), sources=VOCABULARY, targets=VOCABULARY)
    initialize(model.eval(), seed=0)
    with counted(monkeypatch) as asked:
        translate(model, 40)
    assert 0 < asked.total() <= 2_158 // 20, asked


def attention(*, queries: int = 32, groups: int = 4, value: int = 8, dtype: torch.dtype = torch.float32,
              kept: torch.dtype = torch.float32, learns: bool = False, bias: Bias | None = None,
              scale: float | Tensor = 1.0, positions: AttentionPositions | None = None, keys: int = 32,
              **mask: Any) -> Asked:
    q = torch.zeros(1, 4, queries, 8, dtype=dtype, requires_grad=learns)
    k, v = torch.zeros(1, groups, keys, 8, dtype=kept), torch.zeros(1, 4, keys, value)
    return table.ATTENTION, AttentionCall(q, k, v, Mask(**mask), positions, bias, scale, 1.0, 0.0, lambda call: call.q)


def at(start: int = 0, *, visible_keys: Tensor | None = None) -> AttentionPositions:
    here = whole(32, torch.device("cpu"))
    return AttentionPositions(here + start, here, in_order=True, visible_keys=visible_keys)


def product(*, rows: int = 512, outputs: int = 40, dtype: torch.dtype = torch.float32,
            weights: torch.dtype = torch.float32, is_parameter: bool = True) -> Asked:
    weight = torch.zeros(outputs, 24, dtype=weights)
    call = LinearCall(torch.zeros(rows, 24, dtype=dtype), nn.Parameter(weight) if is_parameter else weight, None)
    return table.LINEAR, call


def activated(*, hooked: bool = False, gated: bool = False) -> Asked:
    part = FeedForward(64, 4_096, activation="reglu" if gated else "relu")
    if hooked:
        part.up.register_forward_hook(lambda *_: None)
    return table.ACTIVATED_LINEAR, ActivatedLinearCall(torch.zeros(64, 64), part.up, part.activation)


DECODER = Decoder(Tower(width=8, depth=1, heads=2), vocabulary=5).eval()
PLAN = DecodePlan(DECODER.blocks)


def token(*, blocks: nn.ModuleList | None = None, length: int = 1, in_order: bool = True, window: int | None = None,
          training: bool = False) -> Asked:
    plan = PLAN if blocks is None else DecodePlan(blocks)
    plan.blocks[0].training = training
    call = DecodeCall(plan, torch.zeros(1, length, 8), whole(length, torch.device("cpu")), [],
                      Mask(causal=True, window=window), None, in_order)
    return table.DECODE_STEP, call


SEEN = torch.ones(1, 32, dtype=torch.bool)
LIKE: dict[str, tuple[Callable[[], Asked], Callable[[], Asked]]] = {
    "queries": (attention, lambda: attention(queries=16)),
    "groups": (attention, lambda: attention(groups=2)),
    "value": (attention, lambda: attention(value=16)),
    "precision": (attention, lambda: attention(dtype=torch.float64)),
    "precision of keys": (attention, lambda: attention(kept=torch.bfloat16)),
    "learns": (lambda: attention(queries=100, keys=100), lambda: attention(queries=100, keys=100, learns=True)),
    "bias": (attention, lambda: attention(bias=lambda q, k: torch.zeros(1))),
    "scale": (attention, lambda: attention(scale=torch.ones(4, 1, 1))),
    "causal": (attention, lambda: attention(causal=True)),
    "documents": (attention, lambda: attention(documents=SEEN.int())),
    "blind": (attention, lambda: attention(blind=SEEN)),
    "positions": (attention, lambda: attention(positions=at())),
    "lines": (lambda: attention(positions=at()), lambda: attention(positions=at(visible_keys=SEEN[None, None]))),
    "window": (lambda: attention(positions=at(), causal=True),
               lambda: attention(positions=at(9), causal=True, window=2)),
    "a query's place": (lambda: attention(positions=at(), causal=True, window=40),
                        lambda: attention(positions=at(60), causal=True, window=40)),
    "rows": (product, lambda: product(rows=511)),
    "precision of rows": (product, lambda: product(dtype=torch.float64)),
    "precision of weights": (product, lambda: product(weights=torch.float64)),
    "a weight": (product, lambda: product(is_parameter=False)),
    "a hook on a layer": (activated, lambda: activated(hooked=True)),
    "gates": (activated, lambda: activated(gated=True)),
    "length": (token, lambda: token(length=2)),
    "order": (token, lambda: token(in_order=False)),
    "window of a token": (token, lambda: token(window=2)),
    "training": (token, lambda: token(training=True)),
    "blocks": (token, lambda: token(blocks=Decoder(Tower(width=8, depth=1, heads=2, positions="alibi"),
                                                   vocabulary=5).eval().blocks)),
}


def chosen(asked: Asked) -> Kernel[Any, Any] | None:
    family, call = asked
    return choose(family, call, call[1] if isinstance(call, DecodeCall) else call[0])


@pytest.mark.parametrize("pair", LIKE.values(), ids=LIKE)
def test_calls_that_differ_in_what_a_kernel_looks_at_are_not_mixed_up(
    pair: tuple[Callable[[], Asked], Callable[[], Asked]]
) -> None:
    product_like = pair[0] is activated or pair[0] is token  # these serve without a gradient only
    with torch.set_grad_enabled(not product_like):
        for one, other in (pair, pair[::-1]):
            alone = [chosen(one()), chosen(other())]
            assert alone[0] is not alone[1]
            with caching_choices(Choices()):
                assert [chosen(one()), chosen(other())] == alone


def test_the_number_of_weights_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_onednn, "_is_amd", lambda: False)
    few, many = (product(rows=64, outputs=outputs) for outputs in (40, 1 << 13))
    with torch.no_grad(), caching_choices(Choices()):
        assert chosen(few) is None
        assert chosen(many) is linear_onednn.KERNEL


def double(model: Decoder) -> None:
    with torch.no_grad():
        model.blocks[1].feed_forward.up.weight.mul_(2)


def other_weight(model: Decoder) -> None:
    layer = model.blocks[1].self.qkv
    layer.weight = nn.Parameter(2 * layer.weight.detach())


def other_gain(model: Decoder) -> None:
    norm = model.blocks[0].self_norm
    norm.weight = nn.Parameter(-norm.weight.detach())


def other_layer(model: Decoder) -> None:
    part = model.blocks[0].feed_forward
    part.down = Linear(part.down.in_features, part.down.out_features)


def hook(model: Decoder) -> None:
    model.blocks[0].feed_forward.down.register_forward_hook(lambda _, inputs, out: 2 * out)


def hook_before_attention(model: Decoder) -> None:
    model.blocks[1].self.attend.register_forward_pre_hook(lambda _, inputs: (-inputs[0], *inputs[1:]))


CHANGES: dict[str, Callable[[Decoder], object]] = {
    "a weight that is written over": double, "another weight": other_weight, "another gain": other_gain,
    "another layer": other_layer, "a hook": hook, "a hook before attention": hook_before_attention,
    "training": lambda model: model.train(), "quantized weights": lambda model: quantize(model, "int8"),
    "bfloat16": lambda model: model.to(torch.bfloat16),
    "bfloat16 in one norm": lambda model: model.blocks[0].self_norm.to(torch.bfloat16),
    "no biases": lambda model: setattr(model.blocks[0].self.out, "bias", None)}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@torch.no_grad()
def test_a_change_between_two_tokens_is_heeded(change: Callable[[Decoder], object]) -> None:
    model, choices = writer(2), Choices()
    states = [model.begin(2, capacity=12), model.begin(2, capacity=12)]

    def steps(token: int) -> list[Tensor]:
        tokens = torch.full((2, 1), token)
        with caching_choices(choices):
            fast = model.step(tokens, states[0])
        with use():
            return [fast, model.step(tokens, states[1])]

    for token in (3, 4):
        torch.testing.assert_close(*steps(token))
    change(model)
    fast, slow = steps(5)
    near = 0.03 if fast.dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(fast, slow, atol=near, rtol=near)
    if change is not CHANGES["training"]:  # nothing is dropped out here
        model = writer(2)
        state = model.begin(2, capacity=12)
        unchanged = [model.step(torch.full((2, 1), token), state) for token in (3, 4, 5)][-1]
        assert not torch.allclose(fast.float(), unchanged, atol=1e-4)


@torch.no_grad()
def test_what_may_run_is_heeded_between_two_tokens() -> None:
    model, choices, token = writer(1), Choices(), torch.tensor([[5]])
    state = model.begin(1, capacity=12)

    def step() -> list[str]:
        with caching_choices(choices), log_kernels() as log:
            model.step(token, state)
        return log

    assert step() == step() == ["decode_step.cpu"]
    with use() as log, caching_choices(choices):
        model.step(token, state)
    assert log == []
    with torch.enable_grad():
        assert "decode_step.cpu" not in step()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert "norm.mixed_precision" in step()
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(threads + 1)
        assert step() == ["decode_step.cpu"]
    finally:
        torch.set_num_threads(threads)


needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")


@needs_onednn
@torch.no_grad()
def test_products_are_chosen_again_inside_use() -> None:
    """Of four products, three are so large that oneDNN takes them on any machine."""
    model = filled(Decoder(Tower(width=256, depth=1, heads=4, dropout=0.0), vocabulary=VOCABULARY), "cpu").eval()
    products, token = list[object](), torch.ones(64, 1, dtype=torch.long)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(linear_onednn, "_product", lambda *args, plain=linear_onednn._product:
                        products.append(args) or plain(*args))
        state = model.begin(64, capacity=12)
        model.step(token, state)
        assert len(products) == 3
        with use("decode_step.cpu"):
            model.step(token, state)
        assert len(products) == 3
        model.step(token, state)
    assert len(products) == 6


@needs_onednn
@torch.no_grad()
def test_where_the_room_for_layouts_ends_each_matrix_is_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_onednn, "_is_amd", lambda: False)
    layers, x = [Linear(256, 1_024) for _ in range(2)], torch.randn(5, 256)
    layouts = Layouts(room=layers[0].weight.nbytes)

    def kernels_of(layer: Linear) -> list[str]:
        with lasting(layouts), log_kernels() as log:
            layer(x)
        return log

    assert kernels_of(layers[0]) == ["linear.onednn"]
    kernels_of(layers[1])  # there is no room
    assert [kernels_of(layer) for layer in layers] == [["linear.onednn"], []]


def test_what_a_sentence_laid_out_and_chose_is_gone_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once: a cycle would keep a copy of all weights until Python looks for cycles."""
    made = list[ReferenceType[Any]]()

    def layouts() -> Layouts:
        found = Layouts()
        made.extend((ref(found), ref(found.choices)))
        return found

    monkeypatch.setattr("regard.generate.sampler.Layouts", layouts)
    gc.collect()
    gc.disable()
    try:
        write(writer(1), 12)
        assert [one() for one in made] == [None, None]
    finally:
        gc.enable()


def test_no_more_is_remembered_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "MAX_CHOICES", 5)
    layer, choices = Linear(3, 4), Choices()
    with caching_choices(choices):
        for rows in range(1, 20):
            layer(torch.randn(rows, 3))
            assert 0 < len(choices.made) <= 5
