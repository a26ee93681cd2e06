"""Global tokens with queries, keys and values of their own: Longformer's attention."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from attention_paths import WAYS
from regard.look.watch import sites, watch
from regard.models.build import text_encoder
from regard.nn.attention import Attention
from regard.nn.block import Block, PostNormBlock
from regard.nn.global_attention import GlobalAttention
from regard.nn.init import initialize
from regard.nn.mask import Mask, whole
from regard.nn.positions import Positions, Rotary
from regard.settings.schema import Tower

WIDTH, HEADS = 16, 4
CPU = torch.device("cpu")
in_every_way = pytest.mark.parametrize("way", WAYS[:2], indirect=True)


def attention(**settings: object) -> GlobalAttention:
    part = GlobalAttention(WIDTH, heads=HEADS, **settings)  # type: ignore[arg-type]
    for parameter in part.parameters():
        nn.init.normal_(parameter, std=0.5)
    return part.eval()


def tokens(rows: int, length: int) -> tuple[Tensor, Mask]:
    """Rows of different lengths, with no, one and several global tokens."""
    real = torch.arange(length) < torch.linspace(length, length // 2, rows).long()[:, None]
    chosen = torch.zeros(rows, length, dtype=torch.bool)
    chosen[1:, 0] = chosen[2:, length // 3] = True
    return torch.randn(rows, length, WIDTH), Mask(window=3, globals=chosen, keys=real)


@in_every_way
@pytest.mark.parametrize("length", [5, 150])  # the dense way, and the linear one
@pytest.mark.parametrize("kv_heads", [2, HEADS])
def test_where_both_projections_are_the_same_it_is_plain_windowed_attention(length: int, kv_heads: int) -> None:
    part = attention(kv_heads=kv_heads, positions=Rotary(WIDTH // HEADS))
    part.global_qkv.load_state_dict(part.qkv.state_dict())
    x, mask = tokens(3, length)
    plain = Attention(WIDTH, heads=HEADS, kv_heads=kv_heads, positions=Rotary(WIDTH // HEADS)).eval()
    plain.load_state_dict({name: value for name, value in part.state_dict().items() if "global" not in name})
    torch.testing.assert_close(part(x, mask=mask), plain(x, mask=mask), rtol=1e-5, atol=1e-5)


def test_only_the_global_tokens_read_the_projections_of_their_own() -> None:
    part, (x, mask) = attention(), tokens(3, 150)
    before = part(x, mask=mask)
    nn.init.normal_(part.global_qkv.weight)
    changed = (part(x, mask=mask) != before).any(-1)
    assert torch.equal(changed, mask.globals)


def test_where_no_token_is_global_they_are_not_there() -> None:
    part, (x, mask) = attention(), tokens(3, 150)
    none = replace(mask, globals=torch.zeros_like(mask.keys))
    torch.testing.assert_close(part(x, mask=none), part(x, mask=replace(mask, globals=None)))


def test_the_room_for_global_tokens_does_not_show() -> None:
    part, (x, mask) = attention(), tokens(3, 150)
    for most in (2, 5, 200):
        torch.testing.assert_close(part(x, mask=replace(mask, most_globals=most)), part(x, mask=mask))


def test_global_tokens_are_found_by_position() -> None:
    part, (x, mask) = attention(), tokens(3, 40)
    expected = part(x, mask=mask)
    torch.testing.assert_close(part(x, mask=mask, positions=whole(40, CPU)), expected)
    order = torch.stack([torch.randperm(40) for _ in range(3)])
    shuffled = x.gather(1, order[:, :, None].expand_as(x))
    torch.testing.assert_close(part(shuffled, mask=mask, positions=order),
                               expected.gather(1, order[:, :, None].expand_as(x)), rtol=1e-4, atol=1e-5)


def test_every_projection_learns() -> None:
    part, (x, mask) = attention(), tokens(3, 150)
    part(x, mask=mask).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() and parameter.grad.any()
               for parameter in part.parameters())


def test_the_weights_of_both_attentions_together_are_what_each_token_looks_at() -> None:
    part, (x, mask) = attention(), tokens(3, 150)
    assert set(sites(text_encoder(Tower(depth=1, global_projections=True), vocabulary=9))) == {
        "blocks.0.self", "blocks.0.self.global_attend"}
    with watch(part) as seen:
        out = part(x, mask=mask)
    ordinary, theirs = seen[""], seen["global_attend"]
    assert (ordinary.sum(-1).transpose(1, 2)[mask.globals] == 0).all()  # they ask elsewhere
    filled = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]])  # by row: zeros where there is no global token
    torch.testing.assert_close(theirs.sum(-1), filled[:, None].expand(-1, HEADS, -1))
    (*_, v), (*_, far) = (part.projected(layer(x), whole(150, CPU)) for layer in (part.qkv, part.global_qkv))
    context = ordinary @ v
    context[1:, :, 0] += (theirs @ far)[1:, :, 0]
    context[2, :, 50] += (theirs @ far)[2, :, 1]
    torch.testing.assert_close(part.out(part.merge(context)), out, rtol=1e-4, atol=1e-5)


@in_every_way
@pytest.mark.parametrize("length", [24, 160])
@pytest.mark.parametrize("window", [2, 4])  # to either side: transformers' attention_window is twice as much
def test_the_blocks_are_those_of_longformer(length: int, window: int) -> None:
    from transformers import LongformerConfig, LongformerModel

    config = LongformerConfig(
        vocab_size=50, hidden_size=WIDTH, num_hidden_layers=3, num_attention_heads=HEADS, intermediate_size=24,
        attention_window=2 * window, max_position_embeddings=length + 2, pad_token_id=1)
    theirs = LongformerModel(config, add_pooling_layer=False).eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)
    tower = Tower(width=WIDTH, heads=HEADS, ffn_width=24, norm_place="post", activation="gelu", dropout=0.0,
                  norm_epsilon=config.layer_norm_eps, global_projections=True)
    ours = [copied(layer, tower) for layer in theirs.encoder.layer]
    _, mask = tokens(3, length)
    mask = replace(mask, window=window)
    ids = torch.randint(2, 50, (3, length))
    states = theirs(ids, attention_mask=mask.keys.long(), global_attention_mask=mask.globals.long(),
                    output_hidden_states=True).hidden_states
    x = states[0]
    for block, expected in zip(ours, states[1:], strict=True):
        x = block(x, mask=mask)
        torch.testing.assert_close(x[mask.keys], expected[mask.keys], rtol=1e-5, atol=1e-5)


def copied(layer: nn.Module, tower: Tower) -> Block:
    """A block with the weights of a layer of Longformer."""
    block, theirs = PostNormBlock(tower, positions=Positions()).eval(), layer.attention.self
    parts = {
        "self.qkv": (theirs.query, theirs.key, theirs.value),
        "self.global_qkv": (theirs.query_global, theirs.key_global, theirs.value_global),
        "self.out": (layer.attention.output.dense,), "self_norm": (layer.attention.output.LayerNorm,),
        "feed_forward.up": (layer.intermediate.dense,), "feed_forward.down": (layer.output.dense,),
        "feed_forward_norm": (layer.output.LayerNorm,)}
    block.load_state_dict({f"{name}.{kind}": torch.cat([getattr(part, kind).data for part in held])
                           for name, held in parts.items() for kind in ("weight", "bias")})
    return block


@pytest.mark.parametrize("score", ["additive", "bilinear"])
def test_a_score_that_learns_begins_alike_for_both(score: str) -> None:
    model = text_encoder(Tower(width=64, depth=1, heads=1, score=score, global_projections=True), vocabulary=9)
    initialize(model, seed=0)
    own, theirs = (dict(part.named_parameters()) for part in (
        model.blocks[0].self.attend, model.blocks[0].self.global_attend))
    for name, parameter in own.items():
        assert parameter.std().item() == pytest.approx(theirs[name].std().item(), rel=0.5)
