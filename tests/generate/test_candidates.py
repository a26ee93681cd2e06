"""The best continuations of a beam, whether they are looked for column by column or all at once."""

import pytest
import torch

from regard.generate import beam
from regard.generate.beam import COLUMN, Beam, Search
from regard.models.decoder import Decoder
from regard.settings.schema import Tower


@pytest.mark.parametrize("vocabulary", [7, COLUMN * 5, COLUMN * 6, COLUMN * 40, COLUMN * 40 + 1])
def test_they_are_the_largest_sums_of_all(vocabulary: int) -> None:
    sources, size = 4, 3
    model = Decoder(Tower(width=8, depth=1, heads=1), vocabulary=vocabulary).eval()
    search = Search(model, torch.ones(sources, 1, dtype=torch.long), Beam(end=0, longest=4, size=size), None, ())
    search.totals = torch.randn(sources, size)
    logits = torch.randn(sources * size, vocabulary)
    logits[0, 5:] = -torch.inf
    totals, parents, tokens = search.candidates(logits, search.totals)
    every = logits.log_softmax(-1).view(sources, size, -1) + search.totals[:, :, None]
    expected = every.view(sources, -1).topk(2 * size)
    torch.testing.assert_close(totals, expected.values)
    assert torch.equal(parents * vocabulary + tokens, expected.indices)


@pytest.mark.parametrize("sources", [1, 2, 5, 7])
def test_parts_are_as_good_as_the_whole(sources: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beam, "ROWS", 7)
    monkeypatch.setattr(beam, "CACHED", 4 * COLUMN * 6)
    model = Decoder(Tower(width=8, depth=1, heads=1), vocabulary=COLUMN * 6).eval()
    search = Search(model, torch.ones(sources, 1, dtype=torch.long), Beam(end=0, longest=4, size=3), None, ())
    search.totals = torch.randn(sources, 3)
    for rows in (sources, 3 * sources):  # of each sentence one, whose beams are alike, or all
        states = torch.randn(rows, 1, 8)
        whole = search.candidates(search.logits(states, search.tokens), search.totals)
        for part, all_at_once in zip(search.candidates_in_parts(states), whole, strict=True):
            torch.testing.assert_close(part, all_at_once)
