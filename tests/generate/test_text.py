"""Text as it is written: whole characters, up to a stop text, and all of it in the end."""

from collections.abc import Sequence
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data import tokenizer as tokenizers
from regard.data.tokenizer import KINDS, Tokenizer
from regard.generate.text import WINDOW, Pieces, Stop, Writing

LEARNED = ["the dog and the cat", "é à ü ß 漢字 🙂", "a dog, a cat: 12 34", "naïve café — “quoted” 🙂🙂"]
texts = st.text(max_size=80) | st.text("aé漢🙂 \n\N{REPLACEMENT CHARACTER}", max_size=80)


@cache
def tokenizer(kind: str) -> Tokenizer:
    return tokenizers.train(LEARNED * 3, kind=kind, vocabulary=400)


def pieces_of(tokens: Tokenizer, ids: Sequence[int]) -> list[str]:
    pieces = Pieces(lambda some: tokens.decode([some])[0])
    return [*(pieces.push(id) for id in ids), pieces.flush()]


@pytest.mark.parametrize("kind", KINDS)
@given(text=texts)
def test_the_pieces_are_the_text_whatever_it_is(kind: str, text: str) -> None:
    tokens = tokenizer(kind)
    [ids] = tokens.encode([text])
    assert "".join(pieces_of(tokens, ids)) == tokens.decode([ids])[0]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=50)
@given(ids=st.lists(st.integers(0, 260), max_size=3 * WINDOW))
def test_the_pieces_are_the_text_whatever_a_model_writes(kind: str, ids: list[int]) -> None:
    tokens = tokenizer(kind)
    ids = [id % len(tokens) for id in ids]
    assert "".join(pieces_of(tokens, ids)) == tokens.decode([ids])[0]


@given(text=texts.filter(lambda text: "\N{REPLACEMENT CHARACTER}" not in text))
def test_no_piece_holds_half_a_character(text: str) -> None:
    tokens = tokenizer("bytes")
    [ids] = tokens.encode([text])
    pieces = pieces_of(tokens, ids)
    assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in pieces)
    assert [piece for piece in pieces if piece] == list(text)  # each as soon as its last byte is there


def test_decoding_stays_as_cheap_as_at_the_beginning() -> None:
    longest = 0

    def decode(ids: Sequence[int]) -> str:
        nonlocal longest
        longest = max(longest, len(ids))
        return tokenizer("bpe").decode([ids])[0]

    pieces = Pieces(decode)
    [ids] = tokenizer("bpe").encode(["the dog and the cat " * 50])
    said = "".join(pieces.push(id) for id in ids) + pieces.flush()
    assert said == "the dog and the cat " * 50
    assert longest <= WINDOW + 1


cuts = st.lists(st.text("ab\n", max_size=4), max_size=12)
stops = st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=3)


@given(pieces=cuts, stops=stops)
def test_an_answer_ends_before_the_first_stop_text_however_it_is_cut(pieces: list[str], stops: list[str]) -> None:
    text, stop = "".join(pieces), Stop(stops)
    said = [stop.push(piece) for piece in pieces]
    # The first one to be complete, letter by letter.
    expected, reached = text, False
    for end in range(len(text) + 1):
        if starts := [end - len(each) for each in stops if text[:end].endswith(each)]:
            expected, reached = text[: min(starts)], True
            break
    assert stop.reached == reached
    assert "".join(said) + stop.flush() == expected


@given(pieces=cuts)
def test_without_a_stop_text_nothing_is_held_back(pieces: list[str]) -> None:
    stop = Stop([])
    assert [stop.push(piece) for piece in pieces] == pieces


def test_a_stop_text_is_found_across_tokens_and_characters() -> None:
    tokens = tokenizer("bytes")
    [ids] = tokens.encode(["one 🙂🙂 two"])
    writing = Writing(lambda some: tokens.decode([some])[0], stop=["🙂 t", "never"])
    said = []
    for id in ids:
        said.append(writing.push(id))
        if writing.stopped:
            break
    assert "".join(said) == writing.text == "one 🙂"
    assert writing.flush() == ""


def test_what_was_held_back_for_a_stop_text_that_never_came_is_said_at_the_end() -> None:
    tokens = tokenizer("bytes")
    [ids] = tokens.encode(["a dog, E"])
    writing = Writing(lambda some: tokens.decode([some])[0], stop=["END"])
    assert "".join(map(writing.push, ids)) == "a dog, "
    assert writing.flush() == "E"
    assert writing.text == "a dog, E"
    assert not writing.stopped
