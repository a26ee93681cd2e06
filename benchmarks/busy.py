"""A training step on a CPU, idle and beside busy processes, with torch's threads as they come and as regard sets them.

    python benchmarks/busy.py
    python benchmarks/busy.py --burners 2 --rounds 10

Of the built-in translator, in its precision; every contestant is a process of its own, and they take turns. `before`
is torch as it comes: as many threads as cores, which wait as OpenMP's defaults say. `after` began on an idle machine,
`after, begun busy` beside the others. `one thread` is what giving way to them would leave of two cores. Run it on a
machine that is otherwise quiet: the first table is of nothing else.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack

import torch
from elsewhere import elsewhere

from regard.cores import CHOSEN, WAITING, Waiting, choose_threads
from regard.device import choose_device
from regard.settings.load import load
from regard.tasks.traits import defaults
from regard.training.dry_run import make_dry_run
from regard.training.estimate import precision_of

SETTLE = 4.5  # seconds in which a contestant notices what has changed around it, and believes it
BURNER = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"  # not for longer than this process
REST = 0.3  # seconds in which the threads of one contestant, which wait by turning, give way to those of the next


def contestant(threads: str) -> dict[str, Callable[..., list[float]]]:
    run = load(overrides=["device=cpu"], base=defaults("translate", built_in=True))
    device = choose_device("cpu")
    dry_run, precision = make_dry_run(run), precision_of(run.train, device)
    open_ = ExitStack()
    if threads != "torch's":
        torch.set_num_threads(1 if threads == "one" else choose_threads(torch.get_num_threads()))
        open_.enter_context(Waiting(torch.get_num_threads()))
    update, batch = dry_run.update(run, device, precision), dry_run.batch()
    update(batch, 0)

    def steps(count: int) -> list[float]:
        took = []
        for step in range(count):
            start = time.monotonic()
            update(batch, step)
            took.append(time.monotonic() - start)
        return took

    return {"steps": steps, "threads": lambda: [float(torch.get_num_threads())]}


def race(contestants: Mapping[str, Mapping[str, Callable[..., list[float]]]], *, rounds: int, steps: int,
         title: str, rest: float) -> None:
    took: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, functions in contestants.items():
            time.sleep(rest)
            took[name] += functions["steps"](steps)
    print(f"\n{title}\n{'':20} threads  median ms   least ms  times before")
    first = statistics.median(took["before"])
    for name, each in took.items():
        (threads,), median = contestants[name]["threads"](), statistics.median(each)
        print(f"{name:20} {threads:7.0f} {1000 * median:10.1f} {1000 * min(each):10.1f} {first / median:13.2f}",
              flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--burners", type=int, default=2, help="busy processes")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=5, help="in a row, idle; beside busy processes it is one")
    args = parser.parse_args()
    for name in (*CHOSEN, *WAITING):
        os.environ.pop(name, None)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.2f} at the start")
    contestants = {"before": elsewhere(contestant, "torch's"), "after": elsewhere(contestant, "chosen"),
                   "one thread": elsewhere(contestant, "one")}
    time.sleep(SETTLE)
    # To each of them the one before is a busy process, which it has to forget.
    race(contestants, rounds=args.rounds, steps=args.steps, title="idle", rest=SETTLE)
    burners = [subprocess.Popen([sys.executable, "-c", BURNER]) for _ in range(args.burners)]
    try:
        contestants["after, begun busy"] = elsewhere(contestant, "chosen")
        time.sleep(SETTLE)
        race(contestants, rounds=args.rounds, steps=1, title=f"beside {args.burners} busy processes", rest=REST)
    finally:
        for burner in burners:
            burner.kill()


if __name__ == "__main__":
    main()
