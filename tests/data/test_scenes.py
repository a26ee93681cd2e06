"""The scenes: one image has one caption, every word has its region, and what is tested is never trained on."""

import hashlib
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields
from itertools import product

import numpy as np
import pytest
from jaxtyping import Bool, UInt8

from regard.data.builtin.scenes import SHAPES, SPLITS, Scene, asked, captioned, labelled, layouts, questions, scenes
from regard.data.builtin.scenes.hashed_dice import HashedDice
from regard.data.builtin.scenes.layout import Layouts, drawn
from regard.data.builtin.scenes.lexicon import COLOURS
from regard.data.builtin.scenes.painting import covers, painted
from regard.settings.errors import UserError

Pixels = UInt8[np.ndarray, "3 size size"]


# --- the image decides the caption -------------------------------------------------------------------------


@dataclass(frozen=True)
class Blob:
    """Pixels of one colour that touch each other."""

    colour: str
    mask: Bool[np.ndarray, "size size"]

    @property
    def bounds(self) -> tuple[int, int, int, int]:
        y, x = np.nonzero(self.mask)
        return int(y.min()), int(x.min()), int(y.max()) + 1, int(x.max()) + 1

    @property
    def shape(self) -> str:
        """By how much of its box it fills, and how wide it is where."""
        top, left, bottom, right = self.bounds
        inside = self.mask[top:bottom, left:right]
        fill, widths = inside.mean(), inside.mean(1)
        if fill > 0.9:
            return "square"
        if fill > 0.7:
            return "circle"
        if widths[-2] > 0.9:
            return "triangle"
        if fill < 0.43:
            return "star"
        return "cross" if widths[round(0.28 * len(widths))] < 0.45 else "diamond"

    @property
    def width(self) -> float:
        return (self.bounds[3] - self.bounds[1]) / len(self.mask)

    @property
    def is_small(self) -> bool:
        return self.width < 0.22 if self.shape != "square" else self.width < 0.2

    @property
    def middle(self) -> tuple[float, float]:
        """Of the circle around it: its box is lower by a tenth if it is a triangle, higher by little if a star."""
        top, left, bottom, right = self.bounds
        high = {"triangle": 0.1 / 1.8, "star": -0.095 / 1.81}.get(self.shape, 0.0)
        return (top + bottom) / 2 + high * (bottom - top), (left + right) / 2

    @property
    def name(self) -> str:
        size = "small " if self.is_small else ""
        name = f"{size}{self.colour} {self.shape}"
        return f"an {name}" if name[0] == "o" else f"a {name}"


def blobs(pixels: Pixels) -> list[Blob]:
    """What an image shows, read off its pixels."""
    image = pixels.astype(int)
    bright = image.max(0) - image.min(0) > 50  # greys are not, with their noise
    palette = np.array(list(COLOURS.values()))
    nearest = ((image[None] - palette[:, :, None, None]) ** 2).sum(1).argmin(0)
    left, found = bright.copy(), list[Blob]()
    while left.any():
        mask, edge = np.zeros_like(left), np.zeros_like(left)
        edge[tuple(np.argwhere(left)[0])] = True
        while edge.any():  # it grows by one pixel to each side
            mask |= edge
            grown = mask.copy()
            for axis, step in product((0, 1), (-1, 1)):
                grown |= np.roll(mask, step, axis)
            edge = grown & left & ~mask
        left &= ~mask
        if mask.sum() > 20:
            found.append(Blob(list(COLOURS)[np.bincount(nearest[mask]).argmax()], mask))
    return found


def caption_of(pixels: Pixels) -> str:
    things = sorted(blobs(pixels), key=lambda blob: (
        blob.is_small, SHAPES.index(blob.shape), list(COLOURS).index(blob.colour)))
    caption, (y, x) = things[0].name, things[0].middle
    for number, thing in enumerate(things[1:]):
        down, across = thing.middle[0] - y, thing.middle[1] - x
        near, far = sorted((abs(down), abs(across)))
        assert far >= 1.9 * near  # of the middles as far as pixels show them: plainly beside or above it
        relation = (("left of" if across > 0 else "right of") if abs(across) == far else
                    ("above" if down > 0 else "below"))
        caption += f"{' and' if number else ''} {relation} {thing.name}"
    return caption


@pytest.mark.parametrize("split", SPLITS)
def test_a_caption_can_be_read_off_the_image(split: str) -> None:
    pixels, captions = captioned(split, 40, 128)
    assert [caption_of(each) for each in pixels] == captions


def test_the_reader_of_images_would_notice_another_caption() -> None:
    pixels, captions = captioned("val", 30, 128)
    turned = [caption_of(each[:, :, ::-1]) for each in pixels]  # a mirror swaps left and right, and nothing else
    swap = {"left": "right", "right": "left"}
    assert turned == [" ".join(swap.get(word, word) for word in caption.split()) for caption in captions]
    assert turned != captions


def test_the_caption_has_the_same_grammar_everywhere_and_a_small_vocabulary() -> None:
    name = rf"an? (small )?({'|'.join(COLOURS)}) ({'|'.join(SHAPES)})"
    relation = "(left of|right of|above|below)"
    found = [scene.caption for split in SPLITS for scene in scenes(split, 1_000)]
    assert all(re.fullmatch(rf"{name}( {relation} {name}( and {relation} {name})?)?", caption) for caption in found)
    assert len({word for caption in found for word in caption.split()}) == 3 + 6 + 6 + 6  # a, an, small; relations


def test_each_relation_size_colour_and_shape_is_about_as_frequent_as_the_others() -> None:
    words = Counter(word for scene in scenes("train", 4_000) for word in scene.caption.split())
    for group in (COLOURS, SHAPES, ("left", "right", "above", "below")):
        counts = [words[word] for word in group]
        assert max(counts) < 1.3 * min(counts)
    things = sum(words[shape] for shape in SHAPES)
    assert 0.45 < words["small"] / things < 0.55


# --- regions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grid", [(8, 8), (7, 5), (16, 16)])
def test_the_region_of_a_word_holds_all_pixels_of_its_things_and_no_cell_without_one(grid: tuple[int, int]) -> None:
    rows, columns = grid
    size = 16 * rows * columns if rows != columns else 16 * rows
    pixels, _ = captioned("val", 12, size)
    for image, scene in zip(pixels, scenes("val", 12), strict=True):
        found = {(blob.colour, blob.shape): blob.mask for blob in blobs(image)}
        regions = scene.regions(grid)
        assert len(regions) == len(scene.words) == len(scene.caption.split())
        for word, region in zip(scene.words, regions, strict=True):
            mask = np.zeros((size, size), bool)
            for number in word.things:
                mask |= found[scene.things[number].colour, scene.things[number].shape]
            held = mask.reshape(rows, size // rows, columns, size // columns).sum((1, 3))
            # The tip of a shape may reach into the next cell by a fraction of a pixel.
            assert held.ravel()[~region].sum() <= 0.005 * held.sum()
            assert (held.ravel()[region] > 0).all()


def test_a_colour_a_size_and_a_shape_name_one_thing_and_a_relation_two() -> None:
    for scene in scenes("train", 300):
        names = {name: {number for number, thing in enumerate(scene.things) if name in (thing.colour, thing.shape)}
                 for name in (*COLOURS, *SHAPES)}
        for word in scene.words:
            expected = {"a": 0, "an": 0, "and": 0, "left": 2, "right": 2, "of": 2, "above": 2, "below": 2}
            assert len(word.things) == expected.get(word.text, 1)
            assert set(word.things) <= names.get(word.text, set(range(3)))


def test_boxes_hold_their_regions() -> None:
    for scene in scenes("val", 50):
        regions = scene.regions((64, 64)).reshape(-1, 64, 64)
        assert set(scene.boxes) == {number for number, region in enumerate(regions) if region.any()}
        for number, boxes in scene.boxes.items():
            inside = np.zeros((64, 64), bool)
            for box in boxes:
                top, left, bottom, right = (round(64 * edge) for edge in box)
                inside[top:bottom, left:right] = True
            assert not (regions[number] & ~inside).any()


# --- splits --------------------------------------------------------------------------------------------------


def combinations(split: str) -> set[tuple[str, str]]:
    return {(thing.colour, thing.shape) for scene in scenes(split, 1_500) for thing in scene.things}


def test_a_combination_of_the_last_test_is_never_seen_before_though_its_parts_are() -> None:
    seen = combinations("train")
    assert combinations("val") == combinations("test") == seen
    assert len(seen) == 30
    assert {colour for colour, _ in seen} == set(COLOURS)
    assert {shape for _, shape in seen} == set(SHAPES)
    assert combinations("test_combinations") - seen == set(product(COLOURS, SHAPES)) - seen
    for scene in scenes("test_combinations", 1_500):
        assert any((thing.colour, thing.shape) not in seen for thing in scene.things)


def test_no_scene_is_in_two_splits() -> None:
    found = {split: {scene.things for scene in scenes(split, 2_000)} for split in SPLITS}
    assert all(found[one].isdisjoint(found[other]) for one in SPLITS for other in SPLITS if one < other)
    assert all(len(things) > 1_950 for things in found.values())


def test_another_seed_gives_other_scenes_of_the_same_split() -> None:
    train, other = ({scene.things for scene in scenes("train", 3_000, seed=seed)} for seed in (0, 1))
    assert len(train & other) < 100
    assert other.isdisjoint(scene.things for split in ("val", "test") for scene in scenes(split, 3_000))


def test_a_longer_list_begins_with_the_shorter_one() -> None:
    assert scenes("val", 700)[:30] == scenes("val", 30)
    assert np.array_equal(captioned("test", 300, 32).pixels[:7], captioned("test", 7, 32).pixels)
    assert scenes("test", 0) == []


def test_a_split_that_does_not_exist_is_an_error_with_the_names_of_those_that_do() -> None:
    with pytest.raises(UserError, match="dev: no such split of the scenes; there are train, val, test, test_comb"):
        scenes("dev", 1)


# --- images ------------------------------------------------------------------------------------------------

DIGESTS = {"train": "70bce00687887e86", "val": "620ceef13b9a7dee", "test": "e068f012ea2c0686",
           "test_combinations": "d9038e01a6132384"}


@pytest.mark.parametrize("split", SPLITS)
def test_the_first_scenes_of_a_split_are_the_same_bytes_on_every_machine(split: str) -> None:
    pixels, captions = captioned(split, 64, 48)
    digest = hashlib.blake2b(pixels.tobytes(), digest_size=8)
    digest.update("\n".join([*captions, *(each.text + each.answer for each in asked(split, 64, 8).questions)]).encode())
    assert digest.hexdigest() == DIGESTS[split]


def test_a_scene_depends_on_its_number_and_not_on_the_others() -> None:
    numbers = np.arange(40, dtype=np.uint64) + np.uint64(2**64 - 20)  # they wrap around
    together = drawn(numbers)
    apart = [one for number in numbers for one in [drawn(np.array([number]))] if len(one)]
    for field in fields(Layouts):
        parts = [getattr(one, field.name) for one in apart]
        assert np.array_equal(getattr(together, field.name), np.concatenate(parts))


def test_images_of_other_sizes_show_the_same() -> None:
    found = layouts("train", 20)
    large, small = painted(found, 128), painted(found, 32)
    mean = large.reshape(20, 3, 32, 4, 32, 4).mean((3, 5))
    assert np.abs(mean - small).mean() < 6
    assert not np.array_equal(small[0], small[1])


@pytest.mark.parametrize("size", [1, 5, 17, 224])
def test_an_image_may_have_any_size(size: int) -> None:
    assert captioned("train", 3, size).pixels.shape == (3, 3, size, size)


@pytest.mark.parametrize(("shape", "area"), [
    ("circle", 3.14), ("square", 2.56), ("triangle", 1.71), ("diamond", 2.0), ("cross", 2.22), ("star", 1.12)])
def test_a_shape_lies_in_its_circle_and_has_the_area_of_its_formula(shape: str, area: float) -> None:
    places = np.arange(-300, 301)
    inside = covers(shape, places[None], places[:, None], 200)
    y, x = np.nonzero(inside)
    assert max(np.abs(x - 300).max(), np.abs(y - 300).max()) <= 200
    assert inside.sum() / 200**2 == pytest.approx(area, rel=0.02)


def test_dice_fall_evenly_and_without_regard_to_their_neighbours() -> None:
    dice = HashedDice(np.arange(60_000, dtype=np.uint64))
    first, second = dice.roll(6), dice.roll(6)
    both = np.bincount(6 * first + second, minlength=36)
    assert both.min() > 1_500
    assert both.max() < 1_850
    assert abs(np.corrcoef(first[1:], first[:-1])[0, 1]) < 0.02


# --- questions -----------------------------------------------------------------------------------------------


def answer_of(scene: Scene, question: str) -> set[str]:
    """All answers that are right, by a slow reading of the question."""
    things = scene.things

    def meant(name: str) -> list[int]:
        words = name.split()
        return [number for number, thing in enumerate(things) if words[-1] == thing.shape and
                (len(words) == 1 or words[0] == thing.colour)]

    def stands(one: int, relation: str, other: int) -> bool:
        dx, dy = things[other].x - things[one].x, things[other].y - things[one].y
        return {"left of": dx >= 2 * abs(dy), "right of": -dx >= 2 * abs(dy),
                "above": dy >= 2 * abs(dx), "below": -dy >= 2 * abs(dx)}[relation]

    def name(number: int) -> str:
        thing = things[number]
        whole = f"{'small ' if thing.is_small else ''}{thing.colour} {thing.shape}"
        return f"an {whole}" if whole[0] == "o" else f"a {whole}"

    def yes(holds: bool) -> str:
        return "yes" if holds else "no"

    relation = "(left of|right of|above|below)"
    kinds: dict[str, Callable[..., set[str]]] = {
        r"what colour is the (\w+)\?": lambda shape: {things[number].colour for number in meant(shape)},
        r"what shape is the (\w+) thing\?": lambda colour: {one.shape for one in things if one.colour == colour},
        r"is the ([\w ]+) small\?": lambda which: {yes(things[number].is_small) for number in meant(which)},
        r"how many shapes are there\?": lambda: {["one", "two", "three"][len(things) - 1]},
        rf"is the ([\w ]+?) {relation} the ([\w ]+)\?": lambda one, how, other: {
            yes(stands(a, how, b)) for a in meant(one) for b in meant(other)},
        rf"what is {relation} the ([\w ]+)\?": lambda how, other: {
            name(a) for b in meant(other) for a in range(len(things)) if a != b and stands(a, how, b)},
    }
    for pattern, answers in kinds.items():
        if found := re.fullmatch(pattern, question):
            return answers(*found.groups())
    raise AssertionError(question)


@pytest.mark.parametrize("split", SPLITS)
def test_a_question_has_one_right_answer_and_it_is_given(split: str) -> None:
    for scene in scenes(split, 150):
        every = questions(scene)
        assert len({question.text for question in every}) == len(every)
        for question in every:
            assert answer_of(scene, question.text) == {question.answer}, (scene, question)


def test_every_kind_of_question_is_asked_and_every_answer_of_a_kind_is_frequent() -> None:
    found = asked("train", 2_000, 4).questions
    kinds = Counter(question.kind for question in found)
    assert len(kinds) == 6
    assert min(kinds.values()) > 200
    for kind, answers in {"relation": ["yes", "no"], "size": ["yes", "no"], "count": ["one", "two", "three"],
                          "colour": list(COLOURS), "shape": list(SHAPES)}.items():
        counts = Counter(question.answer for question in found if question.kind == kind)
        assert set(counts) == set(answers)
        assert max(counts.values()) < 1.5 * min(counts.values()) + 20


def test_the_region_of_an_answer_holds_all_that_must_be_looked_at() -> None:
    for question in asked("val", 400, 4).questions:
        scene = question.scene
        every = scene.regions((8, 8)).any(0)
        regions = question.regions((8, 8))
        assert len(regions) == len(question.answer.split())
        assert set(question.boxes) == {number for number, region in enumerate(regions) if region.any()}
        if question.kind == "count":
            assert np.array_equal(regions[0], every)
        for word in question.words:
            wanted = {"relation": 2, "neighbour": 2, "count": len(scene.things)}.get(question.kind, 1)
            assert len(word.things) == (0 if word.text in ("a", "an") else wanted)


# --- labels --------------------------------------------------------------------------------------------------


def test_the_label_is_the_shape_of_the_only_large_thing() -> None:
    pixels, labels = labelled("test", 30, 128)
    for image, label in zip(pixels, labels, strict=True):
        assert [blob.shape for blob in blobs(image) if not blob.is_small] == [SHAPES[label]]
    counts = np.bincount(labelled("train", 3_000, 2).labels, minlength=6)
    assert counts.min() > 400
