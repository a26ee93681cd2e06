"""A task's traits decide which settings of a head its runs have, and refuse the others."""

import pytest

from regard.settings.errors import UserError
from regard.tasks.traits import defaults, for_task


@pytest.mark.parametrize(("task", "part"), [
    *((task, "hidden=gelu") for task in ("mask", "translate", "language", "detect")),
    *((task, part) for task in ("translate", "language") for part in ("pool=mean", "normalize=true"))])
def test_a_part_of_a_head_is_refused_where_the_task_does_not_read_it(task: str, part: str) -> None:
    plain = defaults(task, built_in=False)
    with pytest.raises(UserError, match=rf"^model\.head\.{part}: has no effect on {task}; remove it$"):
        for_task(None, [f"model.head.{part}"], base=plain)
    for_task(None, ["model.head.hidden=none"], base=plain)
    if task == "mask":
        for_task(None, ["model.preset=bert-base"], base=plain)  # whose hidden layer is of other tasks


def test_a_task_has_the_head_that_it_is_asked_for() -> None:
    for task in ("classify", "encode", "tag"):
        plain = defaults(task, built_in=False)
        assert for_task(None, ["model.head.hidden=gelu"], base=plain).model.head.hidden == "gelu"
    for task in ("classify", "encode", "tag", "mask", "detect"):
        plain = defaults(task, built_in=False)
        assert for_task(None, ["model.head.pool=mean"], base=plain).model.head.pool == "mean"


def test_only_labels_can_be_learned_by_a_pooling() -> None:
    assert for_task(overrides=["task=classify", "model.head.pool=learned"]).model.head.pool == "learned"
    with pytest.raises(UserError, match=r"model\.head\.pool=learned: mask has no labels to learn it by"):
        for_task(overrides=["task=mask", "model.head.pool=learned"])


@pytest.mark.parametrize(("setting", "why"), [
    ("model.image.stem=resnet", "which a resnet does not have"),
    ("model.image.class_token=false", r"which model\.image\.class_token=false removes")])
def test_a_class_token_is_read_only_where_there_is_one(setting: str, why: str) -> None:
    given = ["task=classify", "model.image.size=32", "model.image.patch=4", setting]
    with pytest.raises(UserError, match=rf"^model\.head\.pool=first: reads the class token, {why}"):
        for_task(None, given)
    assert for_task(None, [*given, "model.head.pool=mean"]).model.image is not None
