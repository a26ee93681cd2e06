"""Text as it is written: whole characters, up to a stop text, and all of it in the end."""

from collections.abc import Sequence
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data import tokenizer as tokenizers
from regard.data.tokenizer import TOKENIZER_KINDS, Tokenizer
from regard.generate.detokenize import WINDOW, Completion, StopTexts, StreamingDecoder, stream_texts
from regard.generate.next_token import Drawn

LEARNED = ["the dog and the cat", "é à ü ß 漢字 🙂", "a dog, a cat: 12 34", "naïve café — “quoted” 🙂🙂"]
texts = st.text(max_size=80) | st.text("aé漢🙂 \n\N{REPLACEMENT CHARACTER}", max_size=80)


@cache
def tokenizer(kind: str) -> Tokenizer:
    return tokenizers.train(LEARNED * 3, kind=kind, vocabulary=400)


def pieces_of(tokens: Tokenizer, ids: Sequence[int]) -> list[str]:
    pieces = StreamingDecoder(lambda some: tokens.decode([some])[0])
    return [*(pieces.push(id) for id in ids), pieces.flush()]


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
@given(text=texts)
def test_the_pieces_are_the_text_whatever_it_is(kind: str, text: str) -> None:
    tokens = tokenizer(kind)
    [ids] = tokens.encode([text])
    assert "".join(pieces_of(tokens, ids)) == tokens.decode([ids])[0]


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
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

    pieces = StreamingDecoder(decode)
    [ids] = tokenizer("bpe").encode(["the dog and the cat " * 50])
    said = "".join(pieces.push(id) for id in ids) + pieces.flush()
    assert said == "the dog and the cat " * 50
    assert longest <= WINDOW + 1


cuts = st.lists(st.text("ab\n", max_size=4), max_size=12)
stops = st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=3)


@given(pieces=cuts, stops=stops)
def test_an_answer_ends_before_the_first_stop_text_however_it_is_cut(pieces: list[str], stops: list[str]) -> None:
    text, stop = "".join(pieces), StopTexts(stops)
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
    stop = StopTexts([])
    assert [stop.push(piece) for piece in pieces] == pieces


def writing(text: str, *, kind: str = "bytes", prompt: str = "", stop: Sequence[str] = (),
            longest: int = 99) -> Completion:
    """The text, token after token, with its end, up to where the writing has had enough."""
    tokens = tokenizer(kind)
    before, whole = tokens.encode([prompt, prompt + text])
    assert whole[: len(before)] == before
    written = Completion(lambda some: tokens.decode([some])[0], end=tokens.end, longest=longest, stop=stop,
                      after=[tokens.start, *before])
    said = ""
    for id in [*whole[len(before) :], tokens.end]:
        if not written.ended:
            said += written.push(id, -0.5)
    assert said == written.text
    return written


def test_a_stop_text_is_found_across_tokens_and_characters() -> None:
    written = writing("one 🙂🙂 two", stop=["🙂 t", "never"])
    assert written.text == "one 🙂"
    assert len(written.tokens) == len("one 🙂🙂 t".encode())
    assert written.score == -0.5


def test_what_was_held_back_for_a_stop_text_that_never_came_is_said_at_the_end() -> None:
    assert writing("a dog, E", stop=["END"]).text == "a dog, E"
    assert writing("a dog, ENDED", stop=["END"], longest=9).text == "a dog, EN"


def test_an_answer_that_is_cut_inside_a_character_says_so_at_its_end() -> None:
    assert writing("a€", longest=3).text == "a\N{REPLACEMENT CHARACTER}"


def test_an_answer_goes_on_after_its_prompt_with_the_space_between() -> None:
    assert writing(" dog", kind="bpe", prompt="the").text == " dog"
    assert writing("the dog", kind="bpe").text == "the dog"


def test_an_answer_goes_on_after_any_number_of_bytes_even_where_one_that_does_not_fit_spoils_all() -> None:
    def decode(ids: Sequence[int]) -> str:  # as vocabularies that fall back to bytes are read
        try:
            return bytes(ids).decode()
        except UnicodeDecodeError:
            return "\N{REPLACEMENT CHARACTER}" * len(ids)

    new = "字🙂é x"
    for size in range(2 * WINDOW):
        pieces = StreamingDecoder(decode, after=("漢" * size).encode())
        assert "".join([*(pieces.push(byte) for byte in new.encode()), pieces.flush()]) == new


def test_rows_are_followed_until_each_has_ended() -> None:
    tokens = tokenizer("bytes")
    rows = tokens.encode(["ab", "c|", "defgh"])
    steps = [Drawn(torch.tensor([(row + [tokens.end] * 9)[place] for row in rows]), torch.full((3,), -1.0))
             for place in range(9)]
    enough: set[int] = set()
    writings = [Completion(lambda some: tokens.decode([some])[0], end=tokens.end, longest=4, stop=["|"]) for _ in rows]
    said = list(stream_texts(steps, writings, enough=enough))
    assert [written.text for written in writings] == ["ab", "c", "defg"]
    assert ["".join(piece for row, piece in said if row == number) for number in range(3)] == ["ab", "c", "defg"]
    assert [written.log_probability for written in writings] == [-3.0, -2.0, -4.0]
    assert enough == {0, 1, 2}
