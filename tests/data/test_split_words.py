"""A text has its words, and its tags are for them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.split_words import plain_words, words_for_tags
from regard.settings.errors import UserError


@given(st.text())
def test_no_letter_of_a_text_is_lost(text: str) -> None:
    assert "".join(plain_words(text)) == "".join(text.split())


def test_marks_around_a_word_are_words_and_those_inside_it_are_not() -> None:
    assert plain_words("Wait... the U.S. (or France), isn't it?") == [
        "Wait", "...", "the", "U.S.", "(", "or", "France", ")", ",", "isn't", "it", "?"]
    assert plain_words("3.14, 1,000 -- e.g. x-ray!") == ["3.14", ",", "1,000", "--", "e.g.", "x-ray", "!"]


def test_tags_are_for_the_words_as_they_stand_where_their_number_says_so() -> None:
    assert words_for_tags("no. 9 .", ["NOUN", "NUM", "PUNCT"]) == ["no.", "9", "."]
    with pytest.raises(UserError, match=r"4 tags, where there are 3 words: a dog \."):
        words_for_tags("a dog.", ["DET", "NOUN", "NOUN", "PUNCT"])
