"""A record is what was watched, with its words, and comes back from the disk as it was."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from regard.look.axes import AxisPair, Grid, Mixed, axis_from_json
from regard.look.record import Record
from regard.settings.errors import UserError


@pytest.fixture
def record() -> Record:
    random = np.random.default_rng(0)
    weights = {"decoder.blocks.0.cross": random.dirichlet(np.ones(3), (4, 2)).astype(np.float32),
               "decoder.blocks.0.self": random.dirichlet(np.ones(2), (4, 2)).astype(np.float32)}
    labels = {"decoder.blocks.0.cross": AxisPair((" I", "</s>"), (" je", " suis", "</s>")),
              "decoder.blocks.0.self": AxisPair((" I", "</s>"), ("<s>", " I"))}
    return Record(weights, labels, dict.fromkeys(weights, (0, 1, 2, 3)))


def test_it_comes_back_as_it_was(record: Record, tmp_path: Path) -> None:
    record.save(tmp_path / "record.safetensors")
    back = Record.load(tmp_path / "record.safetensors")
    assert list(back) == list(record)
    assert all(np.array_equal(back[site], record[site]) for site in record)
    assert (back.axes, back.heads) == (record.axes, record.heads)


def test_pictures_and_mixed_axes_come_back_and_a_picture_is_written_once(tmp_path: Path) -> None:
    grid = Grid(2, 3, before=("[CLS]",), picture="data:image/png;base64," + "A" * 1000)
    mixed = Mixed((("<s>",), replace(grid, before=()), (" a", " cat")))
    weights = {f"blocks.{layer}.self": np.zeros((1, 7, 9), np.float32) for layer in range(5)}
    record = Record(weights, dict.fromkeys(weights, AxisPair(grid, mixed)), dict.fromkeys(weights, (0,)))
    record.save(tmp_path / "record.safetensors")
    assert Record.load(tmp_path / "record.safetensors").axes == record.axes
    assert (tmp_path / "record.safetensors").read_bytes().count(b"A" * 1000) == 2  # with a class token, and without


def test_a_picture_from_elsewhere_is_refused() -> None:
    with pytest.raises(ValueError, match="data URL"):
        axis_from_json({"grid": [1, 2], "before": [], "picture": "https://example.org/spy.png"})


def test_the_mean_is_over_heads(record: Record) -> None:
    mean = record.mean()
    for site in record:
        assert np.allclose(mean[site], record[site].mean(0)[None])
        assert mean.heads[site] == (-1,)


def test_an_unknown_site_is_refused_with_those_there_are(record: Record) -> None:
    with pytest.raises(KeyError, match=r"decoder\.blocks\.0\.cross"):
        record["decoder.blocks.7.cross"]


def test_a_file_that_is_no_record_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes(b"nonsense")
    with pytest.raises(UserError, match=r"x\.safetensors: not a saved record"):
        Record.load(tmp_path / "x.safetensors")
    with pytest.raises(UserError, match=r"y\.safetensors"):
        Record.load(tmp_path / "y.safetensors")


def test_a_notebook_shows_its_words_and_runs_none_of_them(record: Record) -> None:
    site = "decoder.blocks.0.cross"
    hostile = Record({site: record[site]}, {site: AxisPair(("<img onerror=alert(1)>", "b"), ("<script>", "x", "y"))},
                     {site: (0, 1, 2, 3)})
    page = hostile._repr_html_()
    assert "&lt;script&gt;" in page
    assert "<script>" not in page
    assert "<img" not in page


def test_records_beside_each_other_keep_their_sites_under_their_names(record: Record) -> None:
    both = Record.beside({"soft": record, "hard": record.mean()})
    assert list(both) == [f"{name}.{site}" for name in ("soft", "hard") for site in record]
    for site in record:
        assert np.array_equal(both[f"soft.{site}"], record[site])
        assert both.heads[f"hard.{site}"] == (-1,)
        assert both.axes[f"hard.{site}"] == record.axes[site]
