"""Published tokenizers give the ids that transformers gives, and every text back."""

import copy
import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, normalizers

from regard.data.tokenizer import Tokenizer, train
from regard.data.tokenizer_training import BYTES
from regard.settings.errors import UserError

GPT2 = Path(__file__).parents[3] / "shared" / "weights" / "gpt2_bpe"
needs_gpt2 = pytest.mark.skipif(not GPT2.is_dir(), reason="needs the tokenizer files of GPT-2 beside the repository")
ANY = st.text(st.characters(exclude_categories=["Cs"]))
WORDS = ["<|endoftext|>", "'s", "'LL", " ", "  ", "\t", "\n", "Ġ", "a", " the", "1234", "ß", "😀"]
HARD = st.lists(st.sampled_from(WORDS) | ANY).map("".join)

if GPT2.is_dir():
    tokens = Tokenizer.load(GPT2)


@pytest.fixture(scope="module")
def theirs():  # type: ignore[no-untyped-def]
    """transformers' own, told that a text is text."""
    transformers = pytest.importorskip("transformers")
    return transformers.GPT2Tokenizer(vocab=str(GPT2 / "encoder.json"), merges=str(GPT2 / "vocab.bpe"),
                                      split_special_tokens=True)


@needs_gpt2
@settings(max_examples=500)
@given(text=ANY | HARD)
@example(text="")
@example(text="  a  b \x00\x1c\x85\u2028\ufeff\uffff 👩‍👩‍👧 é é ｆｕｌｌ")
def test_gpt2s_ids_are_those_of_transformers(theirs, text: str) -> None:  # type: ignore[no-untyped-def]
    (row,) = tokens.encode([text])
    assert row == theirs(text)["input_ids"]
    assert tokens.decode([row]) == [text]
    assert tokens.end not in row


@needs_gpt2
def test_gpt2_has_one_special_token_for_everything() -> None:
    assert len(tokens) == 50_257
    assert tokens.specials == (50_256, 50_256, 50_256, None)
    pieces = ["<|endoftext|>", "Hello", " world", "\\n", "␣", "\\x80"]
    assert tokens.pieces([50_256, 15_496, 995, 198, 220, 222]) == pieces
    assert tokens.encode(["Hello world"]) == [[15_496, 995]]
    assert tokens.decode([[50_256, 15_496, 995, 50_256]]) == ["Hello world"]


@needs_gpt2
@settings(max_examples=100)
@given(st.lists(st.integers(0, 50_256)))
def test_any_of_gpt2s_ids_can_be_read(ids: list[int]) -> None:
    tokens.decode([ids])[0].encode()
    assert all(piece and piece.isprintable() for piece in tokens.pieces(ids))


@needs_gpt2
@settings(max_examples=50)
@given(text=st.lists(HARD, max_size=5).map(" ".join), size=st.integers(1, 20))
def test_a_text_encoded_in_parts_has_gpt2s_ids_of_the_whole(text: str, size: int) -> None:
    whole = tokens.encode([text])
    assert tokens.cuts_at_spaces
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.data.tokenizer.MAX_CALL_CHARACTERS", size)
        assert tokens.encode([text]) == whole


@needs_gpt2
def test_gpt2s_tokenizer_is_saved_as_one_file_that_others_read(tmp_path: Path) -> None:
    tokens.save(tmp_path / "tokenizer.json")
    again, alone = Tokenizer.load(tmp_path), Library.from_file(str(tmp_path / "tokenizer.json"))
    text = "Hello <|endoftext|> world's end"
    assert again.specials == tokens.specials == copy.deepcopy(tokens).specials
    assert again.encode([text]) == tokens.encode([text]) == copy.deepcopy(tokens).encode([text])
    assert alone.encode(text).ids.count(50_256) == 1, "the library itself takes it for the special token"


# Which token is which


def small(folder: Path, *extra: str) -> Path:
    """A tokenizer of single bytes and some names."""
    vocabulary = {name: id for id, name in enumerate([*BYTES, *extra])}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    return folder


@pytest.mark.parametrize(("files", "specials"), [
    ({}, (258, 257, 258)),  # by their names
    ({"tokenizer_config.json": {"eos_token": "[E]"}}, (259, 259, 259)),
    ({"tokenizer_config.json": {"eos_token": {"content": "[E]"}, "bos_token": None, "pad_token": "[P]"}},
     (260, 259, 259)),
    ({"special_tokens_map.json": {"eos_token": "[E]", "bos_token": {"content": "<s>", "lstrip": False}}},
     (259, 257, 259)),
    ({"config.json": {"eos_token_id": [259, 258], "bos_token_id": 257, "pad_token_id": -1}}, (259, 257, 259)),
    ({"tokenizer_config.json": {"eos_token": "[E]"}, "config.json": {"eos_token_id": 258, "pad_token_id": 260}},
     (260, 259, 259)),
])
def test_the_files_beside_a_tokenizer_say_which_token_is_which(
    tmp_path: Path, files: dict[str, object], specials: tuple[int, int, int]
) -> None:
    small(tmp_path, "xx", "<s>", "</s>", "[E]", "[P]")
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    found = Tokenizer.load(tmp_path)
    assert found.specials == (*specials, None)
    assert found.decode([[found.start, 64, found.end, found.pad]]) == found.decode([[64]])
    assert min(found.encode(["<s> [E] </s> [P]"])[0]) < 256


@pytest.mark.parametrize(("name", "content", "said"), [
    ("tokenizer_config.json", '{"eos_token": "[E]"}', "eos_token='[E]': the tokenizer next to it has no such token"),
    ("config.json", '{"eos_token_id": 300}', "eos_token_id=300: the tokenizer next to it has no such token"),
    ("special_tokens_map.json", "[]", "is not a JSON object"), ("config.json", "{", "not JSON"),
    ("merges.txt", "#version: 0.2\nq\n", "not a vocabulary and its merges"), ("vocab.json", "[]", "not a vocabulary"),
])
def test_files_that_contradict_the_tokenizer_are_refused(tmp_path: Path, name: str, content: str, said: str) -> None:
    small(tmp_path, "</s>")
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError) as caught:
        Tokenizer.load(tmp_path)
    assert said in str(caught.value)


def test_a_tokenizer_by_another_name_has_a_file_of_its_own_beside_it(tmp_path: Path) -> None:
    small(tmp_path, "<s>", "</s>", "[E]")
    published = Tokenizer.load(tmp_path)
    published.save(tmp_path / "source_tokenizer.json")
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "[E]"}')
    assert Tokenizer.load(tmp_path / "source_tokenizer.json").specials == published.specials == (257, 256, 257, None)


def test_our_own_tokenizers_need_nothing_beside_them(tmp_path: Path) -> None:
    learned = train(["a man", "a hat"], kind="bpe", vocabulary=300)
    learned.save(tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer_config.json").unlink()
    assert Tokenizer.load(tmp_path / "tokenizer.json").specials == (0, 1, 2, None)


def test_a_vocabulary_with_tokens_over_several_words_is_never_cut(tmp_path: Path) -> None:
    library = Library(models.BPE({"<s>": 0, "</s>": 1, "a": 2, " ": 3, "a ": 4, "a a": 5}, [("a", " "), ("a ", "a")]))
    library.decoder = decoders.Fuse()
    library.normalizer = normalizers.Sequence([])
    library.save(str(tmp_path / "tokenizer.json"))
    tokens = Tokenizer.load(tmp_path)
    assert not tokens.cuts_at_spaces
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.data.tokenizer.MAX_CALL_CHARACTERS", 1)
        assert tokens.encode(["a a"]) == [[5]]


@pytest.mark.parametrize("fixed", [{"truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst",
                                                   "stride": 0}},
                                   {"padding": {"strategy": {"Fixed": 9}, "direction": "Right", "pad_id": 0,
                                                "pad_to_multiple_of": None, "pad_type_id": 0, "pad_token": "<pad>"}}])
def test_how_long_a_tokenizer_wants_texts_to_be_is_not_heeded(tmp_path: Path, fixed: dict[str, object]) -> None:
    own, text = train(["a dog, a cat"] * 3, kind="bpe", vocabulary=300), "a dog, a cat, a dog"
    own.save(tmp_path / "tokenizer.json")
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    (tmp_path / "tokenizer.json").write_text(json.dumps(content | fixed))
    assert Tokenizer.load(tmp_path).encode([text]) == own.encode([text])


@pytest.mark.parametrize("kind", ["WordLevel", "BPE"])
def test_a_tokenizer_without_its_token_for_the_unknown_is_refused(tmp_path: Path, kind: str) -> None:
    model = {"type": kind, "vocab": {"<pad>": 0, "<s>": 1, "</s>": 2, "a": 3}, "unk_token": "<unk>"}
    model |= {"merges": []} if kind == "BPE" else {}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"version": "1.0", "added_tokens": [], "model": model}))
    with pytest.raises(UserError, match=r"tokenizer\.json: cannot encode every text.*: .*(?i:unk)"):
        Tokenizer.load(tmp_path / "tokenizer.json")


@pytest.mark.parametrize(("part", "harm"), [
    ("model", {"continuing_subword_prefix": "<unk>"}),
    ("decoder", {"type": "Sequence", "decoders": [
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        {"type": "Strip", "content": " ", "start": 0, "stop": 2**31}]})])
def test_a_tokenizer_at_which_the_library_panics_is_refused(
        tmp_path: Path, part: str, harm: dict[str, object]) -> None:
    train(["a dog, a cat"] * 3, kind="bpe", vocabulary=300).save(tmp_path / "tokenizer.json")
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content[part] |= harm
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"tokenizer\.json: .*(out of range|out of bounds)"):
        Tokenizer.load(tmp_path / "tokenizer.json")


# BERT's


BERT = Path(__file__).parents[3] / "shared" / "weights" / "bert_uncased_vocab"
needs_bert = pytest.mark.skipif(not BERT.is_dir(), reason="needs the vocabulary of BERT beside the repository")
PIECES = ["[MASK]", "[UNK]", "##", "don't", "Ünï", "中文", " ", "\t", "\u00a0", "\x00", "\ufffd", "İ", "a" * 101, "1.5"]
MIXED = st.lists(st.sampled_from(PIECES) | ANY).map("".join)


@pytest.fixture(scope="module", params=[True, False])
def words(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    """BERT's vocabulary here and in transformers, which is told that a text is text."""
    transformers, folder = pytest.importorskip("transformers"), tmp_path_factory.mktemp("bert")
    (folder / "vocab.txt").write_bytes((BERT / "vocab.txt").read_bytes())
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": request.param}))
    return Tokenizer.load(folder), transformers.BertTokenizer(
        vocab=str(folder / "vocab.txt"), do_lower_case=request.param, split_special_tokens=True)


@needs_bert
@settings(max_examples=300)
@given(text=ANY | MIXED)
def test_berts_ids_are_those_of_transformers(words, text: str) -> None:  # type: ignore[no-untyped-def]
    here, there = words
    (row,) = here.encode([text])
    assert [here.start, *row, here.end] == there(text)["input_ids"]


@needs_bert
def test_berts_vocabulary_alone_is_a_tokenizer(tmp_path: Path) -> None:
    tokens = Tokenizer.load(BERT)
    assert (len(tokens), tokens.specials, tokens.unknown) == (30_522, (0, 101, 102, 103), 100)
    (row,) = tokens.encode(["Unbelievably, 龘!"])
    assert tokens.pieces(row) == [" unbelievable", "y", " ,", "[UNK]", " !"] or tokens.pieces(row)[0].startswith(" un")
    tokens.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path)
    assert (again.encode(["Let's go"]), again.specials) == (tokens.encode(["Let's go"]), tokens.specials)


@pytest.mark.parametrize("content", ["[CLS]\n[SEP]\na\n", "[UNK]\n[CLS]\n[SEP]\na\na\n"])
def test_a_vocabulary_without_its_unknown_or_with_a_token_twice_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "vocab.txt").write_text(content)
    with pytest.raises(UserError, match=r"vocab\.txt: not a vocabulary of BERT"):
        Tokenizer.load(tmp_path)


def test_robertas_pair_of_files_has_its_padding_by_name(tmp_path: Path) -> None:
    small(tmp_path, "<s>", "<pad>", "</s>", "<mask>")
    assert Tokenizer.load(tmp_path).specials == (257, 256, 258, 259)


def test_an_encoders_own_tokenizer_tells_others_where_a_text_begins_and_ends(tmp_path: Path) -> None:
    learned = train(["a man", "a hat"], kind="bpe", vocabulary=300, mask=True)
    learned.save(tmp_path / "tokenizer.json")
    (row,) = learned.encode(["a man"])
    alone = Library.from_file(str(tmp_path / "tokenizer.json"))
    assert alone.encode("a man").ids == [1, *row, 2]
    assert alone.encode("a", "man").type_ids == [0, 0, 0, *[1] * len(alone.encode("man").ids[1:])]
    assert Tokenizer.load(tmp_path).encode(["a man"]) == [row]
