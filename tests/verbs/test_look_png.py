"""`regard look` writes the maps over an image, and its filters, as pictures; and refuses what cannot be drawn."""

import json
from pathlib import Path

import pytest
from PIL import Image

from colours import Images, Texts
from regard.settings.errors import UserError
from regard.training.loop import train
from regard.verbs.look_png import filters, maps
from typed import regard_says

KIND = Images()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("image")
    data = KIND.write(folder, [["red"], ["blue"]] * 6)
    train(KIND.run(data, "train.steps=2", "model.depth=2"), folder / "run", quiet=True)
    return folder / "run"


def test_the_maps_over_an_image_are_one_picture(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photo = KIND.made(tmp_path, "red")
    file = tmp_path / "maps.png"
    maps(str(photo), run, None, "*", file, "cpu", False)
    assert capsys.readouterr().out == f"{file}\n"
    with Image.open(file) as picture:
        assert picture.width >= 160
    maps(str(photo), run, None, "*.0.self", file, "cpu", True, head=1)
    told = json.loads(capsys.readouterr().out)
    assert told == {"picture": str(file), "input": str(photo), "site": "encoder.blocks.0.self", "words": ["[CLS]"]}


def test_the_filters_of_a_model_need_no_image(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "f.png"
    filters(run, file, "cpu", True)
    told = json.loads(capsys.readouterr().out)
    assert told["picture"] == str(file)
    assert len(told["shares"]) == 28
    assert 0 < sum(told["shares"]) <= 1 + 1e-9
    with Image.open(file) as picture:
        assert picture.size == (7 * 70 + 6, 4 * 70 + 6)


@pytest.mark.parametrize(("out", "message"), [
    ("x.html", "a picture is a PNG; name it"), ("no/x.png", "no such folder"), (".", "a folder, not a file")])
def test_a_picture_has_its_ending(run: Path, tmp_path: Path, out: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        filters(run, tmp_path / out, "cpu", False)


def test_a_model_of_texts_has_neither(tmp_path: Path) -> None:
    kind = Texts()
    train(kind.run(kind.write(tmp_path, [["red"], ["blue"]] * 6), "train.steps=1"), tmp_path / "run", quiet=True)
    with pytest.raises(UserError, match="reads no images"):
        filters(tmp_path / "run", tmp_path / "x.png", "cpu", False)
    with pytest.raises(UserError, match="looks at no picture"):
        maps("red things", tmp_path / "run", None, "*", tmp_path / "x.png", "cpu", False)
    assert not (tmp_path / "x.png").exists()


def test_the_command_line_chooses_by_option_and_ending(run: Path, tmp_path: Path) -> None:
    code, out, _ = regard_says("look", "--filters", "--run", run, "--out", tmp_path / "f.png")
    assert (code, out) == (0, f"{tmp_path / 'f.png'}\n")
    photo = KIND.made(tmp_path, "blue")
    code, out, _ = regard_says("look", photo, "--run", run, "--out", tmp_path / "m.png")
    assert (code, out) == (0, f"{tmp_path / 'm.png'}\n")
    code, _, said = regard_says("look", "--run", run)
    assert (code, said.startswith("regard: give an INPUT")) == (2, True)
    code, _, said = regard_says("look", "--filters", "--terminal", "--run", run)
    assert (code, said.startswith("regard: --terminal: has no effect")) == (2, True)
