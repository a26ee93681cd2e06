"""Takes the pictures of the page in this folder, from a run of a bare `regard train`. Needs playwright and Chromium.

    python docs/pictures/page.py runs/translate-phrasebook
"""

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import sync_playwright

from regard.verbs.look import main as look

HERE = Path(__file__).parent
TEXT = "je ne veux pas la petite voiture rouge"


class Shot(NamedTuple):
    name: str
    address: str
    theme: str = "light"
    whole: bool = False


SHOTS = [
    Shot("alignment", "view=alignment"),
    Shot("token", "view=alignment&row=1", theme="dark"),
    Shot("heads", "view=heads", whole=True),
    Shot("matrix", "view=matrix", theme="dark"),
    Shot("steps", "view=steps&row=6"),
    Shot("measures", "view=measures", whole=True),
    Shot("explain", "view=explain&site=decoder.blocks.0.self&head=2&row=4", whole=True),
]


def take(browser: Any, file: Path, shot: Shot) -> None:
    tab = browser.new_page(viewport={"width": 1200, "height": 740}, color_scheme=shot.theme)
    tab.goto(f"{file.as_uri()}#{shot.address}")
    tab.wait_for_timeout(500)  # thumbnails and measures are drawn one after the other
    tab.screenshot(path=HERE / f"look-{shot.name}.png", full_page=shot.whole)
    tab.close()


def main(folder: str) -> None:
    with tempfile.TemporaryDirectory() as place, sync_playwright() as library:
        file = Path(place) / "look.html"
        look(TEXT, Path(folder), None, "*", file, False, "cpu", False)
        browser = library.chromium.launch(executable_path=shutil.which("chromium"))
        for shot in SHOTS:
            take(browser, file, shot)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1])
