"""Tiny Shakespeare by characters: how long nanoGPT's published recipe takes, and how long ours to the same loss.

    python benchmarks/shakespeare.py --nanogpt PATH --text input.txt

PATH is a checkout of github.com/karpathy/nanoGPT; it is copied and left as it is. Each runs in a process of its own,
one after the other, its compiler's cache empty. The clock starts when Python has imported torch. For nanoGPT it stops
at the end of its run; for us at the first loss on the whole validation text that is as low as the one it has published.
"""

import argparse
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PUBLISHED = 1.4697  # nanoGPT's README
ROOT = Path(__file__).parents[1]

# The clock of nanoGPT's train.py starts at its first line of output, which it writes when all is imported.
OURS = """
import sys, time
import regard.training.loop
from regard.cli import main
print(time.time(), flush=True)
sys.argv = ["regard", *sys.argv[1:]]
main()
"""


def theirs(path: Path, text: Path, work: Path) -> tuple[float, float, float]:
    """Seconds of the whole recipe, the best of its validation losses, and seconds until that."""
    folder = work / "nanogpt"
    shutil.copytree(path, folder, ignore=shutil.ignore_patterns(".git"))
    data = folder / "data" / "shakespeare_char"
    shutil.copy(text, data / "input.txt")
    environment = _environment(work / "cache-theirs")
    if importlib.util.find_spec("requests") is None:  # imported by prepare.py for a download that is not needed
        (work / "unneeded").mkdir()
        (work / "unneeded" / "requests.py").touch()
        environment["PYTHONPATH"] = str(work / "unneeded")
    subprocess.run([sys.executable, "prepare.py"], cwd=data, env=environment, check=True, stdout=subprocess.DEVNULL)
    command = [sys.executable, "-u", "train.py", "config/train_shakespeare_char.py"]
    start, best, when = 0.0, float("inf"), 0.0
    with subprocess.Popen(command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE) as process:
        assert process.stdout
        for line in process.stdout:
            if line.startswith("tokens per iteration"):
                start = time.time()
            if found := re.match(r"step \d+: train loss [\d.]+, val loss ([\d.]+)", line):
                print(f"nanogpt: {time.time() - start:6.1f} s  {line.strip()}", file=sys.stderr)
                if float(found[1]) < best:
                    best, when = float(found[1]), time.time() - start
    if process.returncode:
        raise SystemExit(f"nanoGPT's train.py ended with code {process.returncode}")
    return time.time() - start, best, when


def ours(text: Path, recipe: Path, overrides: list[str], work: Path) -> list[tuple[float, int, float]]:
    """Seconds, step and loss of each evaluation."""
    run = work / "run"
    words = ["train", "language", "--data", str(text), "--recipe", str(recipe), "--out", str(run)]
    words += [word for setting in overrides for word in ("--set", setting)]
    environment = _environment(work / "cache-ours") | {"PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen([sys.executable, "-c", OURS, *words], env=environment, text=True,
                          stdout=subprocess.PIPE) as process:
        assert process.stdout
        start = float(process.stdout.readline())
        process.stdout.read()
    if process.returncode:
        raise SystemExit(f"regard train ended with code {process.returncode}")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [(line["time"] - start, line["step"], line["loss"]) for line in lines if line["kind"] == "evaluation"]


def _environment(cache: Path) -> dict[str, str]:
    """Nothing is compiled already."""
    return {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache), "TRITON_CACHE_DIR": str(cache / "triton")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nanogpt", type=Path, metavar="PATH", help="a checkout; without it only ours runs")
    parser.add_argument("--text", type=Path, required=True, help="Tiny Shakespeare's input.txt")
    parser.add_argument("--recipe", type=Path, default=ROOT / "recipes" / "shakespeare.toml")
    parser.add_argument("--set", nargs="+", default=[], metavar="SETTING=VALUE", help="changes to the recipe")
    parser.add_argument("--loss", type=float, default=PUBLISHED, help="that ours has to reach")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        evaluations = ours(args.text.resolve(), args.recipe, args.set, work)
        whole = theirs(args.nanogpt.resolve(), args.text.resolve(), work) if args.nanogpt else None
    for seconds, step, loss in evaluations:
        print(f"ours:    {seconds:6.1f} s  step {step}: validation loss {loss:.4f}")
    reached = next((seconds for seconds, _, loss in evaluations if loss <= args.loss), None)
    if reached is None:
        print(f"ours does not reach {args.loss}; the best is {min(loss for *_, loss in evaluations):.4f}")
    else:
        print(f"ours:    {reached:6.1f} s to {args.loss}")
    if whole is not None:
        seconds, best, when = whole
        print(f"nanogpt: {seconds:6.1f} s for its whole recipe; its best loss, {best:.4f}, after {when:.1f} s")
        if reached is not None:
            print(f"ours takes {reached / seconds:.2f} of its time")
    if reached is None:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
