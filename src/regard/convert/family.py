"""A family of published models: a table of names, a map of settings, and other keys that its files may have."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from regard.convert.keys import Keys
from regard.convert.model_spec import ModelSpec
from regard.convert.rules import Rule, TensorTable
from regard.settings.errors import UserError
from regard.settings.schema import Tower
from regard.settings.setting import of, replaced, shown

__all__ = ["Family", "HeadFormat"]

# Settings of images that another file than the config holds.
PREPARED = ("image.size", "image.fit", "image.resize", "image.resample", "image.mean", "image.std")
BODIES = ("backbone", "image-backbone")
# Settings that do not act on the tensors and logits of a kind of model: no config needs a word for them.
IDLE = {
    "causal-lm": ("head.hidden", "head.pool", "head.normalize"), "backbone": ("tied", "head.pool", "head.normalize"),
    "sequence-labels": ("tied", "head.normalize"), "token-labels": ("tied", "head.pool", "head.normalize"),
    "discriminator": ("tied", "head.hidden", "head.pool", "head.normalize"),
    "masked-lm": ("head.hidden", "head.pool", "head.normalize"),
    "sentences": ("head.hidden", "head.pool", "head.normalize"),
    "image-labels": ("tied", "head.normalize", *PREPARED),
    "image-backbone": ("tied", "head.hidden", "head.pool", "head.normalize", *PREPARED),
}
# transformers once called the weight of a norm gamma, and its bias beta.
LEGACY = {"gamma": "weight", "beta": "bias"}


@dataclass(frozen=True)
class HeadFormat:
    """The head of a family for one kind of model."""

    architecture: str
    """The class that transformers has for it."""
    has: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    """Settings that its code decides and no config, with the values that it may have."""
    copies: Mapping[str, str] = field(default_factory=dict)
    """Tensors that a file may hold though they are others of it."""
    written: Mapping[str, str] = field(default_factory=dict)
    """Such as a file must hold."""
    unread: str = ""
    """Names (a pattern) of tensors that a file may hold though nothing of this kind reads them."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """One `model_type` of transformers."""

    name: str
    keys: Keys
    heads: Mapping[str, HeadFormat]
    """By the kind of model."""
    rules: Callable[[ModelSpec], list[Rule]]
    prefix: str
    """The prefix of the backbone's tensor names; a file with only the backbone, like OpenAI's GPT-2, leaves it out."""
    outside: tuple[str, ...] = ("lm_head.",)
    """How the names of other tensors begin."""
    constants: str
    """Names (a pattern) of tensors that are no weights: they follow from the config."""
    from_hf_config: Callable[[Mapping[str, Any]], dict[str, Any]] = dict
    """A config as its keys have it, where the file nests or counts in another way; `to_hf_config` undoes it."""
    to_hf_config: Callable[[Mapping[str, Any]], dict[str, Any]] = dict
    lacks: Callable[[Tower], list[str]] = lambda tower: []
    """Settings that have a key, but not for this value."""
    pad: int = 0
    """The default id of padding."""
    writes: bool = True
    """Whether files of it are also written."""
    adds: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]] = lambda weights: {}
    """Constants that files must hold beside the weights."""
    preset: str | None = None
    """The preset that this family's towers get: it tells apart families with equal towers."""

    # Configs

    def kind(self, config: Mapping[str, Any], names: Collection[str], *, origin: str) -> str:
        """Which model a file holds, by the class that it names."""
        if len(self.heads) == 1 and "image-backbone" not in self.heads:
            return next(iter(self.heads))
        said = config.get("architectures") or [next(self.heads[body].architecture for body in BODIES
                                                    if body in self.heads)]
        kinds = {head.architecture: kind for kind, head in self.heads.items()}
        if not isinstance(said, list) or len(said) != 1 or not isinstance(said[0], str) or said[0] not in kinds:
            raise UserError(f"{origin}: architectures={shown(said)}: regard has {', '.join(kinds)}")
        kind = kinds[said[0]]
        # The files of BERT itself hold all that it was trained with, whatever class they name.
        more = "sentences" if kind == "masked-lm" and "sentences" in self.heads else kind
        return more if any(name.startswith("cls.seq_relationship.") for name in names) else kind

    def tower(self, config: Mapping[str, Any], kind: str = "causal-lm", *, names: Collection[str] = (),
              origin: str) -> Tower:
        """The shape that a config describes; `names` are those of the file's tensors."""
        idle, has = IDLE[kind], self.heads[kind].has
        asked = {key: value for key, value in config.items() if key != "tie_word_embeddings" or "tied" not in idle}
        try:
            plain = self.from_hf_config(asked)
        except UserError as error:
            raise UserError(f"{origin}: {error}") from None
        tower = replace(self.keys.tower(plain, origin=origin), preset=self.preset)
        for name, values in has.items():
            if name not in self._said:
                tower = replaced(tower, {name: values[0]})
            elif of(tower, name) not in values:
                raise UserError(f"{origin}: {name}={shown(of(tower, name))}: for {self.heads[kind].architecture} "
                                f"regard only supports {', '.join(map(shown, values))}")
        if kind == "backbone" and not any(re.search(r"(^|\.)pooler\.", name) for name in names):
            tower = replaced(tower, {"head.hidden": "none"})
        return tower

    def config(self, spec: ModelSpec) -> dict[str, Any]:
        """The content of config.json, without the labels and other special tokens."""
        about: dict[str, Any] = {"architectures": [self.heads[spec.kind].architecture], "model_type": self.name}
        if spec.tower.image is not None:
            return about | self.to_hf_config(self.keys.config(replace(spec.tower, decoder_depth=None)))
        about |= {"vocab_size": spec.vocabulary}
        if spec.kind == "causal-lm":
            return about | self.to_hf_config(self.keys.config(spec.tower))
        own = self.keys.config(replace(spec.tower, decoder_depth=None))
        return about | self.to_hf_config(own | {"pad_token_id": spec.pad})

    def unsaid(self, spec: ModelSpec) -> list[str]:
        """The settings that this family has no word for; none: its files hold all of such a model."""
        tower, base = spec.canonical, self.keys.base
        has = self.heads[spec.kind].has
        idle = {name: of(base, name) for name in (*IDLE[spec.kind], *has) if name not in self._said}
        unsaid = self.keys.unsaid(replaced(tower, idle)) + self.lacks(tower)
        return unsaid + [name for name, values in has.items() if of(tower, name) not in values]

    @property
    def _said(self) -> set[str]:
        """The settings that a config has a word for."""
        return {*self.keys.renamed.values(), *(name for name, _ in self.keys.value_names.values())}

    # Tensors

    def table(self, spec: ModelSpec) -> TensorTable:
        with torch.device("meta"):  # shapes without content
            model = spec.model()
        return TensorTable(self.rules(spec), model)

    def named(self, tensors: Mapping[str, Tensor], kind: str) -> dict[str, Tensor]:
        """The weights of a file, each by its full name."""
        whole = {self._whole(name, kind): tensor for name, tensor in tensors.items()}
        unread = f"{self.constants}|{self.heads[kind].unread}"
        return {name: tensor for name, tensor in whole.items() if not re.fullmatch(unread, name)}

    def weights(self, tensors: Mapping[str, Tensor], spec: ModelSpec, *, origin: str) -> dict[str, Tensor]:
        """Those of them that say something new."""
        head, known = self.heads[spec.kind], {name for rule in self.rules(spec) for name in rule.theirs}
        copies = {copy: name for copy, name in {**head.copies, **head.written}.items() if copy not in known}
        for copy, name in copies.items():
            if copy in tensors and not (name in tensors and torch.equal(tensors[copy], tensors[name])):
                raise UserError(f"{origin}: {copy} is not {name}, but with tie_word_embeddings=true they are one")
        return {name: tensor for name, tensor in tensors.items() if name not in copies}

    def _whole(self, name: str, kind: str) -> str:
        stem, _, last = name.rpartition(".")
        bare = (f"{stem}.{LEGACY[last]}" if last in LEGACY else name).removeprefix(self.prefix)
        return bare if kind in BODIES or bare.startswith(self.outside) else self.prefix + bare
