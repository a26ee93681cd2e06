"""Fine-tuning: the settings of a run that starts from a trained model (`regard train --from`)."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from regard.settings.backbone import refuse_other_inputs
from regard.settings.errors import UserError
from regard.settings.schema import Run, Tower
from regard.settings.setting import SECTIONS, of
from regard.tasks.traits import Known, for_task, traits_of

if TYPE_CHECKING:
    from regard.convert.backbone import Backbone

__all__ = ["begun"]


def begun(task: str, known: Known, source: Path, *, tune: str | None) -> Run:
    """The default settings of a run of this task that starts from this model."""
    traits = traits_of(task)
    reads = traits.encoder_only
    if not reads and not traits.decoder_only:
        raise UserError(f"--from {source}: a model of {task} cannot start from another model; remove --from. "
                        "Language models and the tasks of an encoder can")
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
    if known.built_in:  # no data has told what it reads
        known = replace(known, sections=known.sections | sections_in(model))
    plain = traits.defaults(known)
    refuse_other_inputs(plain.model, model, source)
    if backbone.task != task and not (theirs.pools and traits.pools):
        # How this task reads a state was not learned there.
        usual = plain if model.preset is None else for_task(None, [f"model.preset={model.preset}"], base=plain)
        model = replace(model, head=usual.model.head)
    return tuned(plain, backbone, model, start=str(source), tune=tune or plain.train.trainable,
                 has_new_layer=reads and writes)


def tuned(plain: Run, backbone: "Backbone", model: Tower, *, start: str, tune: str, has_new_layer: bool) -> Run:
    """A run of the plain one's task that goes on from the backbone with these settings.

    Some epochs of a few thousand examples, about forty at a time. New layers learn fast; pretrained ones should not
    forget (Devlin et al. 2019, A.3; Hu et al. 2022, D), and the less so the larger it is (Clark et al.
    2020, B). A layer of the task's own between body and head learns as from the beginning: then the lower one stands,
    the slower it learns (Howard and Ruder 2018, 3.2).
    """
    rate = 5e-5 * 768 / model.width if tune == "all" and not has_new_layer else 1e-3  # BERT's, at its width
    train = replace(plain.train, init_from=start, steps=1_000, learning_rate=rate,
                    batch_tokens=traits_of(plain.task).tuning_batch(model), schedule="stable-decay", decay=0.9,
                    warmup=100, weight_decay=0.01, beta2=0.999, epsilon=1e-8,
                    layer_decay=0.5 if has_new_layer else 1.0, evaluate_every=None, patience=None)
    data = replace(plain.data, max_tokens=min(plain.data.max_tokens, backbone.longest))
    tokens = replace(plain.tokens, file=None if backbone.tokens is None else str(backbone.tokens))
    return replace(plain, model=model, train=train, data=data, tokens=tokens)


def sections_in(model: Tower) -> set[str]:
    """The optional sections that a model has."""
    return {path for path, section in SECTIONS.items() if section.key is not None
            and path.startswith("model.") and of(model, path.removeprefix("model.")) is not None}
