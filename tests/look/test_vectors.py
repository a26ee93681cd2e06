"""The vectors of a page are those of the pass that was watched, and as many of them as fit."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from regard.look.axes import AxisPair
from regard.look.explain import Caught, catch_all
from regard.look.page import VECTORS, Page, page
from regard.look.record import Record
from regard.look.vectors import Vectors, vectors
from regard.look.watch import watch
from regard.models.build import translator
from regard.nn.init import initialize
from regard.nn.mask import Mask
from regard.settings.errors import UserError
from regard.settings.presets import PRESETS
from regard.settings.schema import Tower

TOWER = Tower(width=32, depth=2, heads=4)
SOURCE, TARGET = torch.tensor([[3, 4, 5, 6, 7]]), torch.tensor([[1, 11, 12, 13]])


def looked(source: torch.Tensor = SOURCE, *, heads: list[int] | None = None,
           tower: Tower = TOWER, **settings: Any) -> tuple[dict[str, Caught], Record]:
    model = translator(replace(tower, **settings), sources=40, targets=40).eval()
    initialize(model, seed=0)
    with torch.no_grad(), catch_all(model) as caught, watch(model, heads=heads) as seen:
        model(source, TARGET, mask=Mask(keys=source != 0))
    words = tuple(f" {i}" for i in range(9))
    labels = {site: AxisPair(words[: each.shape[2]], words[: each.shape[3]]) for site, each in seen.items()}
    return caught, Record({site: each[0].numpy() for site, each in seen.items()}, labels, seen.heads)


@pytest.mark.parametrize("preset", ["bahdanau", "luong"])
def test_a_page_has_the_vectors_of_words_that_ask_one_by_one(preset: str) -> None:
    caught, record = looked(tower=PRESETS[preset](), width=32)
    one = vectors(caught, record)["decoder.cross"]
    assert one.queries.shape == (1, TARGET.shape[1], 32)
    assert one.scores is not None
    np.testing.assert_allclose(torch.from_numpy(one.scores).softmax(-1).numpy(), record["decoder.cross"], atol=1e-6)
    assert one.differences.max() < 1e-6
    assert not one.facts["projected"]  # the states themselves are compared and mixed


def unpacked(one: Vectors, *, pairs: tuple[int, int, int]) -> dict[str, np.ndarray]:
    """As vectors.js reads it."""
    heads, rows, columns = pairs
    about, packed, found, start = one.facts, one.pack(), {}, 0
    shapes = {"queries": (heads, rows, about["head"]), "keys": (about["shared"], columns, about["head"]),
              "values": (about["shared"], columns, about["value"]), "scores": pairs if about["scores"] else None,
              "bias": pairs if about["bias"] else None, "differences": (heads, rows)}
    for name, shape in shapes.items():
        if shape is not None:
            count = int(np.prod(shape))
            found[name] = np.frombuffer(packed, "<f4", count, start).reshape(shape)
            start += 4 * count
    bits = np.unpackbits(np.frombuffer(packed, "u1", offset=start), count=rows * columns)
    found["seen"] = bits.reshape(rows, columns)
    return found


@pytest.mark.parametrize(("score", "positions", "kv_heads"), [
    ("scaled-dot", "rotary", 2), ("additive", "relative", None), ("distance", "alibi", 1)])
def test_what_is_packed_gives_the_steps_again(score: str, positions: str, kv_heads: int | None) -> None:
    caught, record = looked(score=score, positions=positions, kv_heads=kv_heads, heads=[3, 1])
    found = vectors(caught, record)
    assert list(found) == list(record)
    for site, one in found.items():
        assert one.facts["projected"]
        back = unpacked(one, pairs=record[site].shape)
        for place, head in enumerate((3, 1)):
            with torch.no_grad():
                steps = caught[site].steps(head=head, row=2)
            np.testing.assert_array_equal(back["queries"][place, 2], steps.query)
            np.testing.assert_array_equal(back["keys"][one.groups[place]], steps.keys)
            np.testing.assert_array_equal(back["values"][one.groups[place]], steps.values)
            np.testing.assert_array_equal(back["seen"][2], steps.seen)
            assert one.divisors[place] == pytest.approx(steps.divisor)
            if "scores" in back:
                np.testing.assert_allclose(back["scores"][place, 2], steps.scores, rtol=1e-5, atol=1e-6)
            else:
                np.testing.assert_allclose(one.keys[one.groups[place]] @ one.queries[place, 2], steps.scores, rtol=1e-5)
            assert ("bias" in back) == (steps.bias is not None)
            if steps.bias is not None:
                np.testing.assert_allclose(back["bias"][place, 2], steps.bias)
        assert one.differences.max() < 1e-5


def test_padding_has_no_vectors() -> None:
    caught, record = looked(torch.tensor([[3, 4, 5, 0, 0]]))
    short = {site: weights[:, :, :3] if site.endswith("cross") else weights for site, weights in record.items()}
    found = vectors(caught, Record(short, record.axes, record.heads))["decoder.blocks.1.cross"]
    assert found.keys.shape == (4, 3, 8)
    assert found.seen.all()


def test_what_was_not_caught_in_one_pass_has_no_steps() -> None:
    caught, record = looked()
    longer = {site: np.concatenate([weights, weights], 1) for site, weights in record.items()}
    assert vectors(caught, Record(longer, record.axes, record.heads)) == {}
    assert vectors(caught, record.mean()) == {}
    assert vectors({}, record) == {}


def test_the_steps_of_the_last_attentions_stay_when_not_all_fit() -> None:
    caught, record = looked()
    found = vectors(caught, record)
    bare, whole = (len(page(record, vectors=some).html) for some in ({}, found))

    def steps(made: Page) -> list[str]:
        return [site for site in found if made.html.count(f'"name": "{site}"') and site not in made.left_out[-1]]

    assert page(record, vectors=found).left_out == ()
    made = page(record, vectors=found, limit=(bare + whole) // 2 + 2_000)
    assert len(made.html) <= (bare + whole) // 2 + 2_000
    assert made.left_out[-1].startswith("the six steps of 3 of 6 attentions: encoder.blocks.0.self, ")
    assert steps(made) == ["decoder.blocks.0.cross", "decoder.blocks.1.self", "decoder.blocks.1.cross"]
    none = page(record, vectors=found, limit=bare + 2_100)
    assert none.left_out[-1].startswith("the six steps of 6 of 6 attentions")
    assert 'class="vectors"' not in none.html


def test_vectors_alone_make_no_page_huge() -> None:
    caught, record = looked()
    large = {site: replace(one, values=one.values.repeat(5_000, axis=-1))  # two or three million bytes
             for site, one in vectors(caught, record).items()}
    made = page(record, vectors=large)
    assert len(made.html) < 4 / 3 * VECTORS + 200_000
    assert made.left_out[-1].startswith("the six steps of 3 of 6 attentions")


def test_an_unknown_pattern_catches_nothing() -> None:
    model = translator(Tower(width=32, depth=1, heads=4), sources=9, targets=9)
    with pytest.raises(UserError, match="no attention of this name"), catch_all(model, "nothing.*"):
        pass
