"""A search that cannot fit is refused before any of its memory is taken."""

import pytest
import torch

from regard.generate import search_memory
from regard.generate.search_memory import refuse_search
from regard.settings.errors import Failure
from regard.settings.schema import Recurrence, Search, Tower

TOWER = Tower(width=64, heads=4, depth=2)
CPU = torch.device("cpu")


def refuse(how: Search, tower: Tower = TOWER, *, rows: int, tokens: int = 10, longest: int = 32) -> None:
    refuse_search(how, tower, rows=rows, tokens=tokens, longest=longest, width=torch.float32, device=CPU)


def test_a_search_is_refused_that_takes_more_than_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    each = 8 * 32 + 4 + 4 * 2 * 2 * 64 * 10  # ids, a score, and keys and values of two blocks
    monkeypatch.setattr(search_memory, "available", lambda device: 1_000 * each)
    refuse(Search(beam=1_000), rows=1_000)
    with pytest.raises(Failure, match=r"not enough memory for up to 32 tokens of 1,001 answers at once.*"
                                      r"lower one of search.beam=1001, search.best=1"):
        refuse(Search(beam=1_001), rows=1_001)
    with pytest.raises(Failure, match="not enough memory"):
        refuse(Search(), rows=1, longest=10**15)
    with pytest.raises(Failure, match="not enough memory"):
        refuse(Search(), rows=1, tokens=10**12)


def test_what_a_decoder_forgets_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_memory, "available", lambda device: 10**6)
    with pytest.raises(Failure, match="not enough memory"):
        refuse(Search(), rows=1, tokens=10**6)
    refuse(Search(), Tower(width=64, heads=4, depth=2, window=8), rows=1, tokens=10**6)
    recurrent = Tower(width=64, heads=4, depth=2, recurrent=Recurrence(cell="lstm"), positions="none")
    refuse(Search(), recurrent, rows=1, tokens=10**6)
    with pytest.raises(Failure, match="not enough memory"):  # what is kept of a head is as wide as the widest
        refuse(Search(), Tower(width=2, heads=2, depth=1, head_widths=(1, 4000)), rows=1, tokens=100)
    monkeypatch.setattr(search_memory, "available", lambda device: None)
    refuse(Search(), rows=10**9, tokens=10**6)
