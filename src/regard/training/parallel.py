"""The world of a training loop: a single process, or many that share each batch.

The only file that uses torch.distributed. Models stay single-device code: this file parallelizes them from outside.
Imports that a single process never needs are local: they take a second.
"""

import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from regard.nn.block import Block
from regard.nn.convolution import BatchNorm
from regard.nn.reinforce import MovingBaseline
from regard.settings.errors import Failure, UserError
from regard.settings.schema import Train
from regard.training.heartbeat import Heartbeat

__all__ = ["Deal", "Place", "Processes", "World", "deal", "join", "local", "speaks"]

BUCKET = 25 << 20  # bytes of gradients that are reduced at a time, during the backward pass
LOST_AFTER = timedelta(minutes=10)  # until a process that does not answer counts as lost
LONG = timedelta(days=1)  # the same while one works and the others wait: it may have many files to read


class World:
    """A single process."""

    rank = 0
    size = 1

    def sum(self, numbers: Sequence[float]) -> list[float]:
        """The elementwise sum over all processes. All must call it."""
        return list(numbers)

    def wait(self) -> None:
        """Wait until all processes are here, even if that takes hours."""

    def parallelize(self, model: nn.Module, how: Train, *, precision: torch.dtype) -> None:
        """Prepare a model for many processes, as the settings say."""
        if how.activation_checkpointing:
            _recompute(model)

    def expect(self, *, last: bool) -> None:
        """Announce a backward pass; only the `last` one of a step reduces the gradients."""

    def finish(self) -> None:
        """Complete the reduction: the gradients are now the sums over all processes."""

    def norm(self, gradients: Sequence[Tensor]) -> Tensor:
        return torch.nn.utils.get_total_norm(gradients)

    def collect(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Whole tensors, for the first process to save. All must call it."""
        return tensors

    def spread(self, tensors: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """This process's parts of whole tensors."""
        return dict(tensors)


@contextmanager
def join(device: torch.device, *, timeout: float) -> Iterator[World]:
    """The world as torchrun describes it in the environment; without torchrun, a single process.

    A process that finds another one silent for `timeout` seconds prints a message and exits with code 1: its main
    thread waits inside a library, where no exception reaches it.
    """
    if "WORLD_SIZE" not in os.environ:
        yield World()
        return
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise UserError(f"WORLD_SIZE is set in the environment, but {missing[0]} is not: start the processes of a "
                        "run with torchrun, or unset it")
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = "gloo"
    if device.type == "cuda":
        _take_device(int(os.environ.get("LOCAL_RANK", "0")))
        backend = "cpu:gloo,cuda:nccl"
    try:
        store = _meet(rank, size)
        with Heartbeat(rank, size, limit=timeout, connect=lambda: _store(store.host, store.port), end=_end):
            dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=LOST_AFTER)
            yield Processes(rank, size)
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and "gloo/transport" not in str(error):
            raise
        why = re.sub(r"^\[\S*\] ", "", str(error)).splitlines()[0].split(". ")[0]
        raise Failure(f"another process of this run has ended or does not answer ({why}); the same command resumes "
                      "from the newest checkpoint") from error
    dist.destroy_process_group()  # not after an error: it would wait for the others


def speaks() -> bool:
    """Whether this process prints the error: the first of torchrun's processes that asks.

    Usually all processes have the same error; if not, only the first one is printed.
    """
    if not _hosted():
        return True
    try:
        board = _store(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), patience=timedelta(seconds=5))
        return bool(board.add(f"failed{os.environ['TORCHELASTIC_RESTART_COUNT']}", 1) == 1)
    except dist.DistError:  # torchrun has ended
        return True


def _end(sentence: str) -> None:
    """End this process at once, from any of its threads."""
    sure = threading.Timer(10, os._exit, (1,))  # `speaks` may get no answer
    sure.daemon = True
    sure.start()
    if speaks():
        with suppress(OSError):
            if os.isatty(2):
                os.write(2, b"\x1b[?25h\n")  # show the cursor, which a progress bar has hidden
            os.write(2, f"regard: {sentence}\n".encode())
    os._exit(1)


def _take_device(number: int) -> None:
    if number >= torch.cuda.device_count():
        raise UserError(f"LOCAL_RANK={number}: each process needs its own GPU, and this machine has "
                        f"{torch.cuda.device_count()}; start fewer processes")
    torch.cuda.set_device(number)


def _hosted() -> bool:
    """Whether torchrun keeps a store for its processes."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def _meet(rank: int, size: int) -> Any:
    """The store through which processes find each other: the first process serves it, and it is new at every start.

    torchrun's store outlives the processes and would contain addresses of dead ones, so it only holds the address of
    the new store. (torchrun counts restarts, but per machine, so the count cannot identify a start.)
    """
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if not _hosted():
        return _store(host, port, size, is_master=rank == 0)
    board = _store(host, port)
    if rank == 0:
        store = _store(host, 0, size, is_master=True)
        board.set("place", str(store.port))
        return store
    while not _answers(host, port := int(board.get("place"))):  # the place of one that has died
        time.sleep(0.1)
    return _store(host, port, size)


def _store(host: str, port: int, size: int | None = None, *, is_master: bool = False,
           patience: timedelta = LOST_AFTER) -> Any:
    return dist.TCPStore(host, port, size, is_master=is_master, wait_for_workers=False, timeout=patience)  # type: ignore[attr-defined]


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=5).close()
    except OSError:
        return False
    return True


class Processes(World):
    """This process among others: each has its share of the batch, and all take the same step."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.patient = dist.new_group(backend="gloo", timeout=LONG)
        self.sums: _Sums | None = None
        self.sharded: Any = None

    def sum(self, numbers: Sequence[float]) -> list[float]:
        total = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(total)
        return total.tolist()

    def wait(self) -> None:
        dist.all_reduce(torch.zeros(1), group=self.patient)

    def parallelize(self, model: nn.Module, how: Train, *, precision: torch.dtype) -> None:
        super().parallelize(model, how, precision=precision)
        if self.size > 1:
            for part in model.modules():
                if isinstance(part, (BatchNorm, MovingBaseline)):  # the batch is that of all processes
                    part.total = _total
        if how.fsdp:
            self.sharded = _shard(model, self.size, precision=precision)
        elif self.size > 1:
            self.sums = _Sums([p for p in model.parameters() if p.requires_grad])

    def expect(self, *, last: bool) -> None:
        if self.sharded is not None:
            self.sharded.set_requires_gradient_sync(last)
        if self.sums is not None:
            self.sums.last = last

    def finish(self) -> None:
        if self.sums is not None:
            self.sums.finish()

    def norm(self, gradients: Sequence[Tensor]) -> Tensor:
        norm = super().norm(gradients)
        return norm if self.sharded is None else norm.full_tensor()  # type: ignore[attr-defined]

    def collect(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        if self.sharded is None:
            return tensors
        whole = {}
        for name, tensor in tensors.items():
            gathered = _whole(tensor)  # on all processes, one tensor at a time
            if self.rank == 0:
                whole[name] = gathered.cpu()
        return whole

    def spread(self, tensors: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: _part(tensor, like[name]) if name in like else tensor for name, tensor in tensors.items()}


def _total(tensor: Tensor) -> Tensor:
    """The sum over all processes; so is its gradient."""
    from torch.distributed.nn.functional import all_reduce

    return all_reduce(tensor)  # type: ignore[no-any-return]


def local(tensor: Tensor) -> Tensor:
    """This process's part of a tensor; the two share memory."""
    from torch.distributed.tensor import DTensor

    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _whole(tensor: Tensor) -> Tensor:
    from torch.distributed.tensor import DTensor

    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _part(tensor: Tensor, like: Tensor) -> Tensor:
    from torch.distributed.tensor import DTensor, distribute_tensor

    if not isinstance(like, DTensor):
        return tensor
    # Every process has read the whole tensor, so nothing is sent.
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def _recompute(model: nn.Module) -> None:
    """Keep only a block's input, and recompute its activations in the backward pass (Chen et al. 2016)."""
    blocks = [block for block in model.modules() if isinstance(block, Block)]
    if not blocks:
        raise UserError("train.activation_checkpointing: saves no memory with the blocks of this model; remove it, "
                        "and raise train.accumulate instead")
    for block in blocks:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)  # type: ignore[method-assign]


def _shard(model: nn.Module, size: int, *, precision: torch.dtype) -> Any:
    """Each process keeps a shard of every weight, gradient and moment; a block is gathered when it runs."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import (
        FSDPModule,
        MixedPrecisionPolicy,
        fully_shard,
        register_fsdp_forward_method,
    )

    device = next(model.parameters()).device.type
    how: dict[str, Any] = {"mesh": init_device_mesh(device, (size,))}
    if precision != torch.float32:
        how["mp_policy"] = MixedPrecisionPolicy(param_dtype=precision, reduce_dtype=torch.float32)
    for block in [module for module in model.modules() if isinstance(module, Block)]:
        fully_shard(block, **how)
    # Weights outside the blocks (embeddings, output) stay gathered from the forward to the backward pass: the loss,
    # computed between the two, reads the output's weights.
    sharded = fully_shard(model, **how, reshard_after_forward=False)
    # A model that embeds outside `forward` needs the embeddings before the forward pass, or once more after it.
    for door in ("embed", "fill", "hindsight", "with_terms"):
        if hasattr(model, door):
            register_fsdp_forward_method(model, door)
    for module in model.modules():
        if isinstance(module, FSDPModule):  # the loss is divided by the count of all processes: gradients are summed
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    return sharded


class _Sums:
    """Sums gradients over all processes, bucket by bucket, during the backward pass."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.last = True
        self.buckets: list[list[nn.Parameter]] = [[]]
        size = 0
        for parameter in reversed(parameters):  # the last weights get their gradients first
            if size + parameter.nbytes > BUCKET and self.buckets[-1]:
                self.buckets.append([])
                size = 0
            self.buckets[-1].append(parameter)
            size += parameter.nbytes
        self.place = {id(p): place for place, bucket in enumerate(self.buckets) for p in bucket}
        self.missing = [len(bucket) for bucket in self.buckets]
        self.under_way: list[tuple[list[nn.Parameter], Tensor, Any]] = []
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(self._arrived)

    def _arrived(self, parameter: Tensor) -> None:
        if self.last:
            self.missing[self.place[id(parameter)]] -= 1
            # In the order of the buckets: all processes must start the same sums in the same order.
            while len(self.under_way) < len(self.buckets) and self.missing[len(self.under_way)] == 0:
                self._start()

    def _start(self) -> None:
        """Sum the next bucket; weights that no process used have no gradient."""
        used = [p for p in self.buckets[len(self.under_way)] if p.grad is not None]
        flat = torch.cat([p.grad.flatten() for p in used if p.grad is not None]) if used else torch.zeros(1)
        self.under_way.append((used, flat, dist.all_reduce(flat, async_op=True)))

    def finish(self) -> None:
        while len(self.under_way) < len(self.buckets):
            self._start()
        for used, flat, work in self.under_way:
            work.wait()
            if used:
                for p, part in zip(used, flat.split([p.numel() for p in used]), strict=True):
                    p.grad = part.view_as(p)
        self.missing = [len(bucket) for bucket in self.buckets]
        self.under_way = []


@dataclass(frozen=True, eq=False)
class Place:
    """A matrix in a sharded weight: where its rows are, and which process gets it whole."""

    weight: Tensor
    shape: tuple[int, int]
    held: tuple[int, ...]
    """Rows with each process."""
    here: slice
    """Which of the weight's rows with this process those are."""
    owner: int

    def of(self, sharded: Any) -> Tensor:
        """A view of this process's rows of the matrix, in the weight or in a tensor that is sharded like it."""
        rows: Tensor = sharded.to_local()[self.here]
        return rows


class Deal:
    """Distributes sharded matrices: each process temporarily gets some of them whole.

    `weights` come with the rows of the matrices that lie side by side in each. The total cost is balanced.
    """

    def __init__(self, weights: Mapping[Any, tuple[int, ...]], cost: Callable[[int, int], float]) -> None:
        mesh = next(iter(weights)).device_mesh
        self.group, self.rank, self.size = mesh.get_group(), mesh.get_local_rank(), mesh.size()
        owners = iter(_dealt([cost(rows, p.shape[1]) for p, parts in weights.items() for rows in parts], self.size))
        self.dealt: dict[Tensor, list[Place]] = {}
        for p, parts in weights.items():
            holders = _held(parts, self.size)
            edges = pairwise(accumulate((held[self.rank] for held in holders), initial=0))
            self.dealt[p] = [Place(p, (rows, p.shape[1]), held, slice(*edge), next(owners))
                             for rows, held, edge in zip(parts, holders, edges, strict=True)]

    def places(self, weights: Sequence[Tensor]) -> list[Place]:
        """The places of the matrices in these weights, by owner: the same order in all processes."""
        return sorted((place for p in weights for place in self.dealt[p]), key=lambda place: place.owner)

    def work(self, act: Callable[[list[Tensor]], list[Tensor]], places: Sequence[Place], rows: Sequence[Tensor], *,
             precision: torch.dtype) -> list[Tensor]:
        """Apply `act` to whole matrices, each on its owner; return this process's rows of each. All must call it."""
        mine = [place for place in places if place.owner == self.rank]
        sizes = [[place.held[rank] * place.shape[1] for place in mine] for rank in range(self.size)]
        arriving, leaving = [sum(numbers) for numbers in sizes], [0] * self.size
        for place, held in zip(places, rows, strict=True):
            leaving[place.owner] += held.numel()
        flat = torch.cat([held.flatten() for held in rows]).to(precision)
        pieces = self._swap(flat, leaving, arriving).split([number for numbers in sizes for number in numbers])
        whole = [torch.cat(pieces[number :: len(mine)]).view(place.shape) for number, place in enumerate(mine)]
        done = [matrix.split(place.held) for place, matrix in zip(mine, act(whole), strict=True)]
        back = torch.cat([flat[:0], *(parts[rank].flatten() for rank in range(self.size) for parts in done)])
        found = self._swap(back, arriving, leaving).to(rows[0].dtype).split([held.numel() for held in rows])
        return [part.view_as(held) for part, held in zip(found, rows, strict=True)]

    def _swap(self, flat: Tensor, leaving: list[int], arriving: list[int]) -> Tensor:
        """Exchange numbers between all processes (all-to-all)."""
        found = flat.new_empty(sum(arriving))
        dist.all_to_all_single(found, flat, arriving, leaving, group=self.group)
        return found


def deal(weights: Mapping[Tensor, tuple[int, ...]], *, cost: Callable[[int, int], float]) -> Deal | None:
    """A `Deal` of sharded weights; None if every process holds them whole."""
    if not dist.is_initialized():
        return None
    from torch.distributed.tensor import DTensor

    return Deal(weights, cost) if isinstance(next(iter(weights)), DTensor) else None


def _held(parts: Sequence[int], size: int) -> list[tuple[int, ...]]:
    """The number of rows of each part with each process. FSDP2 shards like `torch.chunk`: the last have fewer.

    >>> _held((4, 2, 2), 3)
    [(3, 1, 0), (0, 2, 0), (0, 0, 2)]
    """
    chunk = -(-sum(parts) // size)
    return [tuple(max(0, min(end, (rank + 1) * chunk) - max(end - rows, rank * chunk)) for rank in range(size))
            for rows, end in zip(parts, accumulate(parts), strict=True)]


def _dealt(costs: Sequence[float], hands: int) -> list[int]:
    """The owner of each matrix: the most expensive first, each to the process with the least work so far.

    >>> _dealt([1, 1, 5, 1, 2], 2)
    [1, 1, 0, 1, 1]
    """
    loads, owners = [0.0] * hands, [0] * len(costs)
    for number in sorted(range(len(costs)), key=lambda number: -costs[number]):
        owners[number] = loads.index(min(loads))
        loads[owners[number]] += costs[number]
    return owners
