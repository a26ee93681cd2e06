"""Images: labelled images, and how classify reads them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.check.probe import MAX_PROBE_ROWS, Padded, Probe, of_encoder
from regard.data.dataset import Sizes
from regard.data.images.augment import augmented
from regard.data.images.decode import ImageFile
from regard.data.images.labelled_images import ImageBatch, LabelledImages
from regard.data.images.perturb import perturb
from regard.data.images.pixels import centred, normalized
from regard.data.images.reader import ImageReader, data_url
from regard.data.images.store import Pixels
from regard.look.axes import AxisPair, Grid
from regard.look.outputs import records
from regard.look.record import Record
from regard.look.watch import watch
from regard.models.build import image_encoder
from regard.models.classifier import Classifier
from regard.models.encoder import Encoder
from regard.models.inputs import Inputs
from regard.nn.mask import Mask
from regard.settings.errors import NotFinite
from regard.settings.schema import Image, Tower
from regard.tasks.classify.labelled import LabelledInputs, Read, Rows, Wanted

__all__ = ["Images", "grid_of"]

CLASS_TOKEN = "[CLS]"
MIN_SHOWN = 256  # pixels of a picture under its attention, about
MAX_CPU_PLACES, MAX_GPU_PLACES = 1 << 12, 1 << 17  # patches that are read at once


@dataclass(frozen=True)
class Shifted:
    """The pixels of another split, each image changed as it is read."""

    plain: Pixels
    how: str
    seed: int

    def __len__(self) -> int:
        return len(self.plain)

    def take(self, indices: NDArray[np.int64]) -> UInt8[np.ndarray, "rows channels size size"]:
        return np.stack([perturb(one, self.how, seed=self.seed) for one in self.plain.take(indices)])


class Images(LabelledImages, LabelledInputs[ImageFile, ImageBatch]):
    """Images, each with its label or its labels."""

    reader = ImageReader()

    def shift(self, split: str, how: str, *, seed: int) -> str:
        name = f"{split} {how}"
        self.add(name, Shifted(self.pixels[split], how, seed), self.of(split))
        return name

    def encoder(self, tower: Tower, sizes: Sizes) -> Encoder:
        return image_encoder(tower)

    def model_input(self, batch: ImageBatch, *, learning: bool) -> Read:
        how = self.run.train.augment
        if not learning:
            return Read(normalized(batch.pixels, self.image), Mask(), (Wanted(batch.targets),))
        found = augmented(batch.pixels, batch.seeds, how=how, image=self.image)
        wanted = [Wanted(batch.targets, found.share), Wanted(batch.targets[found.partners], 1 - found.share)]
        is_mixed = how.mixup or how.cutmix
        return Read(centred(found.pixels, self.image), Mask(), tuple(wanted) if is_mixed else (Wanted(batch.targets),))

    # Images to answer

    def rows_to_answer(self, inputs: Sequence[ImageFile], *, device: torch.device) -> Iterator[Rows]:
        return self._rows(len(inputs), lambda some: self._decoded([inputs[place] for place in some]), device=device)

    def rows_of(self, split: str, limit: int | None, *, device: torch.device) -> Iterator[Rows]:
        count, pixels = len(self.of(split)[:limit]), self.pixels[split]
        return self._rows(count, lambda some: pixels.take(np.array(some)), device=device)

    def _rows(self, count: int, read: Callable[[list[int]], UInt8[np.ndarray, "rows channels size size"]], *,
              device: torch.device) -> Iterator[Rows]:
        for places in self._batched(count, device=device):
            pixels = torch.from_numpy(np.ascontiguousarray(read(places))).to(device)
            yield Rows(places, normalized(pixels, self.image), Mask())

    def _batched(self, count: int, *, device: torch.device) -> Iterator[list[int]]:
        together = max(1, (MAX_CPU_PLACES if device.type == "cpu" else MAX_GPU_PLACES) // self.image.places)
        for start in range(0, count, together):
            yield list(range(start, min(count, start + together)))

    def _decoded(self, inputs: Sequence[ImageFile]) -> UInt8[np.ndarray, "rows channels size size"]:
        return np.stack([given.pixels(self.image) for given in inputs])

    def labels_of(self, split: str, limit: int | None = None) -> list[tuple[str, ...]]:
        return [one.labels for one in self.of(split)[:limit]]

    def batches(self, inputs: Sequence[ImageFile], labels: Sequence[Sequence[int]]) -> Iterator[ImageBatch]:
        targets = np.array([self.targets_of(has) for has in labels])
        for places in self._batched(len(inputs), device=torch.device("cpu")):
            yield self.batch(self._decoded([inputs[place] for place in places]), targets[places], rows=len(places))

    # Vectors, and a look inside

    @torch.no_grad()
    def vectors(self, model: nn.Module, inputs: Sequence[ImageFile]) -> Float[np.ndarray, "inputs width"]:
        classifier, head = cast(Classifier, model), self.run.model.head
        found = np.empty((len(inputs), classifier.encoder.width), np.float32)
        for rows in self.rows_to_answer(inputs, device=next(model.parameters()).device):
            found[rows.places] = classifier.vectors(rows.values).float().cpu().numpy()
        if not np.isfinite(found).all():
            raise NotFinite("the model's states are not finite; train it again")
        return found / np.linalg.norm(found, axis=1, keepdims=True) if head.normalize else found

    @torch.no_grad()
    def attention(self, model: nn.Module, inputs: Sequence[ImageFile], *, only: str | Sequence[str],
                  heads: Sequence[int] | None) -> list[Record]:
        encoder, found = cast(Classifier, model).encoder, list[Record]()
        for given, rows in zip(inputs, map(self._alone(model), inputs), strict=True):
            with watch(model, only, heads=heads) as seen:
                encoder(encoder.embed(rows))
            grid = grid_of(encoder.inputs, given, self.image)
            found += records(seen, [{site: AxisPair(grid, grid) for site in seen}])
        return found

    def _alone(self, model: nn.Module) -> Callable[[ImageFile], Float[Tensor, "1 channels size size"]]:
        device = next(model.parameters()).device
        return lambda given: normalized(torch.from_numpy(self._decoded([given])).to(device), self.image)

    def output_rows(self, rows: int) -> Sequence[int]:
        return range(1) if self.image.class_token else range(rows)

    def probe(self, model: nn.Module) -> Probe:
        split, classifier = next(iter(self.named), None), cast(Classifier, model)
        if split is None:
            channels, size = 1 if self.image.grey else 3, self.image.size
            bytes_ = np.random.default_rng(0).integers(0, 256, (MAX_PROBE_ROWS, channels, size, size), dtype=np.uint8)
        else:
            bytes_ = self.pixels[split].take(np.arange(min(MAX_PROBE_ROWS, len(self.pixels[split]))))
        pixels = normalized(torch.from_numpy(np.ascontiguousarray(bytes_)), self.image)

        def logits(read: Padded) -> Float[Tensor, "rows 1 labels"]:
            return classifier(read.values).float()[:, None]  # type: ignore[no-any-return]

        found = of_encoder(model, classifier.encoder, list(pixels), pad=None, logits=logits)
        is_blind = self.image.stem == "patches"  # others see neighbours before the first block
        return replace(found, blind=_blind(classifier.encoder, self.image.patch) if is_blind else None)


def grid_of(inputs: Inputs, given: ImageFile, image: Image) -> Grid:
    """The places of an image that an encoder has read, on the part of it that was read."""
    more = 1 if given.is_fitted else max(1, MIN_SHOWN // image.size)  # a photograph is sharper than the model sees it
    large = replace(image, size=more * image.size, resize=image.resize and more * image.resize, grey=False)
    height, width = inputs.grid
    return Grid(height, width, before=(CLASS_TOKEN,) * inputs.before,
                picture=data_url(ImageFile.of(given.path, given.pixels(large))))


def _blind(encoder: Encoder, patch: int) -> Callable[[Tensor, Tensor | None], Tensor]:
    """The states of images whose patches, and the class token with them, come in another order, without positions."""
    before = encoder.inputs.before

    def states(
        pixels: Float[Tensor, "rows channels size size"], order: Int[Tensor, " places"] | None
    ) -> Float[Tensor, "rows places width"]:
        count = (pixels.shape[-1] // patch) ** 2
        nowhere = torch.zeros((1, before + count), dtype=torch.long, device=pixels.device)
        if order is None:
            return encoder(encoder.embed(pixels, nowhere), positions=nowhere)  # type: ignore[no-any-return]
        x = encoder.embed(_shuffled(pixels, order[order >= before] - before, patch), nowhere)
        place = torch.where(order < before, order, before - 1 + (order >= before).cumsum(0))
        return encoder(x[:, place], positions=nowhere)  # type: ignore[no-any-return]

    return states


def _shuffled(pixels: Float[Tensor, "rows channels size size"], order: Int[Tensor, " patches"],
              patch: int) -> Float[Tensor, "rows channels size size"]:
    side = pixels.shape[-1] // patch
    cut = pixels.unflatten(3, (side, patch)).unflatten(2, (side, patch))  # (rows, channels, side, patch, side, patch)
    flat = cut.transpose(3, 4).flatten(2, 3)[:, :, order]  # (rows, channels, patches, patch, patch)
    whole: Tensor = flat.unflatten(2, (side, side)).transpose(3, 4).flatten(2, 3).flatten(3, 4)
    return whole
