"""Draws the pictures of attention in this folder, from a run of a bare `regard train`.

    python docs/pictures/attention.py runs/translate-phrasebook
    regard measure --over-training --plot docs/pictures/alignment-error.png

The second wants a run that kept its checkpoints:
`regard train --set train.save_every=50 --set train.keep_checkpoints=40`.
"""

import sys
from pathlib import Path

import regard
from regard.look import heatmap

HERE = Path(__file__).parent


def main(folder: str) -> None:
    run = regard.load(folder)
    record = run.look("je ne veux pas la petite voiture rouge", "I do not want the small red car")
    heatmap.save(heatmap.grid(record, "*.cross"), HERE / "attention-heads.png")
    heatmap.save(heatmap.scaling(), HERE / "scaling.png")


if __name__ == "__main__":
    main(sys.argv[1])
