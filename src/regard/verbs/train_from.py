"""`regard train --from`: the settings of a run that starts from a model."""

from dataclasses import replace
from pathlib import Path

from regard.settings.errors import UserError
from regard.settings.presets import shaped
from regard.settings.schema import Run, Tower
from regard.settings.setting import of, written
from regard.tasks.traits import traits_of

__all__ = ["begun", "refuse_another_shape"]

# Settings that determine the weights of a backbone, or their meaning.
SHAPE = ("recurrent.cell", "recurrent.direction", "width", "depth", "heads", "kv_heads", "head_widths", "head_width",
         "ffn_width", "activation", "norm", "norm_place", "bias", "score", "positions", "position_width", "qk_norm",
         "global_projections", "embedding.width", "embedding.norm", "embedding.scaled", "embedding.segments", "tied")


def begun(plain: Run, source: Path, *, tune: str) -> Run:
    """The default settings of a run of the plain one's task that starts from this model."""
    task, traits = plain.task, traits_of(plain.task)
    reads = traits.encoder_only
    if not reads and not traits.decoder_only:
        raise UserError(f"--from {source}: {task} only learns from the beginning; language models and the tasks of an "
                        "encoder can start from others")
    if tune == "head" and not reads:
        raise UserError(f"--tune head: a model of {task} has no separate head; take all or lora")
    if not source.is_dir():
        raise UserError(f"--from {source}: no such folder")

    from regard.convert.backbone import backbone_of
    from regard.models.build import reads_what_it_writes

    backbone = backbone_of(source)
    theirs = traits_of(backbone.task)
    writes = theirs.decoder_only
    serves = theirs.encoder_only or (writes and reads_what_it_writes(backbone.tower)) if reads else writes
    if not serves:
        raise UserError(f"--from {source}: its model is of the task {backbone.task}, and {task} needs "
                        f"{'an encoder' if reads else 'a language model'}")
    model = backbone.tower
    if backbone.task != task and not (theirs.pools and traits.pools):
        # How this task reads a state was not learned there.
        usual = plain.model if model.preset is None else shaped(model.preset, task)
        model = replace(model, head=usual.head)
    return tuned(plain, model, start=str(source), tokens=str(backbone.tokens), longest=backbone.longest, tune=tune,
                 has_new_layer=reads and writes)


def refuse_another_shape(model: Tower, backbone: Tower, source: Path) -> None:
    """A trained backbone fits no other shape. Only its depth may be less: the lower blocks are taken."""
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
    """The tower with derived values made explicit, so that equal shapes compare as equal."""
    same = len(set(widths := tower.widths_of_heads)) == 1
    return replace(tower, kv_heads=tower.kv_heads or tower.heads, head_width=widths[0] if same else None,
                   head_widths=() if same else widths, ffn_width=tower.ffn_width or 4 * tower.width)


def tuned(plain: Run, model: Tower, *, start: str, tokens: str, longest: int, tune: str,
          has_new_layer: bool = False) -> Run:
    """A run of the plain one's task that goes on from a model with these settings, tokens and longest texts.

    Some epochs of a few thousand sentences, about forty at a time. New layers learn fast; pretrained ones should not
    forget (Devlin et al. 2019, A.3; Hu et al. 2022, D), and the less so the larger it is (Clark et al.
    2020, B). A layer of the task's own between body and head learns as from the beginning: then the lower one stands,
    the slower it learns (Howard and Ruder 2018, 3.2).
    """
    rate = 5e-5 * 768 / model.width if tune == "all" and not has_new_layer else 1e-3  # BERT's, at its width
    train = replace(plain.train, init_from=start, steps=1_000, batch_tokens=1_024, learning_rate=rate,
                    schedule="stable-decay", decay=0.9, warmup=100, weight_decay=0.01, beta2=0.999, epsilon=1e-8,
                    layer_decay=0.5 if has_new_layer else 1.0, evaluate_every=None, patience=None)
    data = replace(plain.data, max_tokens=min(plain.data.max_tokens, longest))
    return replace(plain, model=model, train=train, data=data, tokens=replace(plain.tokens, file=tokens))
