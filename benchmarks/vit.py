"""How fast a vision transformer reads images, beside transformers and timm and in turns with them.

    python benchmarks/vit.py --device cpu --timm PATH        # ViT-S/16, float32 and bfloat16
    python benchmarks/vit.py --device cuda --preset vit-base --rows 256

PATH is a folder with the package timm (`pip install --no-deps --target PATH timm`); without it, timm is left out. Its
import of torchvision, which its vision transformer does not need, is replaced where torchvision is not installed.
All models have random weights of one shape: 1,000 labels, images of 224 × 224.
"""

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock

import torch
from torch import Tensor, nn

from regard.device import choose_device
from regard.kernels.linear_onednn import Layouts, lasting
from regard.models.build import image_encoder
from regard.models.classifier import Classifier
from regard.nn.init import initialize
from regard.settings.presets import PRESETS
from regard.settings.schema import Tower

LABELS = 1_000

Read = Callable[[], Tensor]


def ours(tower: Tower, pixels: Tensor, dtype: torch.dtype) -> Read:
    model = Classifier(image_encoder(tower), tower, labels=LABELS)
    initialize(model, seed=0)
    return reading(model, pixels, dtype, lambda output: output)


def transformers(tower: Tower, pixels: Tensor, dtype: torch.dtype) -> Read:
    from transformers import ViTConfig, ViTForImageClassification

    assert tower.image is not None
    config = ViTConfig(hidden_size=tower.width, num_hidden_layers=tower.depth, num_attention_heads=tower.heads,
                       intermediate_size=4 * tower.width, image_size=tower.image.size, patch_size=tower.image.patch,
                       num_labels=LABELS)
    return reading(ViTForImageClassification(config), pixels, dtype, lambda output: output.logits)


def timm(tower: Tower, pixels: Tensor, dtype: torch.dtype) -> Read:
    finder = WithoutTorchvision()
    is_stub = importlib.util.find_spec("torchvision") is None
    if is_stub:
        sys.meta_path.insert(0, finder)
    from timm.models.vision_transformer import VisionTransformer

    if is_stub:  # transformers would take it for the real one
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
    assert tower.image is not None
    model = VisionTransformer(img_size=tower.image.size, patch_size=tower.image.patch, embed_dim=tower.width,
                              depth=tower.depth, num_heads=tower.heads, num_classes=LABELS)
    return reading(model, pixels, dtype, lambda output: output)


def reading(model: nn.Module, pixels: Tensor, dtype: torch.dtype, logits: Callable[[object], Tensor]) -> Read:
    model = model.to(pixels.device, dtype).eval()
    inputs = pixels.to(dtype)

    @torch.inference_mode()
    def read() -> Tensor:
        return logits(model(inputs))

    return read


class WithoutTorchvision(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every module of torchvision, and nothing in it."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        is_wanted = name.partition(".")[0] == "torchvision"
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if is_wanted else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return MagicMock(name=spec.name, __path__=[], __spec__=spec, __name__=spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--preset", default="vit-small")
    parser.add_argument("--rows", type=int, default=8, help="images in a batch")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--timm", type=Path, help="a folder with the package timm")
    args = parser.parse_args()
    device = choose_device(args.device)
    peers = {"ours": ours, "transformers": transformers}
    if args.timm is not None:
        sys.path.insert(0, str(args.timm))
        peers["timm"] = timm
    tower = PRESETS[args.preset]()
    assert tower.image is not None, f"{args.preset} reads no images"
    pixels = torch.randn(args.rows, 3, tower.image.size, tower.image.size, device=device)
    where = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"{where}, torch {torch.__version__}: {args.preset}, {args.rows} images a batch, median of {args.rounds}")
    for dtype in (torch.float32, torch.bfloat16):
        reads = {name: build(tower, pixels, dtype) for name, build in peers.items()}
        times: dict[str, list[float]] = {name: [] for name in reads}
        with torch.inference_mode(), lasting(Layouts()):
            for _ in range(args.rounds + 2):  # the first two lay out weights and fill the allocator
                for name, read in reads.items():
                    start = time.perf_counter()
                    read()
                    if device.type == "cuda":
                        torch.cuda.synchronize()
                    times[name].append(time.perf_counter() - start)
        medians = {name: statistics.median(each[2:]) for name, each in times.items()}
        for name, seconds in medians.items():
            print(f"{str(dtype).removeprefix('torch.'):9} {name:13} {1000 * seconds:8.1f} ms "
                  f"{args.rows / seconds:8.1f} images/s   ours is {seconds / medians['ours']:.2f}×")


if __name__ == "__main__":
    main()
