"""A Hugging Face directory: config.json, safetensors in one file or in several, a tokenizer."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from regard.checkpoint import read_json, write_json, write_model
from regard.convert import images, labels, sentences
from regard.convert.electra import GENERATOR
from regard.convert.families import family_named
from regard.convert.family import Family
from regard.convert.keras_resnet import IMAGE, read_labels_of, read_resnet
from regard.convert.keras_resnet import MODEL as KERAS
from regard.convert.keys import canonical
from regard.convert.llama2c import read_model, read_tokens
from regard.convert.model_spec import ModelSpec
from regard.data.tokenizer import Tokenizer
from regard.models.electra import smaller
from regard.settings.errors import UserError
from regard.settings.opening import own_folder, refuse_irregular
from regard.settings.schema import Tower
from regard.settings.setting import of, shown

__all__ = ["Published", "pad_of", "read_config", "read_directory", "read_llama2c", "read_tensors", "refuse_sizes",
           "vocabulary_of", "write_directory"]

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
CHEAP = 1 << 18  # rows of a tensor without content, which may be made for the sake of a better sentence
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.bin.index.json")
FLOATS = {torch.float32, torch.bfloat16, torch.float16}


@dataclass(frozen=True)
class Published:
    """A model of a family, its weights under the family's names."""

    family: Family
    spec: ModelSpec
    weights: Mapping[str, Tensor]
    tokens: Tokenizer | None
    """Absent: it reads images."""
    labels: tuple[str, ...] = ()
    multi_label: bool = False
    longest: int | None = None
    """Tokens of a text, where the files say how many are read."""

    def __post_init__(self) -> None:
        if self.tokens is not None and len(self.tokens) > self.vocabulary:
            raise UserError(f"the tokenizer has {len(self.tokens):,} tokens, but the model only has "
                            f"vectors for {self.vocabulary:,}: they do not belong together")

    @property
    def tower(self) -> Tower:
        return self.spec.tower

    @property
    def vocabulary(self) -> int:
        return self.spec.vocabulary

    @property
    def reads(self) -> str:
        """Its inputs, in words."""
        return "images" if self.tokens is None else f"{len(self.tokens):,} tokens"

    def ours(self, *, origin: str) -> dict[str, Tensor]:
        return self.family.table(self.spec).ours(self.weights, origin=origin)


def read_directory(folder: Path, tokens: Path | None = None, *, generators: bool = True) -> Published:
    """The content of a directory; the tokenizer may be elsewhere. A generator has no generator."""
    if (folder / KERAS).is_file() and not (folder / "config.json").is_file():
        return read_keras(folder)
    config, place = read_config(folder), str(folder / "config.json")
    family, tensors = family_named(config.get("model_type"), origin=place), read_tensors(folder)
    kind = family.kind(config, tensors, origin=place)
    tensors = family.named(tensors, kind)
    _refuse_kinds(tensors, folder)
    tower = family.tower(config, kind, names=tensors, origin=place)
    if lacking := family.lacks(tower):
        key = next(theirs for theirs, ours in family.keys.renamed.items() if ours == lacking[0])
        raise UserError(f"{place}: {key}={shown(config.get(key))}: no {family.name} that regard knows has this value")
    if tower.image is not None:
        sized = "image.size" in family.keys.renamed.values()
        tower = replace(tower, image=images.read(folder, tower.image, sized=sized))
    vocabulary = 0 if tower.image is not None else vocabulary_of(config, origin=place)
    refuse_sizes(tower, vocabulary, tensors, origin=place, family=family)
    names, several = labels.read(config, tensors, kind, origin=place)
    if tower.image is not None:
        spec = ModelSpec(tower=tower, kind=kind, labels=len(names))
        return Published(family, spec, family.weights(tensors, spec, origin=str(folder)), None, names, several)
    spec = ModelSpec(tower=tower, vocabulary=vocabulary, kind=kind, labels=len(names),
                  pad=pad_of(config, family, origin=place))
    if generators and kind == "discriminator" and (folder / GENERATOR).is_dir():
        beside = read_directory(folder / GENERATOR, tokens or folder, generators=False)
        spec = replace(spec, generator=share_of(beside.spec, tower, origin=str(folder / GENERATOR)))
        tensors |= {f"{GENERATOR}{name}": tensor for name, tensor in beside.weights.items()}
    spec, longest = sentences.read(folder, spec)
    return Published(family, spec, family.weights(tensors, spec, origin=str(folder)),
                     Tokenizer.load(tokens or folder), names, several, longest)


def read_config(folder: Path) -> dict[str, Any]:
    place = folder / "config.json"
    if not place.is_file():
        raise UserError(f"{folder}: not a Hugging Face directory (it has no config.json)")
    config = read_json(place)
    if "auto_map" in config:
        raise UserError(f"{place}: auto_map: the model brings code of its own, which regard does not run")
    return config


def read_keras(folder: Path) -> Published:
    """A ResNet of Keras, in the format of TensorFlow.js."""
    config, tensors = read_resnet(folder)
    family, origin = family_named(config["model_type"], origin=str(folder / KERAS)), str(folder / KERAS)
    kind = family.kind(config, tensors, origin=origin)
    tower = family.tower(config, kind, names=tensors, origin=origin)
    assert tower.image is not None
    usual = {name: getattr(IMAGE, name) for name in ("size", "resize", "fit", "resample", "mean", "std")}
    tower = replace(tower, image=replace(tower.image, **usual))
    named = read_labels_of(folder, len(tensors["classifier.1.bias"]))
    names, _ = labels.read({"id2label": named or None}, tensors, kind, origin=origin)
    return Published(family, ModelSpec(tower=tower, kind=kind, labels=len(names)), tensors, None, names)


def read_llama2c(file: Path, tokens: Path | None = None) -> Published:
    """A model of llama2.c; its tokens are the one file tok….bin beside it if no other is named."""
    found = [tokens] if tokens else sorted(file.parent.glob("tok*.bin"))
    if len(found) != 1:
        raise UserError(f"{file}: {'none' if not found else len(found)} of the files beside it could be its tokens; "
                        "name them with --tokenizer FILE")
    config, tensors = read_model(file)
    family, vocabulary = family_named(config["model_type"], origin=str(file)), config["vocab_size"]
    spec = ModelSpec(tower=family.tower(config, origin=str(file)), vocabulary=vocabulary)
    return Published(family, spec, tensors, read_tokens(found[0], vocabulary=vocabulary))


def write_directory(folder: Path, published: Published) -> None:
    """Write the files that `read_directory` and transformers read, except for the tokenizer's, which exist already."""
    family, spec = published.family, published.spec
    kind = {"torch_dtype": str(next(iter(published.weights.values())).dtype).removeprefix("torch.")}
    named = labels.to_hf_config(published.labels, several=published.multi_label)
    if published.tokens is None:
        assert spec.tower.image is not None
        images.write(folder, spec.tower.image)
        weights = {**published.weights, **family.adds(published.weights)}
        write_model(folder, weights, {**family.config(spec), **kind, **named})
        return
    specials = published.tokens.specials
    pad = specials.pad if spec.kind == "causal-lm" else spec.pad
    ids = {"bos_token_id": specials.start, "eos_token_id": specials.end, "pad_token_id": pad}
    copies = {copy: published.weights[name] for copy, name in family.heads[spec.kind].written.items()
              if spec.generator is not None}
    weights = {**published.weights, **copies}
    if spec.kind == "causal-lm":
        write_json(folder / "generation_config.json", ids)
    else:
        _tell_tokenizer(folder / "tokenizer_config.json", published)
    if spec.kind == "backbone":
        sentences.write(folder, spec.tower, longest=published.longest or spec.tower.max_positions)
    if spec.generator is not None:
        own_folder(folder / GENERATOR)
        beside = replace(spec, kind="masked-lm", tower=smaller(spec.tower, spec.generator), generator=None)
        write_model(folder / GENERATOR, {name.removeprefix(GENERATOR): tensor for name, tensor in weights.items()
                                         if name.startswith(GENERATOR)}, {**family.config(beside), **ids, **kind})
    write_model(folder, {name: tensor for name, tensor in weights.items() if not name.startswith(GENERATOR)},
                {**family.config(spec), **ids, **kind, **named})


def _tell_tokenizer(place: Path, published: Published) -> None:
    """Where texts are cut, and whether the model asks for segments: transformers leaves both to the tokenizer."""
    inputs = ["input_ids", *(["token_type_ids"] if published.tower.embedding.segments > 1 else []), "attention_mask"]
    longest = published.longest or published.tower.max_positions
    write_json(place, {**read_json(place), "model_input_names": inputs, "model_max_length": longest})


def pad_of(config: Mapping[str, Any], family: Family, *, origin: str) -> int:
    if (pad := config.get("pad_token_id")) is None:
        return family.pad
    if not isinstance(pad, int) or isinstance(pad, bool) or not 0 <= pad < vocabulary_of(config, origin=origin):
        raise UserError(f"{origin}: pad_token_id={shown(pad)}: must be the id of a token")
    return pad


def share_of(generator: ModelSpec, tower: Tower, *, origin: str) -> float:
    """How narrow a generator is beside its detector."""
    there, here = generator.canonical, canonical(tower)
    # Heads are whole, and so is the hidden width: of a share that was rounded the one or the other says more.
    for share in (there.width / here.width, (there.ffn_width or 1) / (here.ffn_width or 1)):
        narrow = replace(canonical(smaller(tower, share)), head=there.head)
        if generator.kind == "masked-lm" and share <= 1 and there == narrow:
            return share
    raise UserError(f"{origin}: is no generator for the model beside it: regard has those that are as deep and "
                    "in all else narrower by one share")


def _refuse_kinds(tensors: Mapping[str, Tensor], folder: Path) -> None:
    for name, tensor in tensors.items():
        if tensor.dtype not in FLOATS:
            kinds = ", ".join(str(kind).removeprefix("torch.") for kind in FLOATS)
            raise UserError(f"{folder}: {name} is of {str(tensor.dtype).removeprefix('torch.')}; regard reads {kinds}")


def vocabulary_of(config: Mapping[str, Any], *, origin: str) -> int:
    size = config.get("vocab_size")
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise UserError(f"{origin}: vocab_size={shown(size)}: must be the number of tokens")
    return size


def refuse_sizes(tower: Tower, vocabulary: int, tensors: Mapping[str, Tensor], *, origin: str,
                 family: Family | None = None, cheap: int = CHEAP) -> None:
    """Refuse sizes that are far from those of the tensors, before anything is made of them.

    A smaller mismatch costs little to build, and the error then names the shapes of both sides.
    """
    whole, heads = canonical(tower), tower.heads if tower.recurrent is None else 1
    key = {ours: theirs for theirs, ours in family.keys.renamed.items()} if family else {}
    depth, named = max(tower.depth, whole.depth), "depth"
    if tower.image is not None and tower.image.stem == "resnet":  # it has no other blocks
        depth, named = sum(tower.image.stages), "image.stages"
    if depth > len(tensors):
        raise UserError(f"{origin}: {key.get(named, f'model.{named}')}={shown(depth)}: its files hold "
                        f"{len(tensors):,} tensors, too few for that many blocks")
    longest = max((max(tensor.shape) for tensor in tensors.values() if tensor.ndim and tensor.numel()), default=0)
    sizes = {"width": whole.width, **_sizes_of_inputs(whole)}
    if named == "depth":
        sizes |= {"heads": heads * (whole.head_width or 1), "head_widths": sum(whole.head_widths),
                  "kv_heads": whole.kv_heads or 1, "ffn_width": whole.ffn_width or 1,
                  "embedding.segments": whole.embedding.segments, "embedding.width": whole.embedding.width or 1}
    for name, size in {**sizes, "vocabulary": vocabulary}.items():
        if size > max(2 * longest, cheap):
            said = key.get(name, "vocab_size" if name == "vocabulary" else f"model.{name}")
            value = size if name == "vocabulary" else of(tower, name) or size
            raise UserError(f"{origin}: {said}={shown(value)}: too large for its files, in which the longest side of "
                            f"a tensor is {longest:,}")


def _sizes_of_inputs(tower: Tower) -> dict[str, int]:
    """The longest sides of the tensors below the first block."""
    is_learned = tower.positions == "learned"
    if (image := tower.image) is None:
        return {"max_positions": tower.max_positions * is_learned}
    if image.stem == "resnet":
        return {"image.width": image.width or 1}
    patch = image.patch**2 if image.stem == "patches" else image.patch.bit_length()
    return {"image.size": image.places * is_learned, "image.patch": patch}


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
        refuse_irregular(path)
        return load_file(path)
    except SafetensorError as error:
        raise UserError(f"{path}: not a whole safetensors file: {error}") from error
