"""How many tokens a recipe of today needs to get where GPT-2's gets, on the same text, each at the best of its rates.

    python benchmarks/recipe.py --text FILE…
    python benchmarks/recipe.py --tokens 25_000_000 --length 512

GPT-2's: its block, learned positions, AdamW. Ours: rotary positions, RMSNorm, gated feed-forward, norms on queries and
keys, as many parameters, Muon for the matrices. A rate that falls to zero at the end of a run says little of what it
would have reached sooner: so a smaller share of the tokens is a run of its own, with its own end.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from regard.data.batch import Batch, BatchSampler
from regard.data.loader import prefetch
from regard.device import choose_device
from regard.nn.init import initialize
from regard.settings.presets import gpt2, modern_small
from regard.settings.schema import Run, Tokens, Tower, Train
from regard.tasks.language import Language
from regard.tasks.traits import defaults
from regard.training.estimate import Parameters, precision_of
from regard.training.optimizer import make_optimizer
from regard.training.parallel import World
from regard.training.update import make_update
from regard.training.validation import validation_loss

SHARE = 2 / 3  # of the tokens, in which ours should be there


def shapes(width: int, depth: int, length: int) -> dict[str, Tower]:
    """Two blocks of 12 width² weights each."""
    size = {"width": width, "depth": depth, "heads": width // 64, "dropout": 0.0, "max_positions": length}
    return {"gpt-2": replace(gpt2(), **size, attention_dropout=0.0),
            "ours": replace(modern_small(), **size, kv_heads=None, ffn_width=8 * width // 3 // 64 * 64)}


RECIPES = {
    "gpt-2": Train(weight_decay=0.1, beta2=0.95, epsilon=1e-8, label_smoothing=0.0, schedule="cosine"),
    "ours": Train(weight_decay=0.1, beta2=0.95, epsilon=1e-8, label_smoothing=0.0, schedule="cosine", optimizer="muon"),
}


@dataclass(frozen=True)
class Ended:
    """A run: what it was, and the validation loss at its end."""

    name: str
    how: Train
    share: float
    loss: float
    seconds: float

    def __str__(self) -> str:
        rates = f"rate {self.how.learning_rate:g}"
        if self.how.optimizer == "muon":
            rates += f", matrices {self.how.muon_learning_rate:g}"
        return (f"{self.name:6} {self.share:5.2f} of the tokens, {rates:28} loss {self.loss:.4f} "
                f"({self.seconds:.0f} s)")


class Course:
    """A text that models of either kind learn from, always in the same order."""

    def __init__(self, texts: Sequence[str], folder: Path, args: argparse.Namespace) -> None:
        self.device = choose_device(args.device)
        self.steps = args.tokens // args.batch_tokens
        self.batch_tokens, self.shapes = args.batch_tokens, shapes(args.width, args.depth, args.length)
        data = replace(defaults("language", built_in=not texts).data, paths=tuple(texts), max_tokens=args.length)
        self.run = Run(task="language", data=data, tokens=Tokens(vocabulary=args.vocabulary))
        self.task = Language(self.run)
        self.sizes = self.task.data.prepare(folder)
        self.plan = BatchSampler(self.task.data.lengths("train"), tokens=self.batch_tokens, seed=0, length_buckets=1)
        for name, tower in self.shapes.items():
            print(f"{name}: {Parameters.of(self._build(tower)).total:,} parameters")
        print(f"{args.tokens:,} tokens, {self.steps:,} steps, {self.steps / self.plan.steps_per_epoch:.1f} epochs\n",
              flush=True)

    def _build(self, tower: Tower) -> torch.nn.Module:
        self.task.run = replace(self.run, model=tower)
        return self.task.build(self.sizes)

    def learn(self, name: str, *, rate: float, muon_learning_rate: float = 0.02, share: float = 1.0) -> Ended:
        """One model, to the end of so large a share of the tokens."""
        start, steps = time.monotonic(), round(share * self.steps)
        how = replace(RECIPES[name], learning_rate=rate, muon_learning_rate=muon_learning_rate, steps=steps,
                      warmup=steps // 20, batch_tokens=self.batch_tokens, length_buckets=1)
        model = self._build(self.shapes[name])
        self.task.run = replace(self.task.run, train=how)
        initialize(model, seed=0)
        model.to(self.device).train()
        precision = precision_of(how, self.device)
        update = make_update(model, self.task, make_optimizer(model, how, device=self.device), how,
                             device=self.device, precision=precision, world=World())

        def make(step: int) -> Batch:
            return self.task.data.collate("train", self.plan[step]).ready(self.device)

        for step, batch in prefetch(make, 0, steps):
            update(batch, step)
        loss = validation_loss(model, self.task, "val", tokens=self.batch_tokens, precision=precision)
        assert loss is not None
        ended = Ended(name, how, share, loss, time.monotonic() - start)
        print(ended, flush=True)
        return ended


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", nargs="+", default=[], help="files or folders; default: Python's own source")
    parser.add_argument("--tokens", type=int, default=25_000_000, help="that GPT-2's recipe learns from")
    parser.add_argument("--batch-tokens", type=int, default=16_384)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--vocabulary", type=int, default=8_000)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--rates", type=float, nargs="+", default=[5e-4, 1e-3, 2e-3, 4e-3], help="GPT-2's")
    parser.add_argument("--our-rates", type=float, nargs="+", default=[2e-3, 6e-3])
    parser.add_argument("--our-matrix-rates", type=float, nargs="+", default=[0.01, 0.02, 0.04])
    parser.add_argument("--shares", type=float, nargs="*", default=[0.5, 0.58, 1.0],
                        help="of the tokens, that ours is also tried with at its best rates")
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        course = Course(args.text, Path(folder), args)
        goal = min((course.learn("gpt-2", rate=rate) for rate in args.rates), key=lambda ended: ended.loss)
        tried = [course.learn("ours", rate=rate, muon_learning_rate=muon_learning_rate, share=SHARE)
                 for rate in args.our_rates for muon_learning_rate in args.our_muon_learning_rates]
        best = min(tried, key=lambda ended: ended.loss)
        rates = {"rate": best.how.learning_rate, "muon_learning_rate": best.how.muon_learning_rate}
        found = [best] + [course.learn("ours", **rates, share=share) for share in args.shares]
    print(f"\n{goal}")
    for ended in sorted(found, key=lambda ended: ended.share):
        print(f"{ended}: {'there' if ended.loss <= goal.loss else 'not there'}")
    there = [ended.share for ended in found if ended.loss <= goal.loss]
    if not there:
        raise SystemExit("ours does not reach GPT-2's loss")
    print(f"ours is where GPT-2's recipe ends after {min(there):.2f} of its tokens")


if __name__ == "__main__":
    main()
