"""Training on images that starts from published weights, and a network with running statistics that is stopped."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from colours import Images
from regard.settings.backbone import refuse_another_shape
from regard.settings.errors import UserError
from regard.settings.presets import PRESETS
from regard.settings.schema import Tower
from regard.settings.setting import replaced
from regard.training.loop import train

KIND = Images()
CNN = ("model.image.stem=resnet", "model.image.patch=1", "model.image.stages=1,1", "model.head.pool=mean",
       "model.width=8", "train.augment.flip=true")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    colours = [(colour,) for _ in range(8) for colour in ("red", "green", "blue")]
    return KIND.write(tmp_path_factory.mktemp("data"), colours)


def test_a_network_with_running_statistics_goes_on_bit_for_bit(data: Path, tmp_path: Path) -> None:
    run = KIND.run(data, *CNN, "train.steps=4", "train.save_every=2", "train.keep_checkpoints=9")
    train(run, tmp_path / "whole", quiet=True)
    shutil.copytree(tmp_path / "whole", tmp_path / "stopped")
    for left in ("checkpoints/step-00000004", "model.safetensors", "config.json", "scores.json", "MANIFEST.json"):
        place = tmp_path / "stopped" / left
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    train(run, tmp_path / "stopped", quiet=True)
    last = "checkpoints/step-00000004/model.safetensors"
    whole, stopped = (load_file(tmp_path / name / last) for name in ("whole", "stopped"))
    assert sum(name.endswith("norm.running") for name in whole) > 4
    assert all(torch.equal(tensor, stopped[name]) for name, tensor in whole.items())


def resnet(settings: dict[str, Any]) -> Tower:
    return replaced(PRESETS["resnet-50"](), {"preset": None, **settings})


@pytest.mark.parametrize("settings", [
    {}, {"image.size": 64}, {"width": 512, "image.width": 2048},
    {"width": 512, "image.width": 1024, "image.stages": (3, 4, 6)}, {"width": 1024, "image.stages": (3, 4, 6)},
])
def test_the_first_stages_of_a_resnet_are_a_start(settings: dict[str, Any]) -> None:
    """A decoder of another width may look at them."""
    refuse_another_shape(resnet(settings), resnet({}), Path("there"))


@pytest.mark.parametrize("settings", [
    {"image.width": 1024}, {"image.stages": (3, 4, 6)}, {"image.stages": (3, 3, 6, 3)}, {"norm_epsilon": 1e-3},
    {"image.early_stride": True}, {"image.stages": (3, 4, 6, 3, 1)}])
def test_another_resnet_is_none(settings: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="and its weights fit no other"):
        refuse_another_shape(resnet(settings), resnet({}), Path("there"))
