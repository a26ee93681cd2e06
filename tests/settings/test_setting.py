"""A setting takes the values of its type and its range; an error for any other names the setting and the value."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regard.settings.errors import UserError
from regard.settings.load import load
from regard.settings.schema import Image, Recurrence, Run, Tower
from regard.settings.setting import SECTIONS, SETTINGS, describe, of
from wording import says


@pytest.mark.parametrize(("override", "said"), [
    ("model.width=abc", "model.width: … whole number, got 'abc'"),
    ("model.width=", "model.width: … whole number, got ''"),
    ("model.width=none", "model.width: … whole number, got 'none'"),
    ("model.width=1e3", "model.width: … whole number, got '1e3'; write 1000"),
    ("model.width=8.0", "model.width: … whole number, got '8.0'; write 8"),
    ("model.width=8.5", "model.width: … whole number, got '8.5'"),
    ("model.width=true", "model.width: … whole number, got 'true'"),
    ("model.width=nan", "model.width: … whole number, got 'nan', which is not finite"),
    ("model.width=0", "model.width: … whole number of at least 1, got 0"),
    ("model.width=-8", "model.width: … whole number of at least 1, got -8"),
    ("model.width=99999999999999999999",
     "model.width: … whole number, got 99999999999999999999, which is too large"),
    ("model.kv_heads=abc", "model.kv_heads: … whole number or none, got 'abc'"),
    ("train.learning_rate=fast", "train.learning_rate: … number, got 'fast'"),
    ("train.learning_rate=nan", "train.learning_rate: … number, got 'nan', which is not finite"),
    ("train.learning_rate=-inf", "train.learning_rate: … number, got '-inf', which is not finite"),
    ("train.learning_rate=1e400", "train.learning_rate: … number, got '1e400', which is not finite"),
    ("train.learning_rate=0", "train.learning_rate: … number above 0, got 0.0"),
    ("train.grad_clip=-1", "train.grad_clip: … number above 0 or none, got -1.0"),
    ("train.decay=1.5", "train.decay: … number of at least 0 and at most 1, got 1.5"),
    ("model.dropout=1", "model.dropout: … number of at least 0 and below 1, got 1.0"),
    ("tokens.joint=maybe", "tokens.joint: … true or false, got 'maybe'"),
    ("tokens.joint=1", "tokens.joint: … true or false, got '1'"),
    ("model.norm=lyer", "model.norm: … one of layer, rms, got 'lyer'; did you mean layer?"),
    ("model.norm=RMS", "model.norm: … one of layer, rms, got 'RMS'; did you mean rms?"),
    ("model.norm=xyz", "model.norm: … one of layer, rms, got 'xyz'"),
    ("data.source=", "data.source: … text or none, got '', which is empty"),
    ("data.source=a\0b", "data.source: … text or none, got 'a\\x00b', which holds a NUL character"),
    ("data.source=\udc80", "data.source: … text or none, got '\\udc80', which is not valid Unicode"),
    ("data.paths=a,,b", "data.paths: … list of texts, got '', which is empty"),
])
def test_a_value_that_a_setting_cannot_have_is_refused_with_what_it_wants(override: str, said: str) -> None:
    with pytest.raises(UserError) as refused:
        load(overrides=[override])
    assert says(str(refused.value), said)


@pytest.mark.parametrize(("override", "path", "value"), [
    ("model.width=8_000", "model.width", 8000),
    (" model.width = 8000 ", "model.width", 8000),
    ("train.learning_rate=1e-4", "train.learning_rate", 1e-4),
    ("train.learning_rate=1", "train.learning_rate", 1.0),
    ("train.grad_clip=none", "train.grad_clip", None),
    ("train.patience=Null", "train.patience", None),
    ("data.source=en", "data.source", "en"),
    ("data.source=a=b", "data.source", "a=b"),
    ("data.paths=a, b", "data.paths", ("a", "b")),
    ("data.paths=", "data.paths", ()),
    ("model.positions=none", "model.positions", "none"),
    ("train.compile=on", "train.compile", "on"),
    *((f"tokens.joint={word}", "tokens.joint", True) for word in ("true", "yes", "on", "True")),
    *((f"tokens.joint={word}", "tokens.joint", False) for word in ("false", "no", "off")),
])
def test_an_override_is_read_by_the_type_of_its_setting(override: str, path: str, value: Any) -> None:
    read = of(load(overrides=[override]), path)
    assert read == value
    assert type(read) is type(value)


def test_every_setting_is_described_and_its_default_can_be_written() -> None:
    rows = {path: (kind, default, doc) for path, kind, default, doc in describe()}
    assert rows["model.depth"] [:2] == ("a whole number of at least 1", "3")
    assert rows["train.grad_clip"][:2] == ("a number above 0 or none", "1.0")
    assert rows["data.paths"][:2] == ("a list of texts", "none")
    assert rows["device"][:2] == ("one of auto, cpu, cuda, mps", "auto")
    assert all(kind and default and doc for kind, default, doc in rows.values())
    assert rows["model.recurrent"][:2] == ("a section, created by model.recurrent.cell, or none", "none")
    assert rows["model.recurrent.direction"][1] == "forward"
    assert rows["model.image"][:2] == ("a section, created by model.image.size, or none", "none")
    optional = ("model.recurrent.", "model.image.")
    said = {path: default for path, (_, default, _) in rows.items() if not path.startswith(optional)}
    assert load(overrides=[f"{path}={default}" for path, default in said.items()]) == Run()
    made = [*(f"{path}={default}" for path, (_, default, _) in rows.items()), "model.recurrent.cell=gru",
            "model.image.size=32"]
    unmade = ("model.recurrent.cell=none", "model.image.size=none")
    assert load(overrides=[one for one in made if one not in unmade]) == replace(
        Run(), model=Tower(recurrent=Recurrence(cell="gru"), image=Image(size=32)))


def test_the_schema_lets_no_setting_be_infinite() -> None:
    for path, kind, default, _ in describe():
        if kind.startswith("a number"):
            assert default == "none" or math.isfinite(float(default)), path


def test_no_setting_comes_or_goes_without_a_decision() -> None:
    """paths.txt lists them all. Recipes and saved runs name settings, so a change of the list breaks some of them."""
    assert list(SETTINGS) == (Path(__file__).parent / "paths.txt").read_text(encoding="utf-8").split()
    assert [path for path, section in SECTIONS.items() if section.optional] == ["model.recurrent", "model.image"]


@pytest.mark.parametrize(("overrides", "wrong", "way_out"), [
    (["model.image.size=30"], "model.image.patch=16", "a patch of 15, or a size of 32"),
    (["model.image.size=32", "model.image.mean=0.5, 0.4"], "model.image.mean=0.5, 0.4", "one number, or 3"),
    (["model.image.size=32", "model.image.grey=true", "model.image.std=1, 1"], "model.image.std", "one number, or 1"),
])
def test_an_image_needs_whole_patches_and_a_number_for_each_channel(
        overrides: list[str], wrong: str, way_out: str) -> None:
    with pytest.raises(UserError, match=r"model\.image") as refused:
        load(overrides=overrides)
    assert wrong in str(refused.value)
    assert way_out in str(refused.value)
