"""Hugging Face directories: what transformers saved opens here, what regard wrote opens there, the rest is refused."""

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from towers import WRITERS, close, language, logits, shaken

from regard.checkpoint import load_weights, named_tensors, write_json
from regard.convert.directory import Published, read_directory
from regard.convert.families import FAMILIES
from regard.convert.import_export import export_run, import_run, read_run_model, write_run_model
from regard.data.tokenizer import Tokenizer, train
from regard.models.decoder import Decoder
from regard.settings.errors import UserError
from regard.settings.load import load, to_json
from regard.settings.schema import Run, Tower

transformers = pytest.importorskip("transformers")
transformers.utils.logging.enable_propagation()  # so that what it complains about is seen
families = pytest.mark.parametrize("name", WRITERS)
TEXT = "the theory </s> of it"
SHAPES: dict[str, dict[str, Any]] = {
    "gpt2": {"width": 20, "heads": 5, "depth": 2, "max_positions": 40, "activation": "gelu-tanh", "dropout": 0.1},
    "llama": {"width": 24, "heads": 6, "depth": 2, "max_positions": 40, "kv_heads": 2, "ffn_width": 37,
              "activation": "swiglu", "bias": False, "tied": "none"},
}
SHAPES["qwen3"] = SHAPES["llama"]


@pytest.fixture(scope="module")
def tokens() -> Tokenizer:
    return train(["the theory of it", "then the theme"] * 3, kind="bpe", vocabulary=300)


def tower(name: str, **changes: Any) -> Tower:
    return replace(FAMILIES[name].keys.base, **SHAPES[name] | changes)


def finished(folder: Path, model: Tower, tokens: Tokenizer, *, task: str = "language") -> Decoder:
    """What training leaves of a run, its vocabulary rounded up as there."""
    run, sizes = Run(task=task, model=model), {"vocabulary": 320}
    decoder = shaken(Decoder(model, vocabulary=sizes["vocabulary"]))
    assert isinstance(decoder, Decoder)
    tokens.save(folder / "tokenizer.json")
    write_json(folder / "run.json", to_json(run))
    write_run_model(folder, run, sizes, named_tensors(decoder))
    return decoder


def opened(folder: Path) -> Decoder:
    run = load(folder / "run.json")
    sizes, weights = read_run_model(folder, run)
    model = Decoder(run.model, vocabulary=sizes["vocabulary"]).eval()
    load_weights(model, weights, origin=str(folder))
    return model


def there(folder: Path, tokens: Tokenizer, caplog: pytest.LogCaptureFixture) -> Any:
    """The directory as transformers opens it, by itself and without a complaint."""
    with caplog.at_level(logging.WARNING, logger="transformers"):
        model = transformers.AutoModelForCausalLM.from_pretrained(folder)
        theirs = transformers.AutoTokenizer.from_pretrained(folder)
    assert caplog.messages == []
    assert [theirs(TEXT, add_special_tokens=False, split_special_tokens=True)["input_ids"]] == tokens.encode([TEXT])
    assert (theirs.pad_token_id, theirs.bos_token_id, theirs.eos_token_id) == tokens.specials[:3]
    assert model.generation_config.eos_token_id == tokens.end
    return model.eval()


def peer(folder: Path, name: str, tokens: Tokenizer | None, **kind: Any) -> Any:
    """A model that transformers has saved, with a tokenizer."""
    config = FAMILIES[name].config(language(tower(name), 320)) | {"bos_token_id": 1, "eos_token_id": 2}
    model = shaken(transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**config)))
    model.save_pretrained(folder, **kind)
    if tokens is not None:
        tokens.save(folder / "tokenizer.json")
    return model


# There and back


@families
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@torch.no_grad()
def test_a_finished_run_opens_in_transformers_as_it_is(
    tmp_path: Path, tokens: Tokenizer, caplog: pytest.LogCaptureFixture, name: str, kind: torch.dtype
) -> None:
    model, ids = finished(tmp_path, tower(name), tokens), torch.randint(0, 320, (2, 9))
    expected = logits(model, ids)
    assert torch.equal(logits(opened(tmp_path), ids), expected)
    close(there(tmp_path, tokens, caplog)(ids).logits, expected)
    export_run(tmp_path, tmp_path / "out", precision=kind)
    exported = there(tmp_path / "out", tokens, caplog)
    assert exported.dtype == kind
    assert not (tmp_path / "out" / "run.json").exists()
    if kind == torch.float32:
        assert torch.equal(exported(ids).logits, there(tmp_path, tokens, caplog)(ids).logits)


@families
@pytest.mark.parametrize("shard", ["5GB", "20KB"])
@torch.no_grad()
def test_what_transformers_saved_opens_here(
    tmp_path: Path, tokens: Tokenizer, caplog: pytest.LogCaptureFixture, name: str, shard: str
) -> None:
    theirs = peer(tmp_path / "in", name, tokens, max_shard_size=shard)
    assert (tmp_path / "in" / "model.safetensors.index.json").exists() == (shard == "20KB")
    import_run(tmp_path / "in", tmp_path / "run")
    ids = torch.randint(0, 320, (2, 9))
    close(logits(opened(tmp_path / "run"), ids), theirs(ids).logits)
    assert torch.equal(there(tmp_path / "run", tokens, caplog)(ids).logits, theirs(ids).logits)
    run = load(tmp_path / "run" / "run.json")
    assert (run.task, run.data.max_tokens) == ("language", 40)
    assert run.tokens.file == str(tmp_path / "run" / "tokenizer.json")


@families
def test_short_numbers_stay_short_unless_told(tmp_path: Path, tokens: Tokenizer, name: str) -> None:
    peer(tmp_path / "in", name, tokens).to(torch.bfloat16).save_pretrained(tmp_path / "in")
    import_run(tmp_path / "in", tmp_path / "same")
    import_run(tmp_path / "in", tmp_path / "long", precision=torch.float32)
    for place, kind in (("same", torch.bfloat16), ("long", torch.float32)):
        tensors = load_file(tmp_path / place / "model.safetensors")
        assert {tensor.dtype for tensor in tensors.values()} == {kind}
    assert all(torch.equal(one, other) for one, other in zip(
        opened(tmp_path / "same").parameters(), opened(tmp_path / "long").parameters(), strict=True))


def test_a_run_of_no_family_keeps_our_names(tmp_path: Path, tokens: Tokenizer) -> None:
    model = finished(tmp_path, tower("llama", window=5), tokens)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "regard"
    sizes, weights = read_run_model(tmp_path, load(tmp_path / "run.json"))
    assert sizes == {}
    assert weights.keys() == named_tensors(model).keys()
    with pytest.raises(UserError, match=r"does not have model\.window=5; only regard opens this model"):
        export_run(tmp_path, tmp_path / "out")


def test_a_run_of_another_task_keeps_our_names(tmp_path: Path, tokens: Tokenizer) -> None:
    finished(tmp_path, tower("gpt2"), tokens, task="translate")
    assert "tokens.table.weight" in load_file(tmp_path / "model.safetensors")
    with pytest.raises(UserError, match="of the task translate"):
        export_run(tmp_path, tmp_path / "out")


def test_a_run_whose_files_disagree_is_refused(tmp_path: Path, tokens: Tokenizer) -> None:
    finished(tmp_path, tower("gpt2"), tokens)
    with pytest.raises(UserError, match=r"config.json: says gpt2, but run.json describes another model"):
        read_run_model(tmp_path, Run(task="language", model=tower("llama")))
    with pytest.raises(UserError, match=r"does not fit the model: .*instead of"):
        read_run_model(tmp_path, Run(task="language", model=tower("gpt2", ffn_width=7)))


# What is refused


def refusal(folder: Path, **more: Any) -> str:
    with pytest.raises(UserError) as caught:
        import_run(folder, folder.with_name("out"), **more)
    assert not folder.with_name("out").exists()
    assert not folder.with_name(".out.new").exists()
    return str(caught.value)


def change(file: Path, **content: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | content))


HARMS: list[tuple[Callable[[Path], Any], str]] = [
    (lambda folder: (folder / "config.json").unlink(), "not a Hugging Face directory"),
    (lambda folder: (folder / "config.json").write_text("{"), "config.json: not JSON"),
    (lambda folder: change(folder / "config.json", model_type="t5"), "no family that regard knows"),
    (lambda folder: change(folder / "config.json", auto_map={"AutoModel": "evil.Evil"}), "code of its own"),
    (lambda folder: change(folder / "config.json", vocab_size="320"), "vocab_size='320': must be the number"),
    (lambda folder: change(folder / "config.json", vocab_size=321), "(320, 20) instead of (321, 20)"),
    (lambda folder: change(folder / "config.json", vocab_size=200), "they do not belong together"),
    (lambda folder: change(folder / "config.json", n_layer=3), "transformer.h.2.attn.c_attn.bias: missing"),
    (lambda folder: change(folder / "config.json", n_layer=1), "transformer.h.1.attn.c_attn.bias: unknown"),
    (lambda folder: change(folder / "config.json", n_layer=10**9), "n_layer=1000000000: its files hold 28 tensors"),
    (lambda folder: change(folder / "config.json", vocab_size=2**62), "vocab_size=4611686018427387904: too large"),
    (lambda folder: change(folder / "config.json", vocab_size=2**70), "the longest side of a tensor is 320"),
    (lambda folder: change(folder / "config.json", n_embd=5 * 2**40), "n_embd=5497558138880: too large for its files"),
    (lambda folder: change(folder / "config.json", n_inner=2**60), "n_inner=1152921504606846976: too large"),
    (lambda folder: (folder / "tokenizer.json").unlink(), "has no tokenizer.json"),
    (lambda folder: (folder / "model.safetensors").write_bytes(b"\x80\x04K\x01."), "not a whole safetensors file"),
    (lambda folder: (folder / "model.safetensors").write_bytes(b"\xff" * 99), "not a whole safetensors file"),
    (lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"),
     "pytorch_model.bin is a pickle, which can run code when it is read; convert it where you trust it: transformers' "
     "from_pretrained(…), then save_pretrained(…, safe_serialization=True)"),
    (lambda folder: (folder / "model.safetensors").unlink(), "has no model.safetensors"),
    (lambda folder: save_file({"x": torch.ones(3, dtype=torch.int8)}, folder / "model.safetensors"), "x is of int8"),
]


@pytest.mark.parametrize(("harm", "said"), HARMS)
def test_a_directory_that_is_wrong_is_refused(
    tmp_path: Path, tokens: Tokenizer, harm: Callable[[Path], Any], said: str
) -> None:
    peer(tmp_path / "in", "gpt2", tokens)
    harm(tmp_path / "in")
    assert said in refusal(tmp_path / "in")


@pytest.mark.parametrize(("harm", "said"), [
    (lambda index: {}, "has no weight_map"), (lambda index: {"weight_map": {"x": 3}}, "has no weight_map"),
    (lambda index: {"weight_map": {"x": "../model.safetensors"}}, "names '../model.safetensors', which is no"),
    (lambda index: {"weight_map": {"x": "model.bin"}}, "names 'model.bin', which is no safetensors"),
    (lambda index: {"weight_map": {"x": "none.safetensors"}}, "none.safetensors: missing; model.safetensors"),
    (lambda index: {"weight_map": dict(list(index["weight_map"].items())[:1])}, "missing"),
])
def test_an_index_of_shards_that_is_wrong_is_refused(
    tmp_path: Path, tokens: Tokenizer, harm: Callable[[Any], Any], said: str
) -> None:
    peer(tmp_path / "in", "gpt2", tokens, max_shard_size="20KB")
    index = tmp_path / "in" / "model.safetensors.index.json"
    index.write_text(json.dumps(harm(json.loads(index.read_text()))))
    assert said in refusal(tmp_path / "in")


def test_a_tokenizer_from_elsewhere_will_do(tmp_path: Path, tokens: Tokenizer) -> None:
    peer(tmp_path / "in", "gpt2", None)
    assert "has no tokenizer.json" in refusal(tmp_path / "in")
    tokens.save(tmp_path / "tokenizer.json")
    import_run(tmp_path / "in", tmp_path / "run", tokens=tmp_path / "tokenizer.json")
    assert Tokenizer.load(tmp_path / "run" / "tokenizer.json").encode([TEXT]) == tokens.encode([TEXT])


def test_nothing_is_written_over(tmp_path: Path, tokens: Tokenizer) -> None:
    peer(tmp_path / "in", "gpt2", tokens)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("mine")
    with pytest.raises(UserError, match="out: is there already"):
        import_run(tmp_path / "in", tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]
    (tmp_path / "out" / "mine").unlink()
    assert isinstance(import_run(tmp_path / "in", tmp_path / "out"), Published)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, tokens: Tokenizer) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "in"
    peer(folder, "gpt2", tokens)
    return folder


@settings(max_examples=80)
@given(place=st.integers(0, 5_000), noise=st.binary(max_size=4), cut=st.integers(0, 4))
def test_a_damaged_file_of_weights_is_refused_or_read(whole: Path, place: int, noise: bytes, cut: int) -> None:
    file, said = whole / "model.safetensors", ""
    before = file.read_bytes()
    file.write_bytes(before[:place] + noise + before[place + cut :])
    try:
        read_directory(whole).ours(origin=str(whole))
    except UserError as error:
        said = str(error)
    finally:
        file.write_bytes(before)
    assert not said or said.startswith(str(whole))


def test_where_one_stands_cannot_become_a_model(
        tmp_path: Path, tokens: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    peer(tmp_path / "in", "gpt2", tokens)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(UserError, match=r"has no name of its own"):
        import_run(tmp_path / "in", Path())
