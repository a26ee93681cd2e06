"""With the same weights, other people's models give the same logits."""

from dataclasses import replace

import peers
import pytest
import torch
from peers import PAD, Shape, copy_marian, copy_nn_transformer
from torch import Tensor, nn

from regard.models import build
from regard.models.encoder_decoder import EncoderDecoder
from regard.nn.mask import Mask
from regard.nn.positions import Sinusoidal

TINY = Shape(depth=2, width=16, heads=4, ffn_width=24, vocabulary=50, rows=3, length=9)
LENGTHS = torch.tensor([[7], [4], [1]])
KEYS = torch.arange(7) < LENGTHS


def translator(norm_place: str = "post", activation: str = "relu") -> EncoderDecoder:
    tower = replace(TINY.tower, norm_place=norm_place, activation=activation)
    return build.translator(tower, sources=TINY.vocabulary, targets=TINY.vocabulary).eval()


def shaken(model: nn.Module) -> nn.Module:
    """With weights, biases and norms of every size: a default of 0 or 1 hides what was not copied."""
    for name, parameter in model.named_parameters():
        if "embed_positions" not in name:
            nn.init.normal_(parameter, mean=1.0 if "norm" in name and name.endswith("weight") else 0.0, std=0.3)
    return model.eval()


def text() -> tuple[Tensor, Tensor]:
    source = torch.randint(2, TINY.vocabulary, (3, 7)).where(KEYS, PAD)
    return source, torch.randint(2, TINY.vocabulary, (3, 9))


def ours(model: EncoderDecoder, source: Tensor, target: Tensor) -> Tensor:
    return model.logits(model(source, target, mask=Mask(keys=KEYS)))


def close(a: Tensor, b: Tensor) -> None:
    assert (a - b).abs().max() <= 1e-5 * b.abs().max()


@pytest.mark.parametrize("place", ["post", "pre"])
def test_the_logits_are_those_of_nn_transformer(place: str) -> None:
    pre = place == "pre"
    sizes = {"d_model": 16, "nhead": 4, "dim_feedforward": 24, "dropout": 0.0, "batch_first": True, "norm_first": pre}
    final = [nn.LayerNorm(16) if pre else None for _ in range(2)]  # nn.Transformer has them after post-norm too
    encoder = shaken(nn.TransformerEncoder(nn.TransformerEncoderLayer(**sizes), 2, final[0], False))
    decoder = shaken(nn.TransformerDecoder(nn.TransformerDecoderLayer(**sizes), 2, final[1]))
    table, model, (source, target) = torch.randn(TINY.vocabulary, 16), translator(place), text()
    copy_nn_transformer(model, encoder, decoder, table)

    def embed(tokens: Tensor) -> Tensor:
        return table[tokens] * 4 + Sinusoidal(16).vectors(torch.arange(tokens.shape[1])[None])

    memory = encoder(embed(source), src_key_padding_mask=~KEYS)
    states = decoder(embed(target), memory, tgt_mask=nn.Transformer.generate_square_subsequent_mask(9),
                     tgt_is_causal=True, memory_key_padding_mask=~KEYS)
    close(ours(model, source, target), states @ table.T)


@pytest.mark.parametrize(("activation", "theirs"), [("relu", "relu"), ("silu", "swish"), ("gelu", "gelu")])
def test_the_logits_are_those_of_marian(activation: str, theirs: str) -> None:
    pytest.importorskip("transformers")
    marian = shaken(peers.marian(TINY, activation=theirs))
    model, (source, target) = translator(activation=activation), text()
    copy_marian(model, marian)
    expected = marian(input_ids=source, attention_mask=KEYS.long(), decoder_input_ids=target).logits
    close(ours(model, source, target), expected)


def test_the_gradients_are_those_of_marian() -> None:
    """Of the table of token vectors, which every other gradient passes through."""
    pytest.importorskip("transformers")
    marian, model, (source, target) = shaken(peers.marian(TINY)), translator(), text()
    copy_marian(model, marian)
    ours(model, source, target).logsumexp(-1).sum().backward()
    out = marian(input_ids=source, attention_mask=KEYS.long(), decoder_input_ids=target)
    out.logits.logsumexp(-1).sum().backward()
    order = torch.arange(16).view(2, -1).T.flatten()
    mine, expected = model.decoder.tokens.table.weight.grad, marian.model.shared.weight.grad[:, order]
    assert (mine - expected)[PAD + 1:].abs().max() <= 1e-4 * expected.abs().max()  # theirs leaves the padding out


def test_the_peer_of_the_benchmarks_is_the_same_model_as_ours_but_for_two_norms() -> None:
    """nn.Transformer norms once more after each post-norm tower; all else is equal, dropout's places included."""
    theirs, model, (source, target) = shaken(peers.Torch(replace(TINY, length=7))), translator(), text()
    model.encoder.norm, model.decoder.norm = nn.LayerNorm(16), nn.LayerNorm(16)
    copy_nn_transformer(model, theirs.transformer.encoder, theirs.transformer.decoder, theirs.table.weight)
    close(ours(model, source, target[:, :7]), theirs(source, target[:, :7], KEYS))
