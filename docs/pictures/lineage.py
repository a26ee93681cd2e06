"""Takes the alignments of docs/lineage.md, from runs on the phrase book. Needs playwright and Chromium.

    regard train --set model.preset=bahdanau --set model.width=128 --set model.dropout=0 --out runs/bahdanau
    regard train --set model.preset=luong --set model.width=128 --set model.dropout=0 --out runs/luong
    python docs/pictures/lineage.py runs/bahdanau runs/luong

Each picture is called as its run is: look-bahdanau.png.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from page import TEXT, Shot, take
from playwright.sync_api import sync_playwright

from regard.verbs.look import main as look


def main(folders: list[str]) -> None:
    with tempfile.TemporaryDirectory() as place, sync_playwright() as library:
        browser = library.chromium.launch(executable_path=shutil.which("chromium"))
        for folder in map(Path, folders):
            file = Path(place) / f"{folder.name}.html"
            look(TEXT, folder, None, "*", file, False, "cpu", False)
            take(browser, file, Shot(folder.name, "view=alignment"))
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
