"""A family of published models: a table of names, a map of settings, and what its files may hold besides."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.convert.keys import Keys, canonical
from regard.convert.rules import Rule, Table
from regard.settings.errors import UserError
from regard.settings.schema import Tower

__all__ = ["Family"]


@dataclass(frozen=True, kw_only=True)
class Family:
    """One `model_type` of transformers."""

    name: str
    architecture: str
    keys: Keys
    rules: Callable[[Tower], list[Rule]]
    prefix: str
    """Of the names of all tensors but the output's; OpenAI's own files of GPT-2 leave it out."""
    constants: str
    """Names (a pattern) of tensors that are no weights: they follow from the config."""
    plain: Callable[[Mapping[str, Any]], dict[str, Any]] = dict
    """A config as its keys have it, where the file nests them; `spelled` nests them again."""
    spelled: Callable[[Mapping[str, Any]], dict[str, Any]] = dict

    def tower(self, config: Mapping[str, Any], *, origin: str) -> Tower:
        return self.keys.tower(self.plain(config), origin=origin)

    def config(self, tower: Tower, vocabulary: int) -> dict[str, Any]:
        """What config.json says of a model, but for its tokens."""
        about = {"architectures": [self.architecture], "model_type": self.name, "vocab_size": vocabulary}
        return about | self.spelled(self.keys.config(tower))

    def table(self, tower: Tower, vocabulary: int) -> Table:
        return Table(self.rules(canonical(tower)), tower, vocabulary)

    def weights(self, tensors: Mapping[str, Tensor], tower: Tower, *, origin: str) -> dict[str, Tensor]:
        """The tensors of a file without those that say nothing new, each by its full name."""
        short = not any(name.startswith(self.prefix) for name in tensors)
        whole = {self.prefix + name if short and not name.startswith("lm_head.") else name: tensor
                 for name, tensor in tensors.items()}
        output, tied = "lm_head.weight", tower.tied != "none"
        if tied and output in whole:
            (table,) = next(rule for rule in self.rules(tower) if rule.ours == "tokens.table.weight").theirs
            if not (table in whole and torch.equal(whole[table], whole[output])):
                raise UserError(f"{origin}: {output} is not {table}, but config.json says tie_word_embeddings=true")
            del whole[output]
        return {name: tensor for name, tensor in whole.items() if not re.fullmatch(self.constants, name)}
