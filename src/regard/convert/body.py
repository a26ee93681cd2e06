"""body_of: what another model takes over of a trained one, out of a run or a Hugging Face directory."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from regard.checkpoint import read_json
from regard.convert.directory import read_directory
from regard.convert.run import saved
from regard.settings.errors import UserError
from regard.settings.load import from_json
from regard.settings.schema import Tower

__all__ = ["Body", "body_of"]

KEPT = ("encoder.", "head.hidden.", "words.")


@dataclass(frozen=True)
class Body:
    """An encoder and what else of a model is not about its labels."""

    tower: Tower
    vocabulary: int
    tokens: Path
    """Where `Tokenizer.load` finds the tokenizer."""
    longest: int
    """Tokens of a text that it reads at the most."""
    weights: Mapping[str, Tensor]
    """By our names: `encoder.…`; where they are there `head.hidden.…`, BERT's "pooler", and `words.…`, by which
    blanks are filled."""


def body_of(place: Path) -> Body:
    """The body of a model that has ended its training here, or that others have published."""
    if not place.is_dir():
        raise UserError(f"{place}: no such folder; a run or a Hugging Face directory is wanted")
    if (place / "run.json").is_file():
        run = from_json(read_json(place / "run.json"))
        if not (place / "config.json").is_file():
            raise UserError(f"{place}: the run has not ended yet (it has no config.json)")
        tower, longest, tokens, weights = run.model, run.data.longest, place / "tokenizer.json", saved(place, run)[1]
    else:
        published = read_directory(place)
        tower, tokens, weights = published.tower, place, published.ours(origin=str(place))
        longest = published.longest or tower.longest
    kept = {name: tensor for name, tensor in weights.items() if name.startswith(KEPT)}
    if "encoder.tokens.table.weight" not in kept or "decoder.tokens.table.weight" in weights:
        raise UserError(f"{place}: has no encoder by itself, from which another model could start")
    return Body(tower, len(kept["encoder.tokens.table.weight"]), tokens, longest, kept)
