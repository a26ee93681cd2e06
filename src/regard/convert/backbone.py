"""backbone_of: what another model takes over of a trained one, out of a run or a Hugging Face directory."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from regard import manifest
from regard.checkpoint import read_json
from regard.convert.directory import read_directory
from regard.convert.import_export import read_run_model
from regard.models.parts import patch_grid
from regard.nn.grid import interpolated
from regard.settings.errors import UserError
from regard.settings.load import from_json
from regard.settings.schema import Tower

__all__ = ["Backbone", "backbone_of"]

TABLE = "encoder.inputs.positions.table"


@dataclass(frozen=True)
class Backbone:
    """A model to start from."""

    task: str
    """The task of a run of it."""
    tower: Tower
    tokens: Path | None
    """Where `Tokenizer.load` finds the tokenizer, if the model reads text."""
    longest: int
    """The most tokens of a text that it reads."""
    weights: Mapping[str, Tensor]
    """By our names: `encoder.…`; if present, `head.hidden.…`, BERT's "pooler", and `words.…`, the output layer for
    blanks; and the head, which the next model does not use."""

    def weights_for(self, tower: Tower) -> Mapping[str, Tensor]:
        """The weights; learned positions of an image are interpolated if the tower's images have another size."""
        old, new, table = self.tower.image, tower.image, self.weights.get(TABLE)
        if old is None or new is None or table is None or tower.positions != "learned":
            return self.weights
        return {**self.weights, TABLE: interpolated(table.float(), patch_grid(old), patch_grid(new)).to(table.dtype)}


def backbone_of(place: Path) -> Backbone:
    """The model of a run that has ended, or that others have published."""
    if not place.is_dir():
        raise UserError(f"{place}: no such folder; give a run or a Hugging Face directory")
    if not (place / "run.json").is_file():
        published = read_directory(place)
        longest = published.longest or published.tower.max_positions
        tokens = None if published.tokens is None else place
        return Backbone(published.spec.task, published.tower, tokens, longest, published.ours(origin=str(place)))
    manifest.check(place, *manifest.ANSWERING)
    run = from_json(read_json(place / "run.json"))
    if not (place / "config.json").is_file():
        raise UserError(f"{place}: the run has not ended yet (it has no config.json); start the same `regard train` "
                        "again to go on with it")
    tokens = place / "tokenizer.json" if (place / "tokenizer.json").is_file() else None
    return Backbone(run.task, run.model, tokens, run.data.max_tokens, read_run_model(place, run)[1])
