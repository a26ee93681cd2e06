"""The settings of a family, as its config.json spells them: a two-way map between that file and a `Tower`.

If a config asks for something that a `Tower` cannot express, an error names the key and the value: a model that
computes something else is worse than none.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from regard.settings.consistency import check_heads, check_image, check_positions
from regard.settings.errors import UserError
from regard.settings.schema import Image, Tower
from regard.settings.setting import SECTIONS, SETTINGS, checked, of, replaced, shown

__all__ = ["Keys", "canonical"]

# Of every family: what says nothing about the numbers that come out of a model, or is about its files and tokens.
IGNORED_BY_ALL = {
    "_name_or_path", "architectures", "bos_token_id", "dtype", "eos_token_id", "finetuning_task", "id2label",
    "initializer_range", "label2id", "model_type", "output_attentions", "output_hidden_states", "pad_token_id",
    "problem_type", "return_dict", "task_specific_params", "tokenizer_class", "torch_dtype", "transformers_version",
    "unk_token_id", "use_cache",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Keys:
    """One family's keys. A setting that no key names has the value it has in `base`."""

    base: Tower
    renamed: Mapping[str, str]
    """Their key ↔ our setting, whose values are the same."""
    value_names: Mapping[str, tuple[str, Mapping[Any, Any]]]
    """Their key ↔ our setting, value by value; of several words for one value the first is written."""
    must_agree: Mapping[str, str]
    """A key of theirs that must agree with another: we have one setting for both."""
    fixed: Mapping[str, Any]
    """Keys that we have no setting for, with the only value that we support."""
    defaults: Mapping[str, Any]
    """The values of missing keys."""
    ignored: frozenset[str] = frozenset()
    """Keys that do not affect the numbers, in addition to those of every family."""

    def tower(self, config: Mapping[str, Any], *, origin: str) -> Tower:
        """The tower that a config asks for."""
        asked = {**self.defaults, **{key: value for key, value in config.items() if value is not None}}
        self._refuse_unknown(asked, origin)
        values = {ours: self._value(theirs, ours, asked[theirs], origin) for theirs, ours in self.renamed.items()}
        for theirs, (ours, words) in self.value_names.items():
            if not isinstance(asked[theirs], str | bool) or asked[theirs] not in words:
                raise _refusal(theirs, asked[theirs], origin, f"regard has {', '.join(map(shown, words))}")
            values[ours] = words[asked[theirs]]
        tower = replaced(self.base, values)
        try:
            check_heads(tower)
            check_positions(tower)
            check_image(tower)
        except UserError as error:
            raise UserError(f"{origin}: {error}") from None
        return tower

    def config(self, tower: Tower) -> dict[str, Any]:
        """The config of a tower, as far as this family can say it."""
        ours = replace(canonical(tower), dropout=tower.dropout, attention_dropout=tower.attention_dropout)
        config = {theirs: of(ours, name) for theirs, name in self.renamed.items()}
        for theirs, (name, words) in self.value_names.items():
            config[theirs] = next((word for word, value in words.items() if value == of(ours, name)), None)
        config |= {twin: config[key] for twin, key in self.must_agree.items()}
        return config | dict(self.fixed)

    def unsaid(self, tower: Tower) -> list[str]:
        """The settings of a tower that this family has no word for; none: its config leads back to the tower."""
        ours = canonical(tower)
        words = {name: values.values() for name, values in self.value_names.values()}
        said = {*self.renamed.values(), *words}
        base = canonical(replaced(self.base, {name: of(ours, name) for name in said}))
        unsaid = [*_unlike(base, ours)]
        unsaid += [name for name, values in words.items() if of(ours, name) not in values]
        if tower.width % tower.heads:  # transformers refuses it even where the width of a head is given
            unsaid.append("heads")
        return unsaid

    def _refuse_unknown(self, asked: Mapping[str, Any], origin: str) -> None:
        known = {*self.renamed, *self.value_names, *self.must_agree, *self.fixed, *self.ignored, *IGNORED_BY_ALL,
                 "vocab_size"}
        for key, value in asked.items():
            if key not in known and value not in (False, [], {}):
                raise _refusal(key, value, origin, "regard does not know it; if the numbers do not depend on it, "
                                                   "delete it there")
        for key, value in self.fixed.items():
            if asked.get(key, value) != value:
                raise _refusal(key, asked[key], origin, f"regard only supports {shown(value)}")
        for twin, key in self.must_agree.items():
            if asked.get(twin, asked[key]) != asked[key]:
                raise _refusal(twin, asked[twin], origin, f"{key} is {shown(asked[key])}, and regard has one setting "
                                                          "for both")

    def _value(self, theirs: str, ours: str, value: Any, origin: str) -> Any:
        try:
            return checked(SETTINGS[f"model.{ours}"], value)
        except UserError as error:
            reason = str(error).partition(": ")[2]
            raise UserError(f"{origin}: {theirs}={shown(value)}: {reason}") from None


def canonical(tower: Tower) -> Tower:
    """The canonical settings of a decoder: derived values are explicit, and settings without effect are removed.

    Dropout has no effect here: it acts only in training. So does the beginning of a model.
    """
    tower = tower if tower.image is None else _of_images(tower, tower.image)
    width, heads, default = tower.width, tower.heads, Tower()
    turned = tower.positions in ("sinusoidal", "rotary")
    same = len(set(widths := tower.widths_of_heads)) == 1
    return replace(
        tower, preset=None, depth=tower.decoder_depth or tower.depth, decoder_depth=None,
        kv_heads=tower.kv_heads or heads, head_width=widths[0] if same else width // heads,
        head_widths=() if same else widths,
        ffn_width=tower.ffn_width or 4 * width, tied="none" if tower.tied == "none" else "output",
        position_base=tower.position_base if turned else default.position_base, init=default.init,
        dropout=0.0, attention_dropout=0.0, ffn_dropout=0.0)


def _of_images(tower: Tower, image: Image) -> Tower:
    """The same without what acts on text, or on images that are read in another way."""
    if image.stem == "resnet":
        return Tower(width=image.width or tower.width, depth=1, heads=1, norm_epsilon=tower.norm_epsilon,
                     head=tower.head, image=replace(image, width=None, class_token=False))
    plain = Image(size=image.size)
    return replace(tower, max_positions=Tower().max_positions, embedding=replace(tower.embedding, scaled=False),
                   image=replace(image, stages=plain.stages, bottleneck=plain.bottleneck,
                                 early_stride=plain.early_stride))


def _unlike(a: Any, b: Any, prefix: str = "") -> Iterator[str]:
    """Paths of the settings that differ; for a section that one of the two lacks, the setting that makes it."""
    for field in fields(a):
        path, one, other = prefix + field.name, getattr(a, field.name), getattr(b, field.name)
        if is_dataclass(one) and is_dataclass(other):
            yield from _unlike(one, other, f"{path}.")
        elif one != other:
            section = SECTIONS.get(f"model.{path}")
            yield path if section is None else str(section.key).removeprefix("model.")


def _refusal(key: str, value: Any, origin: str, why: str) -> UserError:
    return UserError(f"{origin}: {key}={shown(value)}: {why}")
