"""Scores of captions are those that one works out by hand, beside all references."""

import math

import pytest

from regard.look.caption_scores import caption_scores, cider_d, normalized


def test_cider_d_is_the_figure_worked_out_by_hand() -> None:
    """Two images; every n-gram is in one of them, and weighs log 2."""
    references = [["red dog"], ["cat"]]
    words = 2 / math.sqrt(5 * 2)  # "red" counts once, as in the reference, and twice in the answer's norm
    pairs = 1 / math.sqrt(2 * 1)  # of "red red" and "red dog"
    longer = math.exp(-1 / (2 * 6**2))
    first = 10 * (words + pairs) / 4 * longer
    assert cider_d(["red red dog", "cat"], references) == pytest.approx((first + 2.5) / 2)


def test_cider_d_is_the_mean_over_the_references_of_an_image() -> None:
    references = [["red dog", "blue bird"], ["cat"]]
    assert cider_d(["red dog", "x"], references) == pytest.approx(cider_d(["blue bird", "x"], references))
    assert cider_d(["red dog", "x"], references) == pytest.approx(cider_d(["red dog", "x"], [["red dog"], ["cat"]]) / 2)


def test_words_of_every_image_count_nothing_for_cider_d() -> None:
    assert cider_d(["a", "a"], [["a"], ["a"]]) == 0
    assert cider_d(["the the dog", "cat"], [["the dog"], ["the cat"]]) > 0


def test_longer_captions_count_less_for_cider_d() -> None:
    references = [["red dog runs here"], ["cat"]]
    found = [cider_d([text, "x"], references) for text in ("red dog runs here", "red dog runs here " + "z " * 8)]
    assert found[1] < 0.6 * found[0]


def test_an_answer_that_equals_any_reference_is_right() -> None:
    scores = caption_scores(["a dog", "a cat", "x"], [["the dog", "a dog"], ["a cat"], ["y", "z", "w"]])
    assert scores["exact"] == pytest.approx(200 / 3)
    assert scores["examples"] == 3


def test_bleu_counts_n_grams_of_all_references() -> None:
    answers, both = ["a dog runs on grass", "a cat sits on mats"], [
        ["a dog runs on grass", "x"], ["z", "a cat sits on mats", "y"]]
    scores = caption_scores(answers, both)
    assert [scores[f"bleu_{size}"] for size in (1, 2, 3, 4)] == pytest.approx([100.0] * 4)
    halves = caption_scores(["a b c d e f", "g"], [["a b c x", "d e f"], ["g"]])
    assert halves["bleu_1"] == pytest.approx(100.0)  # "a b c" from one reference, "d e f" from another
    assert halves["bleu_2"] == pytest.approx(100 * math.sqrt(4 / 5))


def test_case_and_punctuation_do_not_count() -> None:
    assert normalized("A man's hat , by-and-by !") == "a man's hat by and by"
    scores = caption_scores(["A dog runs fast."], [["a dog runs , fast"]])
    assert scores["bleu_4"] == pytest.approx(100.0)
    assert scores["exact"] == 100  # a model of lower case could not reach it otherwise
    assert "own tokenizer" in str(scores["cider_d_signature"])
