"""Shifted texts: changed as they are said to be, and the same every time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.perturb import PERTURBATIONS, parse_names, perturb
from regard.settings.errors import UserError

SENTENCE = "the acting is wonderful and the plot is clever from the first scene to the last"
TEXT = st.text(max_size=60)


@pytest.mark.parametrize("how", PERTURBATIONS)
@given(text=TEXT, seed=st.integers(0, 9))
def test_any_text_is_shifted_the_same_way_every_time(how: str, text: str, seed: int) -> None:
    assert perturb(text, how, seed=seed) == perturb(text, how, seed=seed)


@given(TEXT, st.integers(0, 9))
def test_typos_leave_the_number_of_words_and_change_each_by_a_letter(text: str, seed: int) -> None:
    before, after = text.split(), perturb(text, "typos", seed=seed).split()
    assert len(before) == len(after)
    assert all(abs(len(one) - len(other)) <= 1 for one, other in zip(before, after, strict=True))


def test_typos_are_in_about_a_fifth_of_the_words_and_of_three_kinds() -> None:
    changed, kinds = 0, set()
    words = SENTENCE.replace("is ", "").replace("to ", "").split()
    for seed in range(200):
        for one, other in zip(words, perturb(" ".join(words), "typos", seed=seed).split(), strict=True):
            changed += one != other
            kinds |= {len(other) - len(one)} if one != other else set()
    assert changed / (200 * len(words)) == pytest.approx(0.2, abs=0.03)
    assert kinds == {-1, 0, 1}


@given(st.text("abc é", max_size=30), st.integers(0, 9))
def test_case_changes_nothing_but_case(text: str, seed: int) -> None:
    assert perturb(text, "case", seed=seed).lower() == text.lower()


def test_case_is_high_low_and_mixed() -> None:
    found = {perturb(SENTENCE, "case", seed=seed) for seed in range(30)}
    assert {SENTENCE, SENTENCE.upper()} < found
    assert len(found) > 5


def test_length_is_the_first_half() -> None:
    assert [perturb(text, "length") for text in ("", "a", "a b", "a b c", "a b c d")] == ["", "a", "a", "a b", "a b"]


def test_an_unknown_shift_is_answered_with_the_near_one() -> None:
    assert parse_names("typos,case, typos", PERTURBATIONS) == ["typos", "case"]
    with pytest.raises(UserError, match="--shift typo: no such shift; did you mean typos"):
        parse_names("case,typo", PERTURBATIONS)
    with pytest.raises(UserError, match="there are typos, case, length"):
        parse_names("noise", PERTURBATIONS)
