"""`regard train --from`: the settings of a run that goes on from a model."""

from dataclasses import replace
from pathlib import Path

from regard.settings.errors import UserError
from regard.settings.presets import PRESETS, tuned
from regard.settings.schema import Run, Tower
from regard.settings.setting import of, written

__all__ = ["begun", "refuse_another_shape"]

READERS = {"classify", "tag", "mask", "detect", "encode"}  # tasks of an encoder alone
SUMMED_UP = {"classify", "encode"}  # tasks that make one vector of a text, as the next one may do
# What decides the weights of a body, or how they are read.
SHAPE = ("recurrent.cell", "recurrent.direction", "width", "depth", "heads", "kv_heads", "head_width", "ffn_width",
         "activation", "norm", "norm_place", "bias", "score", "positions", "position_width", "qk_norm",
         "global_projections", "embedding.width", "embedding.norm", "embedding.scaled", "embedding.segments", "tied")


def begun(plain: Run, source: Path, *, tune: str) -> Run:
    """What a run of the plain one's task has where nobody says anything, given the model that it goes on from."""
    task, reads = plain.task, plain.task in READERS
    if not reads and task != "language":
        raise UserError(f"--from {source}: {task} learns from the beginning alone; language and the tasks of an "
                        "encoder go on from others")
    if tune == "head" and not reads:
        raise UserError(f"--tune head: a model of {task} has no head besides its body; take all or lora")
    if not source.is_dir():
        raise UserError(f"--from {source}: no such folder")

    from regard.convert.backbone import backbone_of
    from regard.models.build import reads_what_it_writes

    backbone = backbone_of(source)
    writes = backbone.task == "language"
    serves = backbone.task in READERS or (writes and reads_what_it_writes(backbone.tower)) if reads else writes
    if not serves:
        raise UserError(f"--from {source}: its model is of the task {backbone.task}, and {task} needs "
                        f"{'an encoder' if reads else 'a language model'}")
    model = backbone.tower
    if backbone.task not in SUMMED_UP:  # how a text becomes one vector was not learned there
        usual = plain.model if model.preset is None else PRESETS[model.preset]()
        model = replace(model, head=usual.head)
    return tuned(plain, model, start=str(source), tokens=str(backbone.tokens), longest=backbone.longest, tune=tune,
                 has_new_layer=reads and writes)


def refuse_another_shape(model: Tower, backbone: Tower, source: Path) -> None:
    """What a body has learned fits no other shape. Only its depth may be less: the lower blocks are taken."""
    model, backbone = _derived(model), _derived(backbone)
    names = (*SHAPE, "max_positions") if backbone.positions in ("learned", "fourier") else SHAPE
    for name in names:
        wanted, has = of(model, name), of(backbone, name)
        if wanted != has and not (name == "depth" and wanted < has):
            anew = "or train from the beginning, without --from"
            if model.preset != backbone.preset:  # which says more than the first setting that differs by it
                asked = f"model.preset={written(model.preset)}: has model.{name}={written(wanted)}"
                made = "without a preset" if backbone.preset is None else f"from model.preset={backbone.preset}"
                raise UserError(f"{asked}, and the model in {source}, made {made}, has {written(has)}; leave "
                                f"model.preset out to take that model as it is, {anew}")
            fits = "no more" if name == "depth" else "no other"
            raise UserError(f"model.{name}={written(wanted)}: the model in {source} has {written(has)}, and its "
                            f"weights fit {fits}; leave model.{name} out, {anew}")


def _derived(tower: Tower) -> Tower:
    """With what is derived said: the same by another way is no other shape."""
    return replace(tower, kv_heads=tower.kv_heads or tower.heads, head_width=tower.head_width or
                   tower.width // tower.heads, ffn_width=tower.ffn_width or 4 * tower.width)
