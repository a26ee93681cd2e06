"""What is left of the data when it is prepared again and that fails."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from killing import Killed
from regard.settings.load import load
from regard.tasks import make
from regard.tasks.classify import Classify
from regard.tasks.classify.texts import Texts


def task_of(folder: Path) -> Classify:
    (folder / "colours.tsv").write_text(
        "".join(f"a {colour} thing {i}\t{colour}\n" for i in range(20) for colour in ("red", "blue")))
    task = make(load(None, ["task=classify", f"data.paths={folder / 'colours.tsv'}", "tokens.vocabulary=300"]))
    assert isinstance(task, Classify)
    return task


@contextmanager
def failing_to_move_in(error: BaseException) -> Iterator[None]:
    """New data cannot be renamed to its place."""
    def but(rename: object) -> object:
        def call(source: str | Path, target: str | Path) -> None:
            if Path(source).name == "data" and Path(target).name == "data":
                raise error
            assert callable(rename)
            rename(source, target)
        return call

    with patch("os.rename", but(os.rename)), patch("os.replace", but(os.replace)):
        yield


@pytest.mark.parametrize("error", [OSError("full"), Killed()])
def test_older_data_is_found_again_when_new_data_could_not_take_its_place(error: BaseException, tmp_path: Path) -> None:
    run = tmp_path / "run"
    task_of(tmp_path).data.prepare(run)
    before = {path.name: path.read_bytes() for path in (run / "data").iterdir()}
    with (patch.object(Texts, "fingerprint", return_value="of other data"), failing_to_move_in(error),
          pytest.raises(type(error))):
        task_of(tmp_path).data.prepare(run)
    assert (run / "data").exists() == isinstance(error, OSError)  # put back at once if that can be
    (run / "run.json").touch()
    with patch.object(Texts, "make_data", side_effect=AssertionError("prepared again")):
        task_of(tmp_path).data.prepare(run)
    assert {path.name: path.read_bytes() for path in (run / "data").iterdir()} == before


def test_nothing_is_left_beside_the_data_when_it_is_prepared_again(tmp_path: Path) -> None:
    run = tmp_path / "run"
    task_of(tmp_path).data.prepare(run)
    (run / ".data.old").mkdir()
    with patch.object(Texts, "fingerprint", return_value="of other data"):
        task_of(tmp_path).data.prepare(run)
    assert not [path for path in run.iterdir() if path.name.startswith(".data")]
