"""A map of weights over a picture, as a picture: drawn as the page of `regard look` draws it.

`light` keeps the picture's colours where the weights are, and darkens the rest; `heat` lays colours over the picture in
grey. In both, more weight is brighter.
"""

import base64
from collections.abc import Sequence
from io import BytesIO
from typing import Literal

import numpy as np
from jaxtyping import Float
from PIL import Image, ImageDraw, ImageFont

from regard.data.images.decode import decode
from regard.look.axes import Axis, Grid, GridPart, grid_parts, word_places
from regard.look.record import Record
from regard.look.wordpieces import readable
from regard.settings.errors import UserError

__all__ = ["Paint", "Shape", "data_url", "opened", "overlay", "png", "sheet", "smoothed", "word_maps"]

Paint = Literal["light", "heat"]
Shape = Literal["smooth", "patches"]

# The same numbers as in static/overlay.js.
SHADOW, FADED, COVERED = (13, 16, 23), 0.8, 0.72
RAMP = ("#16191f", "#1d3350", "#2a5d8c", "#4b93bf", "#97cade", "#f6f9e6")
HARD = 0.999  # of all weight on one patch: a choice, no distribution
CHOSEN = "#b04a00"
COARSE = 128  # pixels of a picture's longer side: one with fewer is shown with its pixels
SIDE, TILE = 448, 160  # pixels of a picture's longer side: single, and in a sheet
GAP, CAPTION = 8, 20  # pixels between the pictures of a sheet, and of the words below them
ACROSS = 6  # pictures in a row of a sheet
PAPER, INK = "#ffffff", "#222222"
EVERY = "all patches"


def overlay(picture: Image.Image | None, weights: Float[np.ndarray, "rows columns"], *, paint: Paint = "light",
            shape: Shape = "smooth", most: float | None = None, side: int = SIDE) -> Image.Image:
    """The picture with the weights of its patches over it. The strongest patch, or one of `most`, is the brightest.

    Without a picture the map is drawn on nothing. If one patch has all the weight, as hard attention chooses it, the
    patch is drawn as it is, with a line around it.
    """
    width, height = _size(picture, weights.shape[1] / weights.shape[0], side)
    strongest = float(weights.max(initial=0.0))
    is_hard = strongest >= HARD
    fine = _cells(weights, height, width) if is_hard or shape == "patches" else _smooth(weights, height, width)
    strengths = np.clip(fine / (most or strongest or 1.0), 0, 1)[..., None]
    if picture is None:
        drawn = _colours(strengths)
    elif paint == "heat":
        drawn = (1 - COVERED) * _scaled(picture.convert("L").convert("RGB"), width, height)
        drawn += COVERED * _colours(strengths)
    else:
        shadow = FADED * (1 - strengths)
        drawn = (1 - shadow) * _scaled(picture.convert("RGB"), width, height) + shadow * np.array(SHADOW)
    found = Image.fromarray(np.rint(drawn).astype(np.uint8))
    if is_hard:
        _outline(found, weights)
    return found


def _smooth(weights: Float[np.ndarray, "rows columns"], height: int, width: int) -> Float[np.ndarray, "height width"]:
    fine = smoothed(weights, height, width)
    return np.asarray(fine * (weights.max() / (fine.max() or 1.0)))  # smoothing lowers a peak


def _cells(weights: Float[np.ndarray, "rows columns"], height: int, width: int) -> Float[np.ndarray, "height width"]:
    row, column = (np.arange(pixels) * cells // pixels
                   for pixels, cells in zip((height, width), weights.shape, strict=True))
    return weights[np.ix_(row, column)]


def _outline(image: Image.Image, weights: Float[np.ndarray, "rows columns"]) -> None:
    rows, columns = weights.shape
    row, column = divmod(int(weights.argmax()), columns)
    down, across = image.height / rows, image.width / columns
    edges = [column * across, row * down, (column + 1) * across, (row + 1) * down]
    ImageDraw.Draw(image).rectangle(edges, outline=CHOSEN, width=max(1, image.width // 150))


def smoothed(weights: Float[np.ndarray, "rows columns"], height: int, width: int) -> Float[np.ndarray, "height width"]:
    """At every pixel the weights around it, by a cubic B-spline: smooth, and never negative."""
    return np.asarray(_shares(weights.shape[0], height) @ weights @ _shares(weights.shape[1], width).T)


def _shares(cells: int, pixels: int) -> Float[np.ndarray, "pixels cells"]:
    """How much each cell counts at a pixel's centre."""
    places = (np.arange(pixels) + 0.5) * cells / pixels - 0.5
    first = np.floor(places).astype(int)
    f = places - first
    splines = np.stack([(1 - f) ** 3, 4 - 6 * f**2 + 3 * f**3, 1 + 3 * f + 3 * f**2 - 3 * f**3, f**3]) / 6
    found = np.zeros((pixels, cells))
    for offset, spline in enumerate(splines):  # the outermost cells go on beyond the edge
        np.add.at(found, (np.arange(pixels), np.clip(first - 1 + offset, 0, cells - 1)), spline)
    return found


def word_maps(record: Record, site: str, *, head: int | None = None, paint: Paint = "light", shape: Shape = "smooth",
              side: int = TILE) -> dict[str, Image.Image]:
    """The map of each word, or of a class token; where only patches look, the mean of theirs.

    `head` is the number of one; absent, it is the mean over heads. A word that comes twice has its number behind it.
    """
    recorded, axes = record[site], record.axes[site]
    if not (pictures := grid_parts(axes.sources)):
        raise UserError(f"{site}: looks at no picture")
    weights = recorded.mean(0) if head is None else recorded[record.heads[site].index(head)]
    return {name: _beside([overlay(_picture(part.grid), _on(part, row), paint=paint, shape=shape, side=side)
                           for part in pictures])
            for name, row in _rows(axes.targets, weights)}


def sheet(found: dict[str, Image.Image], *, across: int = ACROSS) -> Image.Image:
    """Pictures beside and below each other, with their names: one picture for a paper or a page of docs."""
    width, height = (max(size) for size in zip(*(each.size for each in found.values()), strict=True))
    columns = min(across, len(found))
    rows = -(-len(found) // columns)
    whole = Image.new("RGB", (columns * (width + GAP) + GAP, rows * (height + CAPTION + GAP) + GAP), PAPER)
    pen, font = ImageDraw.Draw(whole), ImageFont.load_default(13)
    for place, (name, each) in enumerate(found.items()):
        row, column = divmod(place, columns)
        x, y = GAP + column * (width + GAP), GAP + row * (height + CAPTION + GAP)
        whole.paste(each, (x, y))
        pen.text((x, y + height + 2), name, INK, font)
    return whole


def data_url(image: Image.Image) -> str:
    """As a JPEG, for a page: small enough for dozens of them."""
    written = BytesIO()
    image.save(written, "JPEG", quality=85)
    return f"data:image/jpeg;base64,{base64.b64encode(written.getvalue()).decode()}"


def png(image: Image.Image) -> bytes:
    written = BytesIO()
    image.save(written, "PNG", optimize=True)
    return written.getvalue()


def opened(address: str) -> Image.Image:
    """The picture in a data URL."""
    _, found, content = address.partition(";base64,")
    if not found:
        raise UserError(f"{address[:40]}: no picture as a data URL in base64")
    return decode(base64.b64decode(content), "a picture of a record")


def _rows(targets: Axis, weights: Float[np.ndarray, "targets sources"]) -> Sequence[tuple[str, np.ndarray]]:
    if not (words := word_places(targets)):
        return [(EVERY, weights.mean(0))]
    names = readable([targets[row] for row in words])
    numbered = [name if names.count(name) == 1 else f"{name} {names[:place].count(name) + 1}"
                for place, name in enumerate(names)]
    return list(zip(numbered, weights[words], strict=True))


def _on(part: GridPart, row: Float[np.ndarray, " sources"]) -> Float[np.ndarray, "rows columns"]:
    return row[part.patches].reshape(part.grid.height, part.grid.width)


def _picture(grid: Grid) -> Image.Image | None:
    return None if grid.picture is None else opened(grid.picture)


def _beside(images: Sequence[Image.Image]) -> Image.Image:
    if len(images) == 1:
        return images[0]
    width = sum(each.width + GAP for each in images) - GAP
    whole = Image.new("RGB", (width, max(each.height for each in images)), PAPER)
    x = 0
    for each in images:
        whole.paste(each, (x, 0))
        x += each.width + GAP
    return whole


def _size(picture: Image.Image | None, aspect: float, side: int) -> tuple[int, int]:
    """Width and height, the longer one `side`."""
    aspect = aspect if picture is None else picture.width / picture.height
    return (side, max(1, round(side / aspect))) if aspect >= 1 else (max(1, round(side * aspect)), side)


def _scaled(picture: Image.Image, width: int, height: int) -> Float[np.ndarray, "height width 3"]:
    blocky = max(picture.size) < COARSE
    return np.asarray(picture.resize((width, height), Image.Resampling.NEAREST if blocky else Image.Resampling.BICUBIC),
                      np.float64)


def _colours(strengths: Float[np.ndarray, "height width 1"]) -> Float[np.ndarray, "height width 3"]:
    stops = np.array([[int(each[i : i + 2], 16) for i in (1, 3, 5)] for each in RAMP], np.float64)
    place = strengths * (len(stops) - 1)
    below = np.minimum(place.astype(int), len(stops) - 2)
    return np.asarray(stops[below[..., 0]] * (1 - place + below) + stops[below[..., 0] + 1] * (place - below))
