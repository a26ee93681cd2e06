"""How long one update of fine-tuning takes, beside transformers and in turns with it: MiniLM's shape, 64 × 128 tokens.

    python benchmarks/encoder_step.py --device cuda        # bfloat16
    python benchmarks/encoder_step.py --device cpu         # float32

Ours is the update that `regard train classify` makes. transformers' is its BertForSequenceClassification with the loop
that everybody writes around it: autocast where the precision is lower, fused AdamW, gradients clipped; and the same
compiled. All drop out a tenth, as BERT does.
"""

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import torch

from regard.data.text.labelled_text import LabelBatch
from regard.device import choose_device
from regard.nn.init import initialize
from regard.settings.presets import PRESETS
from regard.settings.schema import Run, Train
from regard.tasks.classify import Classify
from regard.training.optimizer import make_optimizer
from regard.training.parallel import World
from regard.training.update import make_update

ROWS, LENGTH, VOCABULARY, LABELS, PAD = 64, 128, 30_522, 2, 0
TOWER = replace(PRESETS["bert-base"](), preset=None, width=384, depth=6, heads=12, ffn_width=1536)
RATE = 5e-5
WARM = 4  # updates before the clock runs: compiling, choosing kernels, filling the allocator

Step = Callable[[], object]


def random_batch() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(1000, VOCABULARY, (ROWS, LENGTH), generator=generator)
    return tokens, torch.randint(LABELS, (ROWS, 1), generator=generator)


def ours(device: torch.device, precision: torch.dtype) -> Step:
    how = Train(learning_rate=RATE, schedule="constant", label_smoothing=0.0,
                compile="on" if device.type == "cuda" else "off")
    task = Classify(Run(task="classify", model=TOWER, train=how))
    task.data.tokens = SimpleNamespace(pad=PAD)  # type: ignore[assignment]
    task.data.labels = ["no", "yes"]
    model = task.build({"vocabulary": VOCABULARY, "labels": LABELS})
    initialize(model, seed=0)
    model.to(device).train()
    update = make_update(model, task, make_optimizer(model, how, device=device), how, device=device,
                         precision=precision, world=World())
    tokens, targets = random_batch()
    batch = LabelBatch({"loss": ROWS, "nll": ROWS}, tokens, targets).ready(device)
    return lambda: update(batch, 10**6)


def theirs(device: torch.device, precision: torch.dtype, *, compiled: bool) -> Step:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(vocab_size=VOCABULARY, hidden_size=TOWER.width, num_hidden_layers=TOWER.depth,
                        num_attention_heads=TOWER.heads, intermediate_size=TOWER.ffn_width, num_labels=LABELS)
    model = BertForSequenceClassification(config).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, fused=True)
    run = torch.compile(model) if compiled else model
    tokens, targets = random_batch()
    if device.type == "cuda":
        tokens, targets = tokens.pin_memory(), targets.pin_memory()
    real = torch.ones_like(tokens)

    def step() -> None:
        inputs, mask, labels = (x.to(device, non_blocking=True) for x in (tokens, real, targets[:, 0]))
        with torch.autocast(device.type, precision, enabled=precision != torch.float32):
            loss = run(input_ids=inputs, attention_mask=mask, labels=labels).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


@dataclass
class Contender:
    name: str
    step: Step
    seconds_to_warm: float
    times: list[float] = field(default_factory=list)


def ready(name: str, build: Callable[[], Step], device: torch.device) -> Contender:
    gc.collect()
    start = time.perf_counter()
    step = build()
    for _ in range(WARM if device.type == "cuda" else 1):
        step()
    wait(device)
    return Contender(name, step, time.perf_counter() - start)


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, help="updates of each in a round (20 on a GPU, 1 on a CPU)")
    args = parser.parse_args()
    device = choose_device(args.device)
    precision = torch.bfloat16 if device.type == "cuda" else torch.float32
    steps = args.steps or (20 if device.type == "cuda" else 1)
    builders: dict[str, Callable[[], Step]] = {
        "ours": lambda: ours(device, precision), "transformers": lambda: theirs(device, precision, compiled=False)}
    if device.type == "cuda":
        builders["transformers, compiled"] = lambda: theirs(device, precision, compiled=True)
    contenders = [ready(name, build, device) for name, build in builders.items()]
    for _ in range(args.rounds):
        for one in contenders:
            one.step()
            wait(device)
            start = time.perf_counter()
            for _ in range(steps):
                one.step()
            wait(device)
            one.times.append((time.perf_counter() - start) / steps)
    where = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"{where}, torch {torch.__version__}, {str(precision).removeprefix('torch.')}: {ROWS} × {LENGTH} tokens")
    print(f"{'':24} {'ms/step':>9} {'fastest':>9} {'ours is':>8} {'warm s':>7}")
    own = statistics.median(contenders[0].times)
    for one in contenders:
        median = statistics.median(one.times)
        print(f"{one.name:24} {1000 * median:9.2f} {1000 * min(one.times):9.2f} {median / own:7.2f}× "
              f"{one.seconds_to_warm:7.0f}")


if __name__ == "__main__":
    main()
