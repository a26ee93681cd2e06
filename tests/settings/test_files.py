"""What is wrong with a file of settings is said with its place."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from regard.settings.errors import UserError
from regard.settings.files import parsed
from regard.settings.load import load, sections_of, task_of
from regard.tasks.traits import defaults

RECIPES = Path(__file__).parents[2] / "recipes"


def message(path: Path) -> str:
    with pytest.raises(UserError) as error:
        parsed(path)
    return str(error.value)


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    return tmp_path / "recipe.toml"


@pytest.mark.parametrize(("content", "said"), [
    ("seed = 1\nmodel width", "line 2, column 7: Expected '='"),
    ("seed = 1\nseed = 2", "line 2, column 9: Cannot overwrite a value"),
    ("seed = 1\n[model", "line 2, column 7: "),
    ("data.paths = " + "[" * 5_000, "is nested too deeply"),
    ("#" + "x" * (1 << 20), "is larger than 1,048,576 bytes; is it a recipe?"),
])
def test_broken_toml_is_refused_with_its_place(content: str, said: str, recipe: Path) -> None:
    recipe.write_text(content)
    assert message(recipe).startswith(f"{recipe}: {said}")


def test_a_recipe_that_cannot_be_read_is_refused_with_the_reason(recipe: Path) -> None:
    assert message(recipe) == f"{recipe}: no such file"
    assert message(recipe.parent).startswith(f"{recipe.parent}: is a directory")
    recipe.write_text("")
    assert message(recipe / "x").startswith(f"{recipe / 'x'}: cannot be read: Not a directory")
    recipe.write_bytes("task = 'é'".encode("latin-1"))
    assert message(recipe) == f"{recipe}: is not UTF-8: byte 0xe9 at offset 8"
    recipe.write_bytes("seed = 1".encode("utf-16"))
    assert message(recipe) == f"{recipe}: is not UTF-8: byte 0xff at offset 0"


@contextmanager
def as_nobody() -> Iterator[None]:
    """Root may read everything, so for a while we are not root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs Unix permissions")
def test_a_recipe_without_permission_is_refused(recipe: Path) -> None:
    recipe.write_text("")
    recipe.chmod(0)
    with as_nobody():
        assert message(recipe) == f"{recipe}: no permission to read it"


def test_a_recipe_may_have_a_byte_order_mark_and_crlf(recipe: Path) -> None:
    recipe.write_bytes("\ufeff[model]\r\nwidth = 64\r\n".encode())
    assert load(recipe).model.width == 64


@pytest.mark.parametrize("recipe", sorted(RECIPES.glob("*.toml")), ids=lambda file: file.stem)
def test_every_recipe_of_ours_is_a_run(recipe: Path) -> None:
    task = task_of(recipe)
    base = defaults(task, built_in=False, sections=sections_of(recipe))
    assert load(recipe, base=base).task == task
