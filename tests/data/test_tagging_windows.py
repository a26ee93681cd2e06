"""A long sentence is tagged in windows that tag every word once."""

from hypothesis import given
from hypothesis import strategies as st

from regard.data.tagging_windows import tagging_windows


@given(st.lists(st.integers(1, 6), min_size=0, max_size=40), st.integers(6, 20))
def test_windows_fit_into_the_room_and_every_word_is_tagged_once(sizes: list[int], room: int) -> None:
    found = tagging_windows(sizes, room)
    assert [place for window in found for place in window.tagged] == list(range(len(sizes)))
    for window in found:
        assert sum(sizes[place] for place in window.read) <= room
        assert set(window.tagged) <= set(window.read)


@given(st.lists(st.just(1), min_size=30, max_size=60))
def test_a_word_inside_a_sentence_is_tagged_with_others_on_either_side(sizes: list[int]) -> None:
    for read, tagged in tagging_windows(sizes, 12):
        assert tagged.start == 0 or tagged.start - read.start >= 2
        assert tagged.stop == len(sizes) or read.stop - tagged.stop >= 2
