"""A setting that is not there is answered with the one that was meant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.settings.near import nearest, unknown
from regard.settings.setting import SETTINGS


@pytest.mark.parametrize(("path", "said"), [
    ("model.widht", "model.widht: no such setting; did you mean model.width?"),
    ("width", "width: no such setting; did you mean model.width?"),
    ("train.width", "train.width: no such setting; did you mean model.width?"),
    ("modle.width", "modle.width: no such setting; did you mean model.width?"),
    ("max_token", "max_token: no such setting; did you mean data.max_tokens or search.max_tokens?"),
    ("model.max_position_embeddings",
     "model.max_position_embeddings: no such setting; did you mean model.max_positions?"),
    ("train.rate", "train.rate: no such setting; did you mean train.learning_rate or train.muon_learning_rate?"),
    ("train.keep", "train.keep: no such setting; did you mean train.keep_checkpoints?"),
    ("train.clip_grad", "train.clip_grad: no such setting; did you mean train.grad_clip?"),
    ("train.learing_rate", "train.learing_rate: no such setting; did you mean train.learning_rate?"),
    ("recurrent.cell", "recurrent.cell: no such setting; did you mean model.recurrent.cell?"),
    ("embedding.width", "embedding.width: no such setting; did you mean model.embedding.width?"),
    ("model.pool", "model.pool: no such setting; did you mean model.head.pool?"),
    ("model.embeding.width", "model.embeding.width: no such setting; did you mean model.embedding.width?"),
    ("sed", "sed: no such setting; did you mean seed?"),
    ("search.xyz", "search.xyz: no such setting; search has beam, best, length_penalty, max_tokens, "),
    ("xyz", "xyz: no such setting; there are task, seed, device and the sections "
            "data, tokens, model, train, masking, search"),
    ("search", "search: is a section, not a setting; it has beam, best, length_penalty, max_tokens, "),
    ("a\nb", "a\\nb: no such setting"),
])
def test_an_unknown_setting_is_answered_with_the_near_one(path: str, said: str) -> None:
    assert str(unknown(path)).startswith(said)


@given(st.sampled_from(sorted(SETTINGS)))
def test_a_setting_is_nearest_to_itself(path: str) -> None:
    assert path in nearest(path)
