"""How a published model wants its images: preprocessor_config.json ↔ model.image."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.checkpoint import read_json, write_json
from regard.settings.errors import UserError
from regard.settings.schema import Image
from regard.settings.setting import SETTINGS, checked, shown

__all__ = ["FILE", "read", "write"]

FILE = "preprocessor_config.json"
RESAMPLE = {0: "nearest", 2: "bilinear", 3: "bicubic"}  # pillow's numbers
WHITE = 255
LARGE = 384  # pixels from which a processor with a crop_pct crops nothing


def read(folder: Path, image: Image, *, sized: bool) -> Image:
    """The image settings with those of the file; without a file, the family's usual ones.

    `sized`: the model's config has told the size, and the file must say the same or nothing.
    """
    if not (folder / FILE).is_file():
        return image
    config, origin = read_json(folder / FILE), str(folder / FILE)
    if config.get("do_rescale", True) and abs(config.get("rescale_factor", 1 / WHITE) * WHITE - 1) > 1e-6:
        raise _refusal("rescale_factor", config, origin, "regard only supports 1/255")
    values: dict[str, Any] = {}
    if config.get("do_normalize", True):
        values |= {name: _numbers(config, key, origin) for name, key in (("mean", "image_mean"), ("std", "image_std"))
                   if config.get(key) is not None}
    else:
        values |= {"mean": (0.0,), "std": (1.0,)}
    if (resample := config.get("resample")) is not None:
        if resample not in RESAMPLE:
            raise _refusal("resample", config, origin, f"regard has {', '.join(map(str, RESAMPLE))}")
        values["resample"] = RESAMPLE[resample]
    fitting = _fitting(config, origin)
    size = fitting.pop("size", image.size)
    if not sized:
        values["size"] = size
    elif size != image.size and fitting.get("fit") == "crop":  # cut as much as of images of the usual size
        fitting["resize"] = round(fitting["resize"] * image.size / size)
    return replace(image, **values, **fitting)


def _fitting(config: Mapping[str, Any], origin: str) -> dict[str, Any]:
    size, crops = config.get("size"), config.get("do_center_crop", False)
    if not config.get("do_resize", True) or size is None:
        return {}
    crop = _side(config.get("crop_size", size), "crop_size", config, origin) if crops else None
    if (isinstance(size, dict) and "shortest_edge" in size) or (isinstance(size, int) and crops):
        side = size["shortest_edge"] if isinstance(size, dict) else size
        share = config.get("crop_pct")
        if share is not None:
            return ({"fit": "crop", "resize": int(side / share), "size": side} if side < LARGE
                    else {"fit": "stretch", "resize": None, "size": side})
        if crop is None:
            raise _refusal("size", config, origin, "regard reads images of one shape: set do_center_crop there")
        return {"fit": "crop", "resize": side, "size": crop}
    side = _side(size, "size", config, origin)
    if crop is not None and crop != side:
        raise _refusal("crop_size", config, origin, "regard crops only images whose shorter side was scaled")
    return {"fit": "stretch", "resize": None, "size": side}


def _side(size: Any, key: str, config: Mapping[str, Any], origin: str) -> int:
    """Of a square."""
    sides = {size} if isinstance(size, int) else set(size.values()) if isinstance(size, dict) else set()
    if len(sides) != 1 or not isinstance(side := sides.pop(), int):
        raise _refusal(key, config, origin, "regard reads images that are as wide as high")
    return side


def _numbers(config: Mapping[str, Any], key: str, origin: str) -> Any:
    setting = SETTINGS[f"model.{key.replace('_', '.')}"]
    try:
        return checked(setting, config[key])
    except UserError as error:
        raise _refusal(key, config, origin, str(error).partition(": ")[2]) from None


def write(folder: Path, image: Image) -> None:
    channels = 1 if image.grey else 3
    numbers = {f"image_{name}": list(each) * (channels if len(each) == 1 else 1)
               for name, each in (("mean", image.mean), ("std", image.std))}
    resample = next(number for number, name in RESAMPLE.items() if name == image.resample)
    square = {"height": image.size, "width": image.size}
    fitting = ({"size": square, "do_center_crop": False, "image_processor_type": "ViTImageProcessor"}
               if image.fit == "stretch" else
               {"size": {"shortest_edge": image.resize or image.size}, "do_center_crop": True, "crop_size": square,
                "image_processor_type": "CLIPImageProcessor", "do_convert_rgb": not image.grey})
    write_json(folder / FILE, {"do_resize": True, "resample": resample, "do_rescale": True,
                               "rescale_factor": 1 / WHITE, "do_normalize": True, **numbers, **fitting})


def _refusal(key: str, config: Mapping[str, Any], origin: str, why: str) -> UserError:
    return UserError(f"{origin}: {key}={shown(config.get(key))}: {why}")
