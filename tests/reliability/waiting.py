"""One of the processes that wait for each other, after some work of its own: WORK='hold:1.5 sleep:3'.

`sleep` leaves Python's lock to other threads, `hold` does not.
"""

import ctypes
import os
import sys
import time

import torch

from regard.settings.errors import Failure
from regard.training.parallel import join


def main() -> None:
    with join(torch.device("cpu"), timeout=float(os.environ["LIMIT"])) as world:
        world.wait()
        print("here", flush=True)
        for what, seconds in (text.split(":") for text in os.environ["WORK"].split()):
            if what == "hold":
                ctypes.PyDLL(None).usleep(int(1e6 * float(seconds)))  # CDLL would give the lock away
            else:
                time.sleep(float(seconds))
        world.wait()


if __name__ == "__main__":
    try:
        main()
    except Failure as error:
        sys.exit(f"regard: {error}")
