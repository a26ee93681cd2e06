"""The settings of a trained model that a run starts from, and cannot change."""

from dataclasses import replace
from pathlib import Path

from regard.settings.errors import UserError
from regard.settings.schema import Tower
from regard.settings.setting import of, written

__all__ = ["refuse_another_shape", "refuse_other_inputs"]

# Settings that determine the weights of a backbone, or their meaning.
SHAPE = ("recurrent.cell", "recurrent.direction", "width", "depth", "heads", "kv_heads", "head_widths", "head_width",
         "ffn_width", "activation", "norm", "norm_place", "bias", "score", "positions", "position_width", "qk_norm",
         "global_projections", "embedding.width", "embedding.norm", "embedding.scaled", "embedding.segments", "tied")
OF_IMAGES = ("image.grey", "image.stem", "image.patch", "image.class_token", "image.stages", "image.bottleneck",
             "image.early_stride", "image.width")


def refuse_another_shape(model: Tower, backbone: Tower, source: Path) -> None:
    """A trained backbone fits no other shape. Only its depth may be less: the lower blocks are taken."""
    model, backbone = _derived(model), _derived(backbone)
    longest = ("max_positions",) if backbone.image is None and backbone.positions in ("learned", "fourier") else ()
    images = () if backbone.image is None or model.image is None else OF_IMAGES
    names = (*SHAPE, *longest, *images)
    if model.image is not None and backbone.image is not None and backbone.image.stem == "resnet":
        names, backbone = ("norm_epsilon", *OF_IMAGES), _cut(backbone, len(model.image.stages))
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


def refuse_other_inputs(usual: Tower, backbone: Tower, source: Path) -> None:
    """Refuse a backbone that reads text for a run that reads images, or the other way round."""
    if (usual.image is None) != (backbone.image is None):
        reads, data = ("text", "images") if backbone.image is None else ("images", "text")
        raise UserError(f"--from {source}: its model reads {reads}, and the data is {data}; start from another model, "
                        "or without --from")


def _cut(backbone: Tower, stages: int) -> Tower:
    """A resnet with its first stages only: each that is left out leaves a finer grid, half as wide."""
    image = backbone.image
    assert image is not None
    assert image.width is not None
    left_out = max(0, len(image.stages) - stages)
    return replace(backbone, image=replace(image, stages=image.stages[:stages], width=image.width >> left_out))


def _derived(tower: Tower) -> Tower:
    """The tower with derived values made explicit, so that equal shapes compare as equal."""
    same, image = len(set(widths := tower.widths_of_heads)) == 1, tower.image
    if image is not None and image.stem == "resnet":
        tower = replace(tower, image=replace(image, width=image.width or tower.width))
    return replace(tower, kv_heads=tower.kv_heads or tower.heads, head_width=widths[0] if same else None,
                   head_widths=() if same else widths, ffn_width=tower.ffn_width or 4 * tower.width)
