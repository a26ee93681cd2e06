"""Takes the picture of an image's page in this folder: of a classifier of shapes. Needs playwright and Chromium.

    python docs/pictures/images.py shapes/
    regard train classify --data shapes/ --out runs/classify-shapes --set model.image.size=96 \
        --set model.image.patch=8 --set model.image.stem=convolutions --set model.width=64 --set model.depth=4 \
        --set model.heads=4 --set train.steps=450
    python docs/pictures/images.py shapes/ runs/classify-shapes

The first draws the data, the second learns from it.
"""

import shutil
import sys
import tempfile
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw
from playwright.sync_api import sync_playwright

from regard.verbs.look import main as look

HERE = Path(__file__).parent
LABELS = ("circle", "square", "triangle", "ring")
SIZE, FINE = 96, 4  # pixels of an image; times that it is drawn larger
WINDOW = {"width": 1180, "height": 712}
VIEW = "site=encoder.blocks.2.self"


def draw(label: str, random: np.random.Generator) -> Image.Image:
    """A dark shape on a bright ground, among lines that mean nothing."""
    side = SIZE * FINE
    image = Image.new("RGB", (side, side), colour(random, 150, 245))
    pen = ImageDraw.Draw(image)
    for _ in range(random.integers(2, 5)):
        ends, ink = random.integers(0, side, 4).tolist(), colour(random, 120, 255)
        pen.line(ends, fill=ink, width=int(random.integers(3, 9)))
    x, y = random.integers(30, side - 160, 2).tolist()
    size, ink = int(random.integers(90, 130)), colour(random, 0, 150)
    if label == "triangle":
        pen.polygon([(x, y + size), (x + size, y + size), (x + size / 2, y)], fill=ink)
    elif label == "square":
        pen.rectangle([x, y, x + size, y + size], fill=ink)
    else:
        is_ring = label == "ring"
        pen.ellipse([x, y, x + size, y + size], fill=None if is_ring else ink, outline=ink, width=22 if is_ring else 1)
    return image.resize((SIZE, SIZE), Image.Resampling.LANCZOS)


def colour(random: np.random.Generator, low: int, high: int) -> tuple[int, ...]:
    return tuple(random.integers(low, high, 3).tolist())


def write(folder: Path) -> None:
    random = np.random.default_rng(0)
    for split, count in (("train", 500), ("test", 25)):
        for label in LABELS:
            (folder / split / label).mkdir(parents=True, exist_ok=True)
            for number in range(count):
                draw(label, random).save(folder / split / label / f"{number}.png")


def take(image: Path, run: Path) -> None:
    with tempfile.TemporaryDirectory() as place, sync_playwright() as library:
        file = Path(place) / "look.html"
        look(str(image), run, None, "*", file, False, "cpu", False)
        browser = library.chromium.launch(executable_path=shutil.which("chromium"))
        tab = browser.new_page(viewport=WINDOW, color_scheme="light")
        tab.goto(f"{file.as_uri()}#{VIEW}")
        tab.wait_for_timeout(800)  # the small maps are drawn one after the other
        taken = Image.open(BytesIO(tab.screenshot()))
        taken.convert("RGB").save(HERE / "look-picture.png", optimize=True)
        browser.close()


if __name__ == "__main__":
    shapes, *run = map(Path, sys.argv[1:])
    take(shapes / "test" / "square" / "4.png", *run) if run else write(shapes)
