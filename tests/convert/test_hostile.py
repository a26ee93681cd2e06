"""Hugging Face directories with anything in their files: each is read or refused with a sentence, soon and small."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from safetensors.torch import load_file, save_file

from regard.checkpoint import named_tensors, read_json, write_json
from regard.checkpoint.files import digest
from regard.convert.directory import Published, read_config, read_directory, read_llama2c, write_directory
from regard.convert.families import FAMILIES
from regard.convert.import_export import read_run_model
from regard.convert.model_spec import ModelSpec
from regard.data.corpus import find_texts, read_corpus
from regard.data.lines import read_lines
from regard.data.tokenizer import Tokenizer, train
from regard.look.record import Record
from regard.settings.errors import UserError
from regard.settings.files import parsed
from regard.settings.schema import Run, Tower
from regard.settings.setting import replaced

ENCODER: dict[str, Any] = {"embedding.segments": 2, "activation": "gelu"}
MODELS: dict[tuple[str, str], dict[str, Any]] = {
    ("gpt2", "causal-lm"): {}, ("llama", "causal-lm"): {"kv_heads": 2, "activation": "swiglu", "tied": "none"},
    ("qwen3", "causal-lm"): {"kv_heads": 2, "activation": "swiglu", "bias": False},
    ("bert", "backbone"): ENCODER, ("bert", "sequence-labels"): ENCODER | {"head.hidden": "tanh"},
    ("roberta", "token-labels"): ENCODER,
    ("longformer", "token-labels"): ENCODER | {"window": 4}, ("electra", "masked-lm"): ENCODER | {"embedding.width": 8},
    ("distilbert", "sequence-labels"): {"head.hidden": "relu", "activation": "gelu"},
}
LABELLER = "bert-sequence-labels"
ODD: list[object] = [None, True, False, 0, -1, 1.5, 1e308, float("nan"), 10**9, 2**63, 10**30, "", "x", "64", "\ud800",
                     [], [[]], [["x"]], ["a", "b"], {}, {"x": {}}]
MORE = ("_unknown", "architectures", "id2label", "layer_types", "pad_token_id", "problem_type", "rope_scaling")
TENSORS = [torch.tensor(1.0), torch.zeros(0), torch.zeros(2**40, 0), torch.zeros(1, 1, 1, 1), torch.zeros(2),
           torch.zeros(3, dtype=torch.int64)]

Mutation = tuple[Path, str, str, object]
"""Of a directory, the file, the key in it (none: the whole content), and what is there instead."""


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("published")
    for (name, kind), settings in MODELS.items():
        family = FAMILIES[name]
        sizes = {"width": 16, "heads": 4, "depth": 1, "ffn_width": 24, "max_positions": 40}
        tower = replaced(family.keys.base, sizes | settings)
        labels = ("a", "b", "c") if kind in ("sequence-labels", "token-labels") else ()
        spec = ModelSpec(tower=tower, vocabulary=320, kind=kind, labels=len(labels), pad=family.pad)
        tokens = train(["the theory"] * 3, kind="bpe", vocabulary=300, mask=kind != "causal-lm")
        place = folder / f"{name}-{kind}"
        place.mkdir()
        tokens.save(place / "tokenizer.json")
        weights = family.table(spec).theirs(named_tensors(spec.model()))
        write_directory(place, Published(family, spec, weights, tokens, labels))
        assert read_directory(place).ours(origin="")
    return sorted(folder.iterdir())


def mutations(directories: list[Path]) -> Iterator[Mutation]:
    for place in directories:
        for file in sorted(place.rglob("*.json")):
            content = json.loads(file.read_text(encoding="utf-8"))
            name = str(file.relative_to(place))
            yield from ((place, name, "", odd) for odd in ODD)
            if name != "tokenizer.json" and isinstance(content, dict):
                yield from ((place, name, key, odd) for key in {**content, **dict.fromkeys(MORE)} for odd in ODD)
        for name in load_file(place / "model.safetensors"):
            yield from ((place, "model.safetensors", name, odd) for odd in [None, *TENSORS])


def changed(place: Path, file: str, key: str, odd: object) -> None:
    if file == "model.safetensors":
        tensors = load_file(place / file)
        tensors |= {key: odd} if isinstance(odd, torch.Tensor) else {}
        save_file({name: tensor for name, tensor in tensors.items() if odd is not None or name != key}, place / file)
    else:
        content = {**json.loads((place / file).read_text(encoding="utf-8")), key: odd} if key else odd
        (place / file).write_text(json.dumps(content), encoding="utf-8")


def refusal(place: Path) -> str | None:
    try:
        read_directory(place).ours(origin=str(place))
    except UserError as error:
        return str(error)
    return None


def outcomes(some: list[Mutation], folder: Path) -> list[bool]:
    """Whether each was read. A sentence begins with the place that is wrong."""
    read = []
    for number, (place, file, key, odd) in enumerate(some):
        copy = shutil.copytree(place, folder / str(number))
        changed(copy, file, key, odd)
        began = time.process_time()
        said = refusal(copy)
        assert said is None or (said.startswith(str(copy)) and "\n" not in said), (file, key, odd)
        read.append(said is None)
        assert time.process_time() - began < 5, (file, key, odd)
        shutil.rmtree(copy)
    return read


def test_two_hundred_directories_with_anything_anywhere_are_read_or_refused(directories: list[Path],
                                                                            tmp_path: Path) -> None:
    every = list(mutations(directories))
    assert len(every) > 4_000
    read = outcomes(random.Random(0).sample(every, 200), tmp_path)
    assert 20 < sum(read) < 180  # neither is all refused, nor all taken


@pytest.mark.slow
def test_every_directory_with_anything_anywhere_is_read_or_refused(directories: list[Path], tmp_path: Path) -> None:
    outcomes(list(mutations(directories)), tmp_path)


@pytest.mark.parametrize(("name", "file", "key", "odd", "said"), [
    (LABELLER, "config.json", "architectures", [["x"]], "config.json: architectures=a list: regard has Bert"),
    (LABELLER, "config.json", "type_vocab_size", 0, "type_vocab_size=0: no bert that regard knows has this"),
    (LABELLER, "config.json", "type_vocab_size", 10**9, "config.json: type_vocab_size=1000000000: too large"),
    (LABELLER, "config.json", "max_position_embeddings", 10**9, "max_position_embeddings=1000000000: too larg"),
    (LABELLER, "model.safetensors", "classifier.bias", TENSORS[0], "the model has 1 labels; at least two"),
    ("llama-causal-lm", "config.json", "head_dim", 10**9 * 2, "num_attention_heads=4: too large for its files"),
    ("llama-causal-lm", "config.json", "num_hidden_layers", 10**9, "num_hidden_layers=1000000000: its files hold"),
    ("llama-causal-lm", "config.json", "vocab_size", 10**9, "config.json: vocab_size=1000000000: too large for its"),
])
def test_what_does_not_fit_the_weights_is_named_by_its_file_and_key(
        directories: list[Path], tmp_path: Path, name: str, file: str, key: str, odd: object, said: str) -> None:
    copy = shutil.copytree(directories[0].parent / name, tmp_path / name)
    changed(copy, file, key, odd)
    assert said in str(refusal(copy))


def test_a_generator_within_a_generator_is_not_looked_for(directories: list[Path], tmp_path: Path) -> None:
    """A link that leads back would be followed until the names are too long."""
    copy = shutil.copytree(directories[0].parent / "electra-masked-lm", tmp_path / "electra")
    changed(copy, "config.json", "architectures", ["ElectraForPreTraining"])
    (copy / "generator").symlink_to(copy, target_is_directory=True)
    with (patch("regard.convert.directory.read_config", wraps=read_config) as reads,
          pytest.raises(UserError, match=r"generator/?: is no generator for the model beside it|does not fit")):
        read_directory(copy).ours(origin=str(copy))
    assert reads.call_count == 2


MEASURED = """
import re, sys
from pathlib import Path
from regard.convert.directory import read_directory
from regard.settings.errors import UserError
from regard.settings.files import parsed
from regard.settings.schema import Run, Tower
def peak():
    return int(re.search("VmHWM:\\s+([0-9]+) kB", Path("/proc/self/status").read_text())[1])
before = peak()
try:
    read_directory(Path(sys.argv[1]))
except UserError:
    print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is counted otherwise elsewhere")
def test_a_billion_heads_are_refused_before_memory_is_taken(directories: list[Path], tmp_path: Path) -> None:
    copy = shutil.copytree(directories[0].parent / "llama-causal-lm", tmp_path / "in")
    for key, value in (("num_attention_heads", 10**9), ("num_key_value_heads", 10**9), ("head_dim", 2)):
        changed(copy, "config.json", key, value)
    child = subprocess.run([sys.executable, "-c", MEASURED, copy], text=True, capture_output=True, check=True,
                           env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert 0 <= int(child.stdout) < 50_000  # kB


def test_a_run_whose_settings_do_not_fit_its_weights_is_refused_before_it_is_built(tmp_path: Path) -> None:
    run = Run(task="translate", model=Tower(width=16, heads=4, depth=1))
    save_file({"x": torch.zeros(64, 16)}, tmp_path / "model.safetensors")
    write_json(tmp_path / "config.json", {"model_type": "regard"})
    assert read_run_model(tmp_path, run)[1].keys() == {"x"}
    for changes, said in (({"width": 10**9}, "width=1000000000: too large"), ({"depth": 10**8}, "depth=100000000: its"),
                          ({"head_width": 10**9}, "heads=4: too large"), ({"ffn_width": 129}, "ffn_width=129")):
        with pytest.raises(UserError, match=rf"run\.json: model\.{said}"):
            read_run_model(tmp_path, replace(run, model=replace(run.model, **changes)))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes here")
@pytest.mark.parametrize("read", [
    parsed, Tokenizer.load, Record.load, lambda path: list(read_lines(path, str(path))), read_json, digest,
    lambda path: read_llama2c(path, path), lambda path: read_corpus(find_texts([path]), key="text", held_out=0.1),
    lambda path: read_directory(path.parent)])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_whatever_reads_a_file_refuses_a_pipe_and_a_device_at_once(read: Callable[[Path], object], kind: str,
                                                                   tmp_path: Path) -> None:
    for name in ("it.json", "model.safetensors"):
        if kind == "pipe":
            os.mkfifo(tmp_path / name)
        else:
            (tmp_path / name).symlink_to("/dev/zero")
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}', encoding="utf-8")
    with pytest.raises(UserError, match=r"not a regular file|not a plain file|has no model\.safetensors"):
        read(tmp_path / "it.json")
