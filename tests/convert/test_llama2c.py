"""A model of llama2.c says here what it says there; its tokens are joined as there."""

import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from regard.checkpoint import load_weights
from regard.convert.directory import Published, read_llama2c
from regard.convert.llama2c import read_model, read_tokens
from regard.data.tokenizer import Tokenizer
from regard.models.decoder import Decoder
from regard.settings.errors import UserError

STORIES = Path(__file__).parents[3] / "shared" / "weights" / "stories260K"
needs_stories = pytest.mark.skipif(not STORIES.is_dir(), reason="needs the model stories260K beside the repository")

# What llama2.c itself says, greedily, in 200 steps from the start (its test_all.py).
SAID = (
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, she saw a "
    "big, red ball. She wanted to play with it, but it was too high.\nLily's mom said, \"Lily, let's go to the park.\" "
    "Lily was sad and didn't know what to do. She said, \"I want to play with your ball, but I can't find it.\"\nLily "
    "was sad and didn't know what to do. She said, \"I'm sorry, Lily. I didn't know what to do.\"\nLily didn't want to "
    "help her mom, so she"
)


def decoder(published: Published) -> Decoder:
    model = Decoder(published.tower, vocabulary=published.vocabulary).eval()
    load_weights(model, published.ours(origin="here"), origin="here")
    return model


@torch.no_grad()
def greedy(model: Decoder, prompt: Sequence[int], steps: int) -> list[int]:
    state, ids = model.begin(1), list(prompt)
    new = torch.tensor([ids])
    for _ in range(steps):
        ids.append(int(model.logits(model.step(new, state))[0, -1].argmax()))
        new = torch.tensor([ids[-1:]])
    return ids


@needs_stories
def test_the_story_is_the_one_that_llama2c_tells() -> None:
    published = read_llama2c(STORIES / "stories260K.bin")
    assert published.tokens.decode([greedy(decoder(published), [published.tokens.start], 200)]) == [SAID]


# Tokens, by the definition.

PIECES = [" t", "he", "the", " the", " a", "ab", "ba", "aba", "bab", " ", "a", "b", "c", "e", "h", "t", "é", "😀"]


def bin_of(pieces: Sequence[str]) -> bytes:
    special = [b"<unk>", b"\n<s>\n", b"\n</s>\n", *(b"<0x%02X>" % byte for byte in range(256))]
    scored = [*((name, 0.0) for name in special), *((piece.encode(), -float(n)) for n, piece in enumerate(pieces))]
    return struct.pack("<i", 9) + b"".join(struct.pack("<fi", score, len(name)) + name for name, score in scored)


def defined(text: str, pieces: Sequence[str]) -> list[int]:
    """llama2.c's `encode`: a space, then characters or their bytes; then the best neighbours join, until none does."""
    ids = {piece: 259 + number for number, piece in enumerate(pieces)}
    names = {id: piece for piece, id in ids.items()}
    row = [id for letter in (" " + text if text else "")
           for id in ([ids[letter]] if letter in ids else [3 + byte for byte in letter.encode()])]
    while True:
        joins = [(ids[joined], place) for place in range(len(row) - 1)
                 if (joined := names.get(row[place], "\0") + names.get(row[place + 1], "\0")) in ids]
        if not joins:
            return row
        best, place = min(joins)  # the scores fall from one piece to the next
        row[place : place + 2] = [best]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("tokens") / "tok.bin"
    path.write_bytes(bin_of(PIECES))
    return read_tokens(path, vocabulary=259 + len(PIECES))


TEXTS = st.text(st.sampled_from("abceht é😀▁\n<0x41>") | st.characters(exclude_categories=["Cs"]))


@settings(max_examples=200)
@given(text=TEXTS)
@example(text="the  the ▁a</s><0x41>")
def test_tokens_are_joined_as_llama2c_joins_them(small: Tokenizer, text: str) -> None:
    rows = small.encode([text])
    assert rows == [defined(text, PIECES)]
    assert small.decode([[small.start, *rows[0], small.end]]) == [text]


@needs_stories
@settings(max_examples=100)
@given(text=TEXTS | st.text(st.sampled_from(SAID)))
@example(text=SAID)
def test_the_real_tokens_are_joined_as_llama2c_joins_them(text: str) -> None:
    assert REAL.encode([text]) == [defined(text, REAL_PIECES)]
    assert REAL.decode(REAL.encode([text])) == [text]


if STORIES.is_dir():
    REAL = read_tokens(STORIES / "tok512.bin", vocabulary=512)
    REAL_PIECES = [REAL._library.id_to_token(id) for id in range(259, 512)]


def test_pieces_can_be_read(small: Tokenizer) -> None:
    (row,) = small.encode(["the ñ"])
    assert small.pieces([small.start, *row]) == ["<s>", " the", "␣", "\\xc3", "\\xb1"]


def test_saved_tokens_are_the_same(small: Tokenizer, tmp_path: Path) -> None:
    small.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    assert (again.specials, len(again)) == (small.specials, len(small))
    assert again.encode(["the bab é ñ"]) == small.encode(["the bab é ñ"])


# Files


def model_bin(vocabulary: int = -5, *, width: int = 4, heads: int = 2) -> bytes:
    hidden, depth, groups, longest = 3, 2, 1, 6
    keys = width // heads * groups
    numbers = abs(vocabulary) * width * (2 if vocabulary < 0 else 1) + width + longest * (width // heads)
    numbers += depth * (2 * width + 2 * width * width + 2 * keys * width + 3 * hidden * width)
    header = struct.pack("<7i", width, hidden, depth, heads, groups, vocabulary, longest)
    return header + torch.arange(float(numbers)).numpy().tobytes()


@pytest.mark.parametrize("vocabulary", [5, -5])
def test_a_model_is_read_whole(tmp_path: Path, vocabulary: int) -> None:
    (tmp_path / "model.bin").write_bytes(model_bin(vocabulary))
    config, tensors = read_model(tmp_path / "model.bin")
    assert config["tie_word_embeddings"] == ("lm_head.weight" not in tensors) == (vocabulary > 0)
    assert torch.equal(tensors["model.embed_tokens.weight"].flatten(), torch.arange(20.0))
    if vocabulary < 0:
        assert torch.equal(tensors["lm_head.weight"].flatten(), tensors["lm_head.weight"].min() + torch.arange(20.0))


def test_heads_of_one_number_are_refused(tmp_path: Path) -> None:
    """There is nothing to turn in them."""
    numbers = 5 * 4 + 2 * 4 + 4 * 4 * 4 + 3 * 4 * 4 + 4
    (tmp_path / "model.bin").write_bytes(struct.pack("<7i", 4, 4, 1, 4, 4, 5, 1) + bytes(4 * numbers))
    with pytest.raises(UserError, match=r"not a model of llama2\.c"):
        read_model(tmp_path / "model.bin")


@settings(max_examples=100)
@given(st.integers(0, 400), st.binary(max_size=6), st.integers(0, 6))
def test_a_damaged_file_is_refused_or_has_its_sizes(
    tmp_path_factory: pytest.TempPathFactory, place: int, noise: bytes, cut: int
) -> None:
    content = bytearray(model_bin())
    content[place : place + cut] = noise
    path, said = tmp_path_factory.getbasetemp() / "damaged.bin", ""
    path.write_bytes(content)
    try:
        read_model(path)
    except UserError as error:
        said = str(error)
    assert not said or said.startswith(f"{path}: ")


@pytest.mark.parametrize(("harm", "said"), [
    (lambda content: content[:-1], "is cut or broken"), (lambda content: content[:4] + content[12:], "tokens"),
    (lambda content: content[:4], "has 0 tokens, but the model has 277"),
    (lambda content: content.replace(b"<0x41>", b"<0x42>"), "one for each byte"),
    (lambda content: content.replace(b"aba", b"\xff\xfe\xfd"), "not UTF-8"),
])
def test_damaged_tokens_are_refused(tmp_path: Path, harm, said: str) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "tok.bin"
    path.write_bytes(harm(bin_of(PIECES)))
    with pytest.raises(UserError, match=said):
        read_tokens(path, vocabulary=259 + len(PIECES))


def test_tokens_are_looked_for_beside_the_model(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(model_bin(259 + len(PIECES)))
    with pytest.raises(UserError, match="none of the files beside it could be its tokens; name them with --tokenizer"):
        read_llama2c(tmp_path / "model.bin")
    (tmp_path / "tokenizer.bin").write_bytes(bin_of(PIECES))
    assert len(read_llama2c(tmp_path / "model.bin").tokens) == 259 + len(PIECES)
