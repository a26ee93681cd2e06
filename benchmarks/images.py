"""Reading images: decoded, scaled and kept as one array, against pillow, which reads and decodes them only.

    python benchmarks/images.py FOLDER_OR_ARCHIVE … [--size 224] [--most 10000]

Both use all cores, and both begin with the files in the system's cache. The order alternates, the best of three counts.
The second ratio is that of the processors' time, which other work on the machine disturbs less.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import BytesIO
from itertools import islice
from pathlib import Path

import numpy as np
from PIL import Image as pillow

from regard.data.images.files import Found
from regard.data.images.formats import has_image_ending
from regard.data.images.store import write_stores
from regard.data.images.trees import Tree, tree_of
from regard.settings.schema import Image

ROUNDS = 3
TOGETHER = 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--most", type=int, default=10_000)
    how = parser.parse_args()
    image, threads = Image(size=how.size), os.cpu_count() or 1
    print(f"{threads} threads, {how.size} × {how.size} pixels, images per second")
    for path in how.paths:
        tree = tree_of(path)
        names = [name for name in tree.names if has_image_ending(name)][: how.most]
        found = [Found(tree, name, (), tree.place(name)) for name in names]
        pillows, ours = alternating(partial(by_pillow, tree, names, how.size, threads),
                                    partial(by_regard, found, image))
        print(f"{path.name}: {len(names):,} images; pillow {len(names) / pillows[0]:,.0f}, decoded and kept "
              f"{len(names) / ours[0]:,.0f}: {pillows[0] / ours[0]:.2f} of pillow's speed, "
              f"{pillows[1] / ours[1]:.2f} by processors' time")


def by_pillow(tree: Tree, names: list[str], size: int, threads: int) -> None:
    def decoded(some: list[tuple[str, bytes | None]]) -> int:
        total = 0
        for path, found in some:
            content = Path(path).read_bytes() if found is None else found
            with pillow.open(BytesIO(content)) as opened:
                image = opened.convert("RGB")
            shorter = min(image.size)
            width, height = (size * length // shorter for length in image.size)
            image = image.resize((width, height), pillow.Resampling.BILINEAR)
            left, top = (width - size) // 2, (height - size) // 2
            total += np.asarray(image.crop((left, top, left + size, top + size))).size
        return total

    contents = ((tree.place(name), read()) for name, read in tree.contents(names))
    with ThreadPoolExecutor(threads) as pool:
        futures = []
        while some := list(islice(contents, TOGETHER)):
            futures.append(pool.submit(decoded, some))
        for future in futures:
            future.result()


def by_regard(found: list[Found], image: Image) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_stores({"train": found}, {"train": Path(folder) / "train.npy"}, image)


def alternating(*calls: Callable[[], None]) -> list[tuple[float, float]]:
    """The least seconds of each, and the least of the processors."""
    least = [(float("inf"), float("inf"))] * len(calls)
    for _ in range(ROUNDS):
        for number, call in enumerate(calls):
            wall, busy = time.perf_counter(), time.process_time()
            call()
            least[number] = (min(least[number][0], time.perf_counter() - wall),
                             min(least[number][1], time.process_time() - busy))
    return least


if __name__ == "__main__":
    main()
