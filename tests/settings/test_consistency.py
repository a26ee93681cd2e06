"""Settings that do not go together are refused in a line that names them."""

from dataclasses import replace

import pytest

from regard.settings.consistency import check_decoder
from regard.settings.errors import UserError
from regard.settings.load import load


@pytest.mark.parametrize("preset", ["sutskever", "bahdanau", "luong"])
@pytest.mark.parametrize(("changes", "said"), [
    ({"bptt": 2}, r"model\.recurrent\.bptt=2: only a language model uses this"),
    ({"context": "input", "cell": "elman"}, r"model\.recurrent\.cell=elman: attention before each step is that"),
    ({"context": "fixed", "direction": "bilm"}, r"\.direction=bilm: .* take forward, backward or bidirectional"),
])
def test_a_recurrent_translator_is_refused_what_it_cannot_have(preset: str, changes: dict[str, object],
                                                               said: str) -> None:
    run = load(overrides=[f"model.preset={preset}"])
    check_decoder(run, has_memory=True)
    assert run.model.recurrent is not None
    recurrent = replace(run.model.recurrent, **changes)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=said):
        check_decoder(replace(run, model=replace(run.model, recurrent=recurrent)), has_memory=True)


def test_layers_that_start_from_those_of_the_encoder_are_as_many() -> None:
    run = load(overrides=["model.preset=sutskever", "model.decoder_depth=1"])
    with pytest.raises(UserError, match=r"model\.decoder_depth=1: each layer starts from one of the encoder's"):
        check_decoder(run, has_memory=True)
