"""The numbers about attention mean what they say."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.data.dataset import Box
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer import train as train_tokenizer
from regard.look.axes import AxisPair, Grid, Mixed
from regard.look.measure import (
    MEASURES,
    by_head,
    distance,
    entropy,
    first,
    moved,
    patch_distance,
    pointing,
    points_at,
)
from regard.look.record import Record
from regard.models.build import text_encoder
from regard.models.decoder import Decoder
from regard.nn.init import initialize
from regard.settings.errors import UserError
from regard.settings.schema import Tower

TOWER = Tower(width=32, depth=3, heads=4, dropout=0.0)
SITE = "encoder.blocks.0.self"


def some_weights(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.ones(shape[-1]) * 0.5, shape[:-1]).astype(np.float32)


def record(weights: np.ndarray) -> Record:
    targets, sources = (tuple(f" w{i}" for i in range(size)) for size in weights.shape[1:])
    return Record({SITE: weights}, {SITE: AxisPair(targets, sources)}, {SITE: tuple(range(len(weights)))})


@given(st.integers(0, 99), st.integers(1, 20))
def test_entropy_lies_between_one_token_and_all_alike(seed: int, length: int) -> None:
    weights = some_weights(2, 3, length, seed=seed)
    found = entropy(weights)
    assert found.shape == (2, 3)
    assert (found > -1e-6).all()
    assert (found < math.log2(length) + 1e-5).all()
    assert entropy(np.full((1, length), 1 / length)) == pytest.approx(math.log2(length))
    assert entropy(np.eye(length)) == pytest.approx(0)


def test_distance_counts_places() -> None:
    assert distance(np.eye(5)) == pytest.approx(0)
    assert distance(np.eye(6)[:5][:, ::-1])[0] == pytest.approx(5)
    assert distance(np.array([[0.5, 0.0, 0.5]])) == pytest.approx(1)


def test_the_share_of_the_first_token_is_its_column() -> None:
    weights = some_weights(2, 3, 4)
    assert np.array_equal(first(weights), weights[:, :, 0])


def test_a_head_is_measured_over_rows_however_long_their_sentences() -> None:
    short, long = some_weights(2, 1, 4, seed=1), some_weights(2, 3, 4, seed=2)
    found = by_head([record(short), record(long)], MEASURES["first"])
    rows = np.concatenate([short, long], axis=1)[:, :, 0]
    assert found == {(SITE, 0): pytest.approx(rows[0].mean()), (SITE, 1): pytest.approx(rows[1].mean())}


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 99))
def test_the_distance_between_patches_is_a_straight_line(height: int, width: int, seed: int) -> None:
    weights = some_weights(1, height * width, height * width, seed=seed)[0]
    for place, found in enumerate(patch_distance(weights, Grid(height, width))):
        expected = sum(float(weights[place, other]) * math.dist(divmod(place, width), divmod(other, width))
                       for other in range(height * width))
        assert found == pytest.approx(expected, abs=1e-5)


def test_a_class_token_has_no_distance_and_takes_nothing_from_that_of_patches() -> None:
    grid = Grid(1, 2, ("[CLS]",))
    weights = np.array([[[0.5, 0.5, 0.0], [0.8, 0.0, 0.2], [0.5, 0.5, 0.0]]], np.float32)
    seen = Record({SITE: weights}, {SITE: AxisPair(grid, grid)}, {SITE: (0,)})
    assert by_head([seen], MEASURES["distance"]) == {(SITE, 0): pytest.approx(1)}
    mixed = Mixed((grid, (" a",)))
    wider = np.pad(weights, ((0, 0), (0, 1), (0, 1)))
    seen = Record({SITE: wider}, {SITE: AxisPair(mixed, mixed)}, {SITE: (0,)})
    assert by_head([seen], MEASURES["distance"]) == {(SITE, 0): pytest.approx(1)}


TOP_LEFT, RIGHT = Box(0, 0, 0.5, 0.5), Box(0, 0.5, 1, 1)


def test_a_word_points_at_a_region_if_its_strongest_patch_lies_there() -> None:
    weights = np.eye(4)  # word i looks at patch i of 2 x 2
    assert points_at(weights, Grid(2, 2), {0: [TOP_LEFT], 1: [TOP_LEFT], 3: [TOP_LEFT, RIGHT]}).tolist() == [
        True, False, True]
    speck = Box(0.6, 0.1, 0.62, 0.12)  # in no patch's centre, but in the patch below on the left
    assert points_at(weights, Grid(2, 2), {0: [speck], 2: [speck], 7: [speck]}).tolist() == [False, True]


def test_pointing_counts_words_of_the_answer_in_any_attention_that_sees_the_picture() -> None:
    grid = Grid(2, 2)
    crossed = AxisPair((" r", "ed", " box", "</s>"), grid)
    head = np.zeros((4, 4), np.float32)
    head[0, :2], head[1, [0, 3]] = (0.4, 0.6), (0.45, 0.55)  # of its pieces' mean, "red" looks at patch 0 most
    head[2, 1], head[3, 0] = 1, 1
    other = np.roll(head, 1, axis=1) / 2
    own = AxisPair(Mixed((grid, crossed.targets)), Mixed((grid, crossed.targets)))
    inside = np.zeros((2, 8, 8), np.float32)
    inside[:, 4:, :4] = head, other
    seen = Record({"cross": np.stack([head, other]), "patches": np.zeros((1, 4, 4), np.float32), "mixed": inside,
                   "text": np.zeros((1, 4, 4), np.float32)},
                  {"cross": crossed, "patches": AxisPair(grid, grid), "mixed": own,
                   "text": AxisPair(crossed.targets, crossed.targets)},
                  {"cross": (0, 1), "patches": (0,), "mixed": (0, 1), "text": (0,)})
    gold = {0: [TOP_LEFT], 1: [RIGHT]}
    assert {site for site, _ in by_head([seen], MEASURES["distance"])} == {"patches", "mixed", "text"}
    assert pointing([seen.only(["cross", "patches", "text"])], [gold], [range]) == {
        ("cross", 0): 1.0, ("cross", 1): 0.0, ("cross", -1): 1.0}
    assert pointing([seen.only(["mixed"])] * 2, [gold, {}], [lambda rows: range(rows - 4, rows)] * 2) == {
        ("mixed", 0): 1.0, ("mixed", 1): 0.0, ("mixed", -1): 1.0}


@pytest.fixture(scope="module")
def tokens() -> Tokenizer:
    texts = ["the bank of the river is green", "the bank in the street is open", "bank river", "bank street"]
    return train_tokenizer(texts, kind="bpe", vocabulary=320)


def test_the_word_bank_moves_with_what_follows_it(tokens: Tokenizer) -> None:
    encoder = text_encoder(TOWER, vocabulary=len(tokens)).eval()
    initialize(encoder, seed=0)
    alike = moved(encoder, tokens, "bank", "bank of the river", "bank in the street")
    assert len(alike) == 1 + TOWER.depth
    assert alike[0] == pytest.approx(1)  # the same word at the same place
    assert all(cosine < 0.9999 for cosine in alike[1:])
    assert moved(encoder, tokens, "bank", "the bank", "the bank") == pytest.approx([1.0] * 4)


def test_a_decoder_moves_a_word_by_what_went_before_only(tokens: Tokenizer) -> None:
    decoder = Decoder(TOWER, vocabulary=len(tokens)).eval()
    initialize(decoder, seed=0)
    assert moved(decoder, tokens, "bank", "the bank river", "the bank street") == pytest.approx([1.0] * 4)
    assert moved(decoder, tokens, "bank", "river bank", "street bank")[-1] < 0.9999


def test_a_word_in_pieces_is_their_mean(tokens: Tokenizer) -> None:
    encoder = text_encoder(TOWER, vocabulary=len(tokens)).eval()
    initialize(encoder, seed=0)
    [ids] = tokens.encode(["xyzzy"])
    assert len(ids) > 1
    assert moved(encoder, tokens, "xyzzy", "xyzzy river", "xyzzy street")[0] == pytest.approx(1)


def test_a_word_that_is_not_there_is_refused(tokens: Tokenizer) -> None:
    encoder = text_encoder(TOWER, vocabulary=len(tokens)).eval()
    with pytest.raises(UserError, match="bank: no word of 'the river'"):
        moved(encoder, tokens, "bank", "the river", "the bank")
    assert not any(module._forward_hooks for module in encoder.modules())
    assert torch.is_grad_enabled()
