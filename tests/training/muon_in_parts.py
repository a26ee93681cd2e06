"""Small models learn by Muon, sharded over the processes there are, and write down what they know.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=… python muon_in_parts.py FOLDER

For each shape of model: its weights and averages after three steps (`saved`), at the `end`, and at the end of one that
went on `again` from what was saved; and for each process the operations of its last step of the optimizer.
"""

import json
import sys
from dataclasses import dataclass, replace
from math import nan
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from regard.checkpoint import load_weights, named_tensors
from regard.data.batch import Batch
from regard.models.decoder import Decoder
from regard.nn.init import initialize
from regard.nn.loss import cross_entropy
from regard.settings.schema import Run, Tower, Train
from regard.tasks.base import Loss, Term
from regard.tasks.translate import Translate
from regard.training.optimizer import make_optimizer
from regard.training.parallel import World, join
from regard.training.resume import _restore, tensors_of
from regard.training.update import Update

CPU = torch.device("cpu")
# With a scale by which gradients are divided; and so that AdamW does not blow up their last bits.
HOW = Train(optimizer="muon", fsdp=True, learning_rate=0.01, muon_learning_rate=0.05, warmup=0, schedule="constant",
            weight_decay=0.1, precision="float32", grad_clip=0.1, epsilon=0.1)
EVEN = Tower(width=16, depth=2, heads=4, kv_heads=2, activation="swiglu", ffn_width=24, norm="rms",
             positions="rotary", bias=False, dropout=0.0)
SHAPES = {
    "even": EVEN,
    "uneven": replace(EVEN, width=15, heads=3, kv_heads=1, positions="none", activation="gelu", ffn_width=25),
    "a row": replace(EVEN, activation="gelu", ffn_width=1),  # which one process has, and the others none
}
BEFORE, AFTER = range(3), range(3, 6)
SPOILT, FORGOTTEN = 1, 4  # steps with a gradient that is not a number, and with a weight that has no gradient


@dataclass(frozen=True)
class Texts(Batch):
    tokens: Tensor


class Predict(Translate):
    """All that an update needs of a task is its loss: here that of the next token."""

    def loss(self, model: Decoder, batch: Texts) -> Loss:  # type: ignore[override]
        states = model(model.embed(batch.tokens[:, :-1])).flatten(0, 1)
        loss, plain = cross_entropy(states, model.output.weight, batch.tokens[:, 1:].flatten(), ignore=-1)
        return Term("loss", loss), Term("nll", plain, weight=0.0)


def share(step: int, world: World) -> Texts:
    """A process's part of a batch of four texts."""
    tokens = torch.randint(40, (4, 12), generator=torch.Generator().manual_seed(step))
    return Texts({"loss": 44, "nll": 44}, tokens[world.rank :: world.size])


class Learner:
    """A model that learns, alone or with others; from what was saved, if there is something."""

    def __init__(self, shape: str, world: World, saved: dict[str, Tensor] | None = None) -> None:
        self.world, self.model = world, Decoder(SHAPES[shape], vocabulary=40)
        initialize(self.model, seed=0)
        world.parallelize(self.model, HOW, precision=torch.float32)
        self.optimizer = make_optimizer(self.model, HOW, device=CPU)
        self.update = Update(self.model, Predict(Run()), self.optimizer, HOW, precision=torch.float32, world=world)
        self.operations = 0
        if saved is not None:
            here = named_tensors(self.model)
            load_weights(self.model, world.spread({name: saved[name] for name in here}, here), origin="what was saved")
            _restore(self.optimizer, {name: tensor for name, tensor in saved.items() if name not in here}, world)

    def learn(self, steps: range) -> dict[str, Tensor]:
        """All that it then knows: whole, in the first process."""
        step_of = self.update.step

        def counted() -> Tensor:
            if step == FORGOTTEN:
                self.model.blocks[1].self.qkv.weight.grad = None
            with FlopCounterMode(display=False) as counter:
                norm = step_of()
            self.operations = counter.get_total_flops()
            return norm

        self.update.step = counted  # type: ignore[method-assign]
        for step in steps:
            self.update(share(step, self.world), step, {"loss": nan if step == SPOILT else 44, "nll": 44})
        self.update.step = step_of  # type: ignore[method-assign]
        found = self.world.collect({**named_tensors(self.model), **tensors_of(self.optimizer)})
        return {name: tensor.detach().clone() for name, tensor in found.items()}


def main() -> None:
    folder, operations = Path(sys.argv[1]), {}
    with join(CPU, timeout=60) as world:
        for shape in SHAPES:
            learner = Learner(shape, world)
            saved = learner.learn(BEFORE)
            if world.rank == 0:
                save_file(saved, folder / f"{shape} saved.safetensors")
            end = learner.learn(AFTER)
            world.wait()
            again = Learner(shape, world, load_file(folder / f"{shape} saved.safetensors")).learn(AFTER)
            if world.rank == 0:
                save_file(end, folder / f"{shape} end.safetensors")
                save_file(again, folder / f"{shape} again.safetensors")
            operations[shape] = learner.operations
    (folder / f"{world.rank}.json").write_text(json.dumps(operations))


if __name__ == "__main__":
    main()
