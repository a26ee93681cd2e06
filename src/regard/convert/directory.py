"""A Hugging Face directory: config.json, safetensors in one file or in several, a tokenizer."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from regard.checkpoint import read_json, write_json, write_model
from regard.convert.families import family_named
from regard.convert.family import Family
from regard.convert.keys import canonical
from regard.convert.llama2c import read_model, read_tokens
from regard.data.tokenizer import Tokenizer
from regard.settings.errors import UserError
from regard.settings.knobs import shown
from regard.settings.schema import Tower

__all__ = ["Published", "read_directory", "read_llama2c", "read_tensors", "refuse_sizes", "vocabulary_of",
           "write_directory"]

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.bin.index.json")
MOST = 1 << 48  # numbers of a tensor: a petabyte
FLOATS = {torch.float32, torch.bfloat16, torch.float16}


@dataclass(frozen=True)
class Published:
    """A model of a family, its weights under the family's names."""

    family: Family
    tower: Tower
    vocabulary: int
    weights: Mapping[str, Tensor]
    tokens: Tokenizer

    def __post_init__(self) -> None:
        if len(self.tokens) > self.vocabulary:
            raise UserError(f"the tokenizer has {len(self.tokens):,} tokens, the model vectors for "
                            f"{self.vocabulary:,} alone: they do not belong together")

    def ours(self, *, origin: str) -> dict[str, Tensor]:
        return self.family.table(self.tower, self.vocabulary).ours(self.weights, origin=origin)


def read_directory(folder: Path, tokens: Path | None = None) -> Published:
    """What a directory holds; the tokenizer may lie elsewhere."""
    place = folder / "config.json"
    if not place.is_file():
        raise UserError(f"{folder}: not a Hugging Face directory (it has no config.json)")
    config = read_json(place)
    if "auto_map" in config:
        raise UserError(f"{place}: auto_map: the model brings code of its own, which regard does not run")
    family = family_named(config.get("model_type"), origin=str(place))
    tower, tensors = family.tower(config, origin=str(place)), read_tensors(folder)
    for name, tensor in tensors.items():
        if tensor.dtype not in FLOATS:
            kinds = ", ".join(str(kind).removeprefix("torch.") for kind in FLOATS)
            raise UserError(f"{folder}: {name} is of {str(tensor.dtype).removeprefix('torch.')}; regard reads {kinds}")
    vocabulary = vocabulary_of(config, origin=str(place))
    refuse_sizes(tower, vocabulary, tensors, origin=str(place))
    weights = family.weights(tensors, tower, origin=str(folder))
    return Published(family, tower, vocabulary, weights, Tokenizer.load(tokens or folder))


def read_llama2c(file: Path, tokens: Path | None = None) -> Published:
    """A model of llama2.c; its tokens are the one file tok….bin beside it if no other is named."""
    found = [tokens] if tokens else sorted(file.parent.glob("tok*.bin"))
    if len(found) != 1:
        raise UserError(f"{file}: {'none' if not found else len(found)} of the files beside it could be its tokens; "
                        "name them with --tokenizer FILE")
    config, tensors = read_model(file)
    family, vocabulary = family_named(config["model_type"], origin=str(file)), config["vocab_size"]
    return Published(family, family.tower(config, origin=str(file)), vocabulary, tensors,
                     read_tokens(found[0], vocabulary=vocabulary))


def write_directory(folder: Path, published: Published) -> None:
    """What `read_directory` and transformers read, but for the tokenizer, which is there already."""
    specials = published.tokens.specials
    ids = {"bos_token_id": specials.start, "eos_token_id": specials.end, "pad_token_id": specials.pad}
    kind = str(next(iter(published.weights.values())).dtype).removeprefix("torch.")
    config = published.family.config(published.tower, published.vocabulary)
    write_json(folder / "generation_config.json", ids)
    write_model(folder, published.weights, {**config, **ids, "torch_dtype": kind})


def vocabulary_of(config: Mapping[str, Any], *, origin: str) -> int:
    size = config.get("vocab_size")
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise UserError(f"{origin}: vocab_size={shown(size)}: wants how many tokens there are")
    return size


def refuse_sizes(tower: Tower, vocabulary: int, tensors: Mapping[str, Tensor], *, origin: str) -> None:
    """Sizes that are not those of any file, before anything is made of them."""
    whole = canonical(tower)
    if whole.depth > len(tensors):
        raise UserError(f"{origin}: speaks of {whole.depth:,} blocks, but its files hold {len(tensors):,} tensors")
    rows = max(vocabulary, whole.longest, whole.hidden_width or 0, whole.heads * (whole.head_width or 0))
    if rows * whole.width > MOST:
        raise UserError(f"{origin}: speaks of a tensor of {rows:,} × {whole.width:,} numbers: no file holds so many")


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder. Of a file that holds code, as a pickle does, nothing is read."""
    if (folder / WEIGHTS).is_file():
        return _file(folder / WEIGHTS)
    if (folder / INDEX).is_file():
        return _shards(folder)
    if pickles := sorted(path.name for pattern in PICKLES for path in folder.glob(pattern)):
        raise UserError(f"{folder}: {pickles[0]} is a pickle, which can run code when it is read; convert it where you "
                        "trust it: transformers' from_pretrained(…), then save_pretrained(…, safe_serialization=True)")
    raise UserError(f"{folder}: has no {WEIGHTS}")


def _shards(folder: Path) -> dict[str, Tensor]:
    places = read_json(folder / INDEX).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(file, str) for file in places.values()):
        raise UserError(f"{folder / INDEX}: has no weight_map from tensors to files")
    tensors: dict[str, Tensor] = {}
    for file in sorted(set(places.values())):
        if Path(file).name != file or not file.endswith(".safetensors"):
            raise UserError(f"{folder / INDEX}: names {shown(file)}, which is no safetensors file of this folder")
        if not (folder / file).is_file():
            raise UserError(f"{folder / file}: missing; {INDEX} names it")
        tensors |= _file(folder / file)
    return tensors


def _file(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except SafetensorError as error:
        raise UserError(f"{path}: not a whole safetensors file: {error}") from error
