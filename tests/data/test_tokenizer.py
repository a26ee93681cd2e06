"""Text becomes ids and comes back the same, whatever it holds; what was learned is the same everywhere."""

import copy
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library
from tokenizers import models, normalizers, pre_tokenizers, trainers

from regard.data.published import Specials
from regard.data.tokenizer import TOKENIZER_KINDS, Tokenizer, train
from regard.data.tokenizer_training import BYTES
from regard.settings.errors import Failure, UserError

TEXTS = [
    "A man in an orange hat, staring at something.",
    "Two young, White males are outside near many bushes: 2 or 3.",
    "Ein Mann mit einem Hut läuft über grünes Gras vor dem weißen Zaun.",
    "l'herbe verdoyante, l'homme (à gauche) et l'été",
    "犬が走る。 Собака бежит. 😀😀",
] * 4
REVERSIBLE = tuple(kind for kind in TOKENIZER_KINDS if kind != "words")
ANY = st.text(st.characters(exclude_categories=["Cs"]))
HARD = st.lists(
    st.sampled_from(["<pad>", "<s>", "</s>", "<unk>", "<0x41>", " ", "  ", "\t", "\n", "Ġ", "▁", "a", "ß", "😀", "\0"])
    | ANY
).map("".join)

tokenizers = {kind: train(TEXTS, kind=kind, vocabulary=400) for kind in TOKENIZER_KINDS}


@pytest.mark.parametrize("kind", REVERSIBLE)
@settings(max_examples=1000)
@given(text=ANY | HARD)
@example(text="")
@example(text=" ")
@example(text="  a  b ")
@example(text="\x00\x1c\x85\u2028\ufeff\uffff")
@example(text="👩‍👩‍👧 é é ｆｕｌｌ")
def test_any_text_comes_back_the_same(kind: str, text: str) -> None:
    tokenizer = tokenizers[kind]
    rows = tokenizer.encode([text, text + text])
    assert tokenizer.decode(rows) == [text, text + text]
    assert min((min(row, default=3) for row in rows), default=3) >= 3, "a text holds no special ids"


@settings(max_examples=1000)
@given(st.lists(st.sampled_from(["A", "man", "in", "hat", "grünes", "犬", "😀", "7", "42", ":", "«"]), min_size=1))
def test_known_words_come_back_the_same(words: list[str]) -> None:
    tokenizer = train([" ".join(words)], kind="words", vocabulary=100)
    assert tokenizer.decode(tokenizer.encode([" ".join(words)])) == [" ".join(words)]


def test_an_unknown_word_shows_as_such() -> None:
    tokenizer = tokenizers["words"]
    (row,) = tokenizer.encode(["A man in a frumious hat."])
    assert tokenizer.unknown == 3
    assert row.count(3) == 2
    assert tokenizer.decode([row]) == ["A man in <unk> <unk> hat."]
    assert tokenizer.pieces(row)[:4] == [" A", " man", " in", "<unk>"]


@pytest.mark.parametrize("kind", REVERSIBLE)
def test_other_kinds_know_everything(kind: str) -> None:
    assert tokenizers[kind].unknown is None


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
def test_special_ids_are_skipped(kind: str) -> None:
    tokenizer = tokenizers[kind]
    (row,) = tokenizer.encode(["A man"])
    assert (tokenizer.pad, tokenizer.start, tokenizer.end) == (0, 1, 2)
    assert tokenizer.pieces([0, 1, 2]) == ["<pad>", "<s>", "</s>"]
    assert tokenizer.decode([[1, *row, 2, 0, 0], [], [0]]) == ["A man", "", ""]


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
def test_a_text_trained_on_special_names_still_gives_no_special_ids(kind: str) -> None:
    texts = ["<s> </s> <pad> <unk><s></s><pad>"] * 100
    tokenizer = train(texts, kind=kind, vocabulary=400)
    for copied in (tokenizer, copy.deepcopy(tokenizer)):
        (row,) = copied.encode(texts[:1])
        assert min(row) > 2
        assert copied.decode([row]) == texts[:1]


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
@settings(max_examples=200)
@given(data=st.data())
def test_any_ids_can_be_read(kind: str, data: st.DataObject) -> None:
    tokenizer = tokenizers[kind]
    ids = data.draw(st.lists(st.integers(0, len(tokenizer) - 1)))
    (text,) = tokenizer.decode([ids])
    text.encode()
    assert all(piece and piece.isprintable() for piece in tokenizer.pieces(ids))


def test_a_word_has_one_token_wherever_it_stands() -> None:
    tokenizer = train(["man bites man"] * 9, kind="bpe", vocabulary=300)
    (row,) = tokenizer.encode(["man bites man"])
    assert len(row) == 3
    assert row[0] == row[2]


@pytest.mark.parametrize("kind", ["bpe", "unigram", "words"])
def test_punctuation_and_digits_stand_apart_from_words(kind: str) -> None:
    texts = ["Hello, you... (in 1984) l'été"] * 50
    tokenizer = train(texts, kind=kind, vocabulary=500)
    pieces = tokenizer.pieces(tokenizer.encode(texts[:1])[0])
    assert not [piece for piece in pieces if any(map(str.isalpha, piece)) and not piece.strip().isalpha()]
    assert [piece.strip() for piece in pieces if any(map(str.isdigit, piece))] == ["1", "9", "8", "4"]


def test_characters_are_tokens() -> None:
    tokenizer = tokenizers["characters"]
    (row,) = tokenizer.encode(["grün 犬"])
    assert tokenizer.pieces(row) == ["g", "r", "ü", "n", "␣", "犬"]


def test_the_rarest_characters_stay_in_bytes() -> None:
    tokenizer = train(["üüü ööö ä"], kind="characters", vocabulary=261)
    assert len(tokenizer) == 261
    (row,) = tokenizer.encode(["üöä"])
    assert tokenizer.pieces(row) == ["ü", "ö", "\\xc3", "\\xa4"]


def test_bytes_are_tokens() -> None:
    tokenizer = tokenizers["bytes"]
    assert [len(row) for row in tokenizer.encode(["grün", "😀"])] == [5, 4]


def test_pieces_are_readable() -> None:
    tokenizer = train(["über über"] * 9, kind="bpe", vocabulary=300)
    (row,) = tokenizer.encode(["über\t\x07  ä"])
    assert tokenizer.pieces(row) == [" über", "\\t", "\\x07", "␣", "␣", "\\xc3", "\\xa4"]


def test_the_table_of_bytes_is_the_librarys() -> None:
    tokenizer = tokenizers["bytes"]
    for text in map(chr, range(256)):
        (row,) = tokenizer.encode([text])
        spelled = [tokenizer._library.id_to_token(id) for id in row]
        assert bytes(BYTES[letter] for letter in spelled if letter) == text.encode()


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
def test_lower_case_is_a_choice(kind: str) -> None:
    tokenizer = train(["ein mann und ÄRGER", "Ein Mann"], kind=kind, vocabulary=400, lowercase=True)
    assert tokenizer.decode(tokenizer.encode(["Ein MANN und Ärger"])) == ["ein mann und ärger"]


# Training


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
def test_a_vocabulary_too_small_is_refused_with_the_least(kind: str) -> None:
    least = 5 if kind == "words" else 259
    with pytest.raises(UserError, match=f"{least} is the least") as caught:
        train(TEXTS, kind=kind, vocabulary=least - 1)
    assert caught.value.exit_code == 2
    assert len(train(TEXTS, kind=kind, vocabulary=least)) == least


def test_an_unknown_kind_is_refused_with_the_near_one() -> None:
    with pytest.raises(UserError, match="did you mean unigram"):
        train(TEXTS, kind="unigrams", vocabulary=400)


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
@pytest.mark.parametrize("texts", [[], [""], ["a"], ["aaa bbb"] * 1000], ids=["none", "empty", "short", "same"])
def test_few_texts_give_a_smaller_vocabulary(kind: str, texts: list[str]) -> None:
    tokenizer = train(texts, kind=kind, vocabulary=8000)
    assert len(tokenizer) < 300
    if kind != "words":
        assert tokenizer.decode(tokenizer.encode(["Ein Bär"])) == ["Ein Bär"]


TRAIN = """
import sys
from regard.data.tokenizer import train
texts = sys.stdin.read().split("\\n")
for kind in ("bpe", "unigram", "characters", "words"):
    sys.stdout.write(train(texts, kind=kind, vocabulary=400)._library.to_str())
"""


def test_training_gives_the_same_bytes_in_every_process() -> None:
    results = set()
    for threads in ("1", "2", "2", "2"):
        environment = os.environ | {
            "PYTHONPATH": str(Path(__file__).parents[2] / "src"),
            "PYTHONUTF8": "1",
            "RAYON_NUM_THREADS": threads,
        }
        results.add(
            subprocess.run(
                [sys.executable, "-c", TRAIN],
                input="\n".join(TEXTS).encode(),
                env=environment,
                stdout=subprocess.PIPE,
                check=True,
            ).stdout
        )
    assert len(results) == 1


# Long lines


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
@pytest.mark.parametrize("text", ["a", " ", "The dog  runs. "])
def test_a_line_of_a_megabyte_takes_no_time(kind: str, text: str) -> None:
    line = text * (1_000_000 // len(text))
    start = time.process_time()
    (row,) = tokenizers[kind].encode([line])
    assert time.process_time() - start < 10  # about 0.3 s
    if kind != "words":
        assert tokenizers[kind].decode([row]) == [line]


def test_a_line_of_megabytes_can_be_trained_on() -> None:
    start = time.process_time()
    train(["The dog runs. " * 700_000, "x" * 10_000_000], kind="bpe", vocabulary=300)
    assert time.process_time() - start < 10  # about 0.2 s


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
@settings(max_examples=200)
@given(text=st.lists(HARD, max_size=5).map(" ".join), size=st.integers(1, 20))
def test_a_text_encoded_in_parts_has_the_ids_of_the_whole(kind: str, text: str, size: int) -> None:
    tokenizer = tokenizers[kind]
    whole = tokenizer.encode([text, "another"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.data.tokenizer.MAX_CALL_CHARACTERS", size)
        assert tokenizer.encode([text, "another"]) == whole


# Files


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
def test_a_saved_tokenizer_gives_the_same_ids_here_and_in_the_library(
    tmp_path: Path, kind: str, lowercase: bool
) -> None:
    path = tmp_path / "tokenizer.json"
    tokenizer = train(TEXTS, kind=kind, vocabulary=350, lowercase=lowercase)
    tokenizer.save(path)
    loaded, alone = Tokenizer.load(path), Library.from_file(str(path))
    texts = [*TEXTS, "", "  ein Bär\t", "😀\n"]
    rows = tokenizer.encode(texts)
    assert loaded.encode(texts) == rows
    assert [encoding.ids for encoding in alone.encode_batch(texts)] == rows
    assert loaded.decode(rows) == alone.decode_batch(rows) == tokenizer.decode(rows)
    assert (len(loaded), loaded.unknown) == (len(tokenizer), tokenizer.unknown)
    # A name of a special token in the text is the one thing the library has to be told.
    alone.encode_special_tokens = True
    assert loaded.encode(["<s> </s>"]) == [alone.encode("<s> </s>").ids]
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()


def refusal(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        Tokenizer.load(path)
    assert caught.value.exit_code == 2
    assert str(caught.value).startswith(f"{path}: ")
    return str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"{}", b'{"version": "1.0"}'])
def test_a_file_that_is_no_tokenizer_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    assert "not a tokenizer.json" in refusal(path)


def test_a_path_that_is_no_file_is_refused(tmp_path: Path) -> None:
    assert "has no tokenizer.json, vocab.txt, or vocab.json and merges.txt" in refusal(tmp_path)
    assert "No such file" in refusal(tmp_path / "none")


def test_a_tokenizer_whose_end_nobody_knows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    Library.from_str(tokenizers["words"]._library.to_str().replace("<s>", "[CLS]")).save(str(path))
    assert "which of its tokens ends a text?" in refusal(path)
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "</s>", "bos_token": "[CLS]"}')
    assert Tokenizer.load(path).specials == (2, 1, 2, None)


def test_ids_with_a_gap_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    content = json.loads(tokenizers["bytes"]._library.to_str())
    content["model"]["vocab"]["z"] = 1000
    path.write_text(json.dumps(content))
    assert "must run from 0 to 258" in refusal(path)


@settings(max_examples=1000)
@given(st.integers(0, 20_000), st.binary(max_size=4), st.integers(0, 4))
def test_a_damaged_file_is_refused_or_works(
    tmp_path_factory: pytest.TempPathFactory, place: int, noise: bytes, cut: int
) -> None:
    content = bytearray(tokenizers["bytes"]._library.to_str().encode())
    content[place % len(content) : place % len(content) + cut] = noise
    path = tmp_path_factory.getbasetemp() / "damaged.json"
    path.write_bytes(content)
    message = ""
    try:
        tokenizer = Tokenizer.load(path)
        assert len(tokenizer) >= 259
    except UserError as error:
        message = str(error)
    assert not message or message.startswith(f"{path}: ")


def test_a_directory_that_cannot_be_written_to_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="cannot be written") as caught:
        tokenizers["bytes"].save(tmp_path / "none" / "tokenizer.json")
    assert caught.value.exit_code == 1


def test_half_a_character_is_refused_with_its_place() -> None:
    with pytest.raises(UserError, match=r"text 2: \\udcff at character 1"):
        tokenizers["bpe"].encode(["ok", "a\udcff"])


# Words


WORDS = st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters=" "), min_size=1)
                 .filter(lambda word: not word[0].isspace()), max_size=8)


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
@settings(max_examples=200)
@given(words=WORDS)
@example(words=["don't", "'s", "New\u00a0York", "été", "12", ")))", "</s>", "\x07"])
def test_the_ids_of_words_are_those_of_the_words_with_spaces_between_them(kind: str, words: list[str]) -> None:
    [spelled] = tokenizers[kind].encode_words([words])
    assert len(spelled) == len(words)
    assert all(spelled)
    assert [id for ids in spelled for id in ids] == tokenizers[kind].encode([" ".join(words)])[0]


def published(kind: str) -> Tokenizer:
    """As RoBERTa cuts a text, and as BERT does."""
    if kind == "roberta":
        library = Library(models.BPE())
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer: trainers.Trainer = trainers.BpeTrainer(
            vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
            special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
        specials = Specials(pad=1, start=0, end=2, mask=4)
    else:
        library = Library(models.WordPiece(unk_token="[UNK]"))
        library.normalizer = normalizers.BertNormalizer(lowercase=True)
        library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=200, show_progress=False, special_tokens=[
            "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
        specials = Specials(pad=0, start=2, end=3, mask=4)
    library.train_from_iterator(TEXTS, trainer)
    return Tokenizer(library, specials)


@pytest.mark.parametrize("kind", ["roberta", "bert"])
@settings(max_examples=100)
@given(words=st.lists(st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1), min_size=1, max_size=8))
@example(words=["the", "grass", "isn't", "'s", "green", "...", "Zaun"])
def test_of_published_tokenizers_too(kind: str, words: list[str]) -> None:
    tokens = published_tokenizers[kind]
    [spelled] = tokens.encode_words([words])
    joined = tokens.encode([" ".join(words)])[0]
    assert [id for ids in spelled for id in ids if id != tokens.mask] == joined


published_tokenizers = {kind: published(kind) for kind in ("roberta", "bert")}


def test_a_word_without_a_token_has_the_mask_in_its_place() -> None:
    tokens = published_tokenizers["bert"]
    assert tokens.encode_words([["a", "\x07", "man"]])[0][1] == [tokens.mask]
    [spelled] = Tokenizer(Library.from_str(tokens._library.to_str()), Specials(0, 2, 3)).encode_words([["\x07"]])
    assert spelled == [[3]]


def test_ten_thousand_sentences_are_spelled_in_a_second() -> None:
    sentences = [text.split(" ") for text in TEXTS] * 500
    start = time.monotonic()
    assert len(tokenizers["bpe"].encode_words(sentences)) == 10_000
    assert time.monotonic() - start < 2  # a tenth of it on a free machine
