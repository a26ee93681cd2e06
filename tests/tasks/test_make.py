"""What no task, and no model of a task, is made of."""

import pytest

from regard.nn.score import SCORES
from regard.settings.errors import UserError
from regard.settings.load import load
from regard.tasks import make


def test_an_unknown_score_is_refused_with_the_one_that_was_meant_or_all_there_are() -> None:
    with pytest.raises(UserError) as caught:
        make(load(None, ["model.score=foo"]))
    assert str(caught.value) == f"model.score=foo: no such score; there are {', '.join(SCORES)}"
    with pytest.raises(UserError, match=r"^model\.score=bilinaer: no such score; did you mean bilinear\?$"):
        make(load(None, ["model.score=bilinaer"]))


def test_an_unknown_task_is_refused_with_those_that_are_trained() -> None:
    with pytest.raises(UserError, match=r"^xyz: no such task; there are translate, language, classify, tag, mask, de"):
        make(load(None, ["task=xyz"]))
