"""A text has its words, and a long sentence is read in pieces that say something of every word once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.split_words import pieces, plain_words, told_words
from regard.settings.errors import UserError


@given(st.lists(st.integers(1, 6), min_size=0, max_size=40), st.integers(6, 20))
def test_pieces_fit_into_the_room_and_every_word_is_told_of_once(sizes: list[int], room: int) -> None:
    found = pieces(sizes, room)
    assert [place for piece in found for place in piece.told] == list(range(len(sizes)))
    for piece in found:
        assert sum(sizes[place] for place in piece.read) <= room
        assert set(piece.told) <= set(piece.read)


@given(st.lists(st.just(1), min_size=30, max_size=60))
def test_a_word_inside_a_sentence_is_told_of_with_others_on_either_side(sizes: list[int]) -> None:
    for read, told in pieces(sizes, 12):
        assert told.start == 0 or told.start - read.start >= 2
        assert told.stop == len(sizes) or read.stop - told.stop >= 2


@given(st.text())
def test_no_letter_of_a_text_is_lost(text: str) -> None:
    assert "".join(plain_words(text)) == "".join(text.split())


def test_marks_around_a_word_are_words_and_those_inside_it_are_not() -> None:
    assert plain_words("Wait... the U.S. (or France), isn't it?") == [
        "Wait", "...", "the", "U.S.", "(", "or", "France", ")", ",", "isn't", "it", "?"]
    assert plain_words("3.14, 1,000 -- e.g. x-ray!") == ["3.14", ",", "1,000", "--", "e.g.", "x-ray", "!"]


def test_tags_are_for_the_words_as_they_stand_where_their_number_says_so() -> None:
    assert told_words("no. 9 .", ["NOUN", "NUM", "PUNCT"]) == ["no.", "9", "."]
    with pytest.raises(UserError, match=r"4 tags, where there are 3 words: a dog \."):
        told_words("a dog.", ["DET", "NOUN", "NOUN", "PUNCT"])
