"""sentence-transformers' files beside a model: how one vector is made of a text's states."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from regard.checkpoint import read_json, read_list, write_json
from regard.convert.model_spec import ModelSpec
from regard.settings.errors import UserError
from regard.settings.opening import own_folder
from regard.settings.schema import Tower
from regard.settings.setting import shown

__all__ = ["read", "write"]

Pool = Literal["first", "mean"]
POOLS: dict[str, Pool] = {"pooling_mode_cls_token": "first", "pooling_mode_mean_tokens": "mean"}
WORDS: dict[str, Pool] = {"cls": "first", "mean": "mean"}  # as newer versions say it


def read(folder: Path, spec: ModelSpec) -> tuple[ModelSpec, int | None]:
    """The shape with the settings of sentence-transformers' files, and the most tokens of a text, if they exist."""
    if not (folder / "modules.json").is_file():
        return spec, None
    pool, normalize = spec.tower.head.pool, False
    for number, module in enumerate(read_list(folder / "modules.json")):
        kind = str(module.get("type") if isinstance(module, dict) else module).rpartition(".")[2]
        if kind == "Pooling":
            pool = _pool(folder / Path(str(module.get("path"))).name / "config.json")
        elif kind not in ("Transformer", "Normalize") or (kind == "Transformer") != (number == 0):
            raise UserError(f"{folder / 'modules.json'}: {shown(kind)} as part {number}: regard has Transformer, "
                            "Pooling and Normalize, in this order")
        normalize = normalize or kind == "Normalize"
    _refuse_changes(folder)
    longest = _said(folder / "sentence_bert_config.json").get("max_seq_length")
    good = isinstance(longest, int) and 2 <= longest <= spec.tower.max_positions
    head = replace(spec.tower.head, pool=pool, normalize=normalize)
    return replace(spec, tower=replace(spec.tower, head=head)), longest if good else None


def _refuse_changes(folder: Path) -> None:
    """Refuse changes to a text before tokenization: the vectors depend on them."""
    place = folder / "sentence_bert_config.json"
    if _said(place).get("do_lower_case") is True:
        raise UserError(f"{place}: do_lower_case=true: regard leaves that to the tokenizer; if it does so, say false")
    place = folder / "config_sentence_transformers.json"
    if prompt := _said(place).get("default_prompt_name"):
        raise UserError(f"{place}: default_prompt_name={shown(prompt)}: regard has no prompts")


def _said(place: Path) -> dict[str, Any]:
    return read_json(place) if place.is_file() else {}


def _pool(place: Path) -> Pool:
    config = read_json(place)
    if config.get("include_prompt") is False:
        raise UserError(f"{place}: include_prompt=false: regard has no prompts")
    said = [pool for key, pool in POOLS.items() if config.get(key) is True]
    said += [WORDS[word] for word in [config.get("pooling_mode")] if isinstance(word, str) and word in WORDS]
    others = [key for key, value in config.items() if key.startswith("pooling_mode_") and value is True]
    if len(said) != 1 or len(others) > 1:
        raise UserError(f"{place}: regard only pools by the first token or by the mean of all")
    return said[0]


def write(folder: Path, tower: Tower, *, longest: int) -> None:
    modules = [_module(0, "", "Transformer"), _module(1, "1_Pooling", "Pooling")]
    modules += [_module(2, "2_Normalize", "Normalize")] if tower.head.normalize else []
    own_folder(folder / "1_Pooling")
    write_json(folder / "modules.json", modules)
    write_json(folder / "1_Pooling" / "config.json",
               {"word_embedding_dimension": tower.width,
                **{key: pool == tower.head.pool for key, pool in POOLS.items()}})
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": longest, "do_lower_case": False})


def _module(number: int, path: str, kind: str) -> dict[str, Any]:
    return {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
