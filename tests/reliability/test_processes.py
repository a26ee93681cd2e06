"""Many processes are as one: the same numbers, the same data, and what befalls one of them befalls the run as a whole.

Each start is a real one: torchrun's processes on this machine's CPU, talking by gloo.
"""

import json
import os
import random
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from math import inf, isnan, nan
from pathlib import Path
from typing import Any

import pytest

from heeding import signals_heeded
from regard.checkpoint import Checkpoint
from regard.predictor import load

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
JOBS: dict[str, tuple[str, ...]] = runpy.run_path(str(HERE / "process_jobs.py"))["JOBS"]

STEPS = 50
SETTINGS = (f"train.steps={STEPS}", "train.save_every=5", "train.evaluate_every=25", "train.keep_checkpoints=3")
LONGEST = 120.0  # seconds until a start counts as hanging
ON_LINUX = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="asks /proc for the processes of torchrun")
RECOVERY = 15.0  # seconds from the death of a process to the next step


@dataclass
class Started:
    """A run's folder, and all that its processes have said and noted."""

    folder: Path
    job: str
    settings: tuple[str, ...] = ()
    agents: list[subprocess.Popen[str]] = field(default_factory=list)
    starts: int = 0

    @property
    def run(self) -> Path:
        return self.folder / "run"

    def begin(self, processes: int, *, machines: int = 1, by_hand: bool = False, launcher: Sequence[str] = (),
              script: Sequence[str] = (), **how: Any) -> None:
        """Start so many processes. Each machine is a torchrun of its own, on this one; `by_hand` there is none."""
        work = list(script) or self.work()
        self.starts += 1
        self.logs.mkdir()
        if by_hand:
            world = {"WORLD_SIZE": str(processes), "MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port())}
            for rank in range(processes):
                self.launch(work, **how, **world, RANK=str(rank), LOCAL_RANK=str(rank))
        elif processes == 1:
            self.launch(work, **how)
        else:
            meeting = ["--nnodes", str(machines), *endpoint()] if machines > 1 else ["--standalone"]
            for _ in range(machines):
                self.launch([*self.torchrun(processes // machines, *meeting, *launcher), *work], **how)

    def work(self, *more: str) -> list[str]:
        """The command of each process."""
        said = [word for setting in (*JOBS[self.job], *SETTINGS, *self.settings) for word in ("--set", setting)]
        return [str(HERE / "mishaps.py"), "train", self.job, *said, "--out", str(self.run), *more]

    def torchrun(self, processes: int, *options: str) -> list[str]:
        return ["-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--redirects", "3", "--log-dir",
                str(self.logs / str(len(self.agents))), *options]

    def launch(self, arguments: Sequence[str], *, mishaps: str = "", pace: float = 0, patience: float = 0,
               **variables: str) -> None:
        diary = self.folder / "diary"
        diary.mkdir(exist_ok=True)
        environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
                       "DIARY": str(diary), "MISHAPS": mishaps, "PACE": str(pace), "PATIENCE": str(patience)}
        with open(self.logs / f"launched-{len(self.agents)}", "w", encoding="utf-8") as out, signals_heeded():
            self.agents.append(subprocess.Popen([sys.executable, *arguments], env=environment | variables, text=True,
                                                stdout=out, stderr=out))

    @property
    def logs(self) -> Path:
        return self.folder / f"logs-{self.starts}"

    def end(self) -> list[int]:
        """Wait for all; their exit codes."""
        codes = []
        for agent in self.agents:
            try:
                codes.append(agent.wait(LONGEST))
            except subprocess.TimeoutExpired:
                pytest.fail(f"it hangs:\n{self.launched}{self.said(0)}{self.said(1)}")
        self.agents = []
        return codes

    def go(self, processes: int, **how: Any) -> list[int]:
        self.begin(processes, **how)
        return self.end()

    def give_up(self) -> None:
        """End what still runs; torchrun ends its processes."""
        for agent in self.agents:
            agent.terminate()
        for agent in self.agents:
            agent.wait(60)

    def said(self, rank: int) -> str:
        """What a process of the last start has written to stdout and stderr, by its number on its machine."""
        files = sorted(self.logs.glob(f"*/*/attempt_*/{rank}/std*.log")) or [self.logs / f"launched-{rank}"]
        return "".join(file.read_text(encoding="utf-8") for file in files)

    @property
    def launched(self) -> str:
        """What torchrun itself has said; of processes without it, all."""
        return "".join(file.read_text(encoding="utf-8") for file in sorted(self.logs.glob("launched-*")))

    def diary(self) -> list[dict[str, Any]]:
        lines = [json.loads(line) for file in (self.folder / "diary").glob("*.jsonl")
                 for line in file.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]
        return sorted(lines, key=lambda line: line["time"])

    def metrics(self, kind: str) -> list[dict[str, Any]]:
        try:
            text = (self.run / "metrics.jsonl").read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return [line for line in lines if line["kind"] == kind]

    def losses(self, kind: str = "step") -> dict[int, float]:
        return {line["step"]: nan if line["loss"] is None else line["loss"] for line in self.metrics(kind)}

    def wait_for(self, step: int) -> None:
        until(self, lambda: any(line["step"] >= step for line in self.metrics("step")))


def until(started: Started, is_so: Callable[[], bool]) -> None:
    """Wait for something while a run goes on."""
    last = time.monotonic() + LONGEST
    while not is_so():
        assert all(agent.poll() is None for agent in started.agents), started.launched
        assert time.monotonic() < last, started.launched
        time.sleep(0.02)


def endpoint() -> list[str]:
    """Where the torchruns of several machines meet."""
    return ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{free_port()}"]


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("localhost", 0))
        return int(server.getsockname()[1])


class Place:
    """Makes folders for runs, and ends what is left of them."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self.factory = factory
        self.made: list[Started] = []

    def __call__(self, job: str, *settings: str) -> Started:
        self.made.append(Started(self.factory.mktemp("processes"), job, settings))
        return self.made[-1]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    place = Place(tmp_path_factory)
    yield place
    for started in place.made:
        started.give_up()


# One job stands for the others, which share batches in the same way and take minutes more.
@pytest.fixture(scope="module", params=[
    name if name == "translate" else pytest.param(name, marks=pytest.mark.slow) for name in JOBS])
def job(request: pytest.FixtureRequest) -> str:
    return str(request.param)


NAN = 30  # the step at which the last process of each of these runs has a loss that is not a number


def trained(place: Place, job: str, processes: int, *settings: str, by_hand: bool = False) -> Started:
    started = place(job, *settings)
    assert not any(started.go(processes, by_hand=by_hand, mishaps=f"nan:{processes - 1}:{NAN}")), started.launched
    return started


@pytest.fixture(scope="module")
def alone(place: Place, job: str) -> Started:
    return trained(place, job, 1)


@pytest.fixture(scope="module")
def two(place: Place, job: str) -> Started:
    return trained(place, job, 2)


@pytest.fixture(scope="module")
def sharded(place: Place, job: str) -> Started:
    """With all that changes the order of the work, and without torchrun."""
    return trained(place, job, 2, "train.fsdp=true", "train.accumulate=2",
                   "train.activation_checkpointing=true", by_hand=True)


# The same numbers.


def assert_same_losses(started: Started, alone: Started) -> None:
    for kind in ("step", "evaluation"):
        ours, theirs = started.losses(kind), alone.losses(kind)
        assert list(ours) == list(theirs)
        for step, loss in theirs.items():
            assert ours[step] == pytest.approx(loss, rel=1e-6 if step == 1 else 1e-4, nan_ok=True), (kind, step)
    assert len(alone.losses()) == STEPS
    assert [step for step, loss in alone.losses().items() if isnan(loss)] == [NAN + 1]


def test_two_processes_learn_what_one_learns(two: Started, alone: Started) -> None:
    assert_same_losses(two, alone)


def test_two_processes_that_share_the_weights_in_pieces_learn_what_one_learns(sharded: Started, alone: Started) -> None:
    assert_same_losses(sharded, alone)


@pytest.mark.slow
def test_with_muon_two_processes_learn_what_one_learns_and_hold_the_same_weights(place: Place, job: str) -> None:
    alone, two = (trained(place, job, processes, "train.optimizer=muon") for processes in (1, 2))
    assert_same_losses(two, alone)
    assert len({(line["step"], line["weights"]) for line in two.diary()}) == STEPS


@pytest.mark.slow
def test_with_muon_processes_that_share_the_weights_in_pieces_learn_what_one_learns(place: Place, job: str) -> None:
    """Also when there is one, then two, then one of them."""
    alone, sharded = (trained(place, job, processes, "train.optimizer=muon", *more) for processes, more in (
        (1, ()), (3, ("train.fsdp=true", "train.accumulate=2", "train.activation_checkpointing=true"))))
    assert_same_losses(sharded, alone)
    assert_loaded(2, alone, sharded)
    changing = place(job, "train.optimizer=muon", "train.fsdp=true")
    assert changing.go(1, mishaps="term:0:9") == [75], changing.launched
    changing.begin(2, mishaps="term:1:21")
    assert_stopped(changing, 23)
    assert changing.go(1, mishaps=f"nan:0:{NAN}") == [0], changing.launched
    assert_same_losses(changing, alone)


@pytest.mark.slow
def test_with_momentum_processes_that_share_the_weights_in_pieces_learn_what_one_learns(place: Place, job: str) -> None:
    how = ("train.optimizer=sgd", "train.momentum=0.9")
    alone, sharded = (trained(place, job, processes, *how, *more) for processes, more in (
        (1, ()), (2, ("train.fsdp=true", "train.accumulate=2"))))
    assert_same_losses(sharded, alone)
    assert_loaded(2, alone, sharded)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 3, 4])
@pytest.mark.parametrize("settings", [
    (), ("train.accumulate=2",), ("train.activation_checkpointing=true",), ("train.fsdp=true",),
    ("train.fsdp=true", "train.accumulate=2"), ("train.fsdp=true", "train.activation_checkpointing=true"),
], ids=lambda settings: " ".join(settings) or "plain")
def test_any_number_of_processes_learns_what_one_learns(
    place: Place, job: str, alone: Started, processes: int, settings: tuple[str, ...]
) -> None:
    assert_same_losses(trained(place, job, processes, *settings), alone)


def shared(started: Started) -> dict[int, list[list[int]]]:
    """For each step the examples of each process."""
    found: dict[int, list[list[int]]] = {}
    for line in sorted(started.diary(), key=lambda line: (line["step"], line["rank"])):
        found.setdefault(line["step"], []).append(line["examples"])
    return found


def test_batches_that_cannot_be_shared_evenly_were_among_them(two: Started) -> None:
    sizes = [tuple(map(len, parts)) for parts in shared(two).values()]
    assert any(0 in size for size in sizes), "a process without an example"
    assert any(size[0] != size[1] for size in sizes)
    assert any(size[0] == size[1] for size in sizes)


def test_all_processes_hold_the_same_weights_and_skip_the_same_update(two: Started) -> None:
    weights: dict[int, set[str]] = {}
    for line in two.diary():
        weights.setdefault(line["step"], set()).add(line["weights"])
    assert list(weights) == list(range(STEPS))
    assert {len(each) for each in weights.values()} == {1}
    assert [step for step in range(1, STEPS) if weights[step] == weights[step - 1]] == [NAN]
    assert [line["step"] for line in two.metrics("skipped")] == [NAN + 1]


def test_only_the_first_process_speaks(two: Started, sharded: Started) -> None:
    for started in (two, sharded):
        assert "validation loss" in started.said(0)
        assert started.said(1) == ""
        assert "2 processes on cpu" in started.said(0)


def tokens(started: Started) -> float:
    """How many went through the model after the first step, by what the log says of its speed."""
    lines = started.metrics("step")
    return sum(line["tokens_per_second"] * (line["time"] - before["time"]) for before, line in pairwise(lines))


def test_the_tokens_of_all_processes_are_counted(two: Started, alone: Started) -> None:
    assert tokens(two) == pytest.approx(tokens(alone), rel=0.2)


# The same data.


def test_a_run_goes_on_with_another_number_of_processes(place: Place, job: str, alone: Started) -> None:
    """One process, then two that share the weights, then one."""
    started = place(job, "train.fsdp=true")
    assert started.go(1, mishaps="term:0:9") == [75], started.launched
    assert newest(started) == 10
    started.begin(2, mishaps="term:1:21")  # to the second process alone
    assert_stopped(started, 23)
    assert started.go(1, mishaps=f"nan:0:{NAN}") == [0], started.launched
    sizes = {line["step"]: line["size"] for line in started.diary()}
    assert [sizes[step] for step in (9, 10, 22, 23)] == [1, 2, 2, 1]
    assert_same_losses(started, alone)
    ours, theirs = shared(started), shared(alone)
    assert list(ours) == list(theirs) == list(range(STEPS))
    for step, (examples,) in theirs.items():
        assert sorted(chain(*ours[step])) == sorted(examples), step


def test_an_epoch_is_every_example_once(alone: Started) -> None:
    examples = [example for (part,) in shared(alone).values() for example in part]
    count = len(set(examples))
    assert len(examples) > 2 * count
    for epoch in range(len(examples) // count):
        assert sorted(examples[epoch * count : (epoch + 1) * count]) == list(range(count))


def newest(started: Started) -> int:
    """The step of the newest checkpoint, all of them being whole."""
    checkpoints = Checkpoint.all(started.run)
    assert {checkpoint.verify() for checkpoint in checkpoints} == {None}
    return checkpoints[0].step


def assert_stopped(started: Started, step: int | None = None) -> None:
    """All at one step, which is saved; and that is said once."""
    (code,) = started.end()
    assert code != 0  # torchrun's own: it does not pass on that of its processes
    last = {line["rank"]: line["step"] for line in started.diary() if line["size"] == 2}
    assert set(last.values()) == {newest(started) - 1} == {(step or newest(started)) - 1}
    said = started.said(0) + started.said(1)
    assert said.count("stopped after step") == 1
    assert "Traceback" not in said


def workers(started: Started) -> list[int]:
    """The processes that torchrun has started and that live, by rank."""
    return [process for agent in started.agents for process in children(agent.pid)]


def children(process: int) -> list[int]:
    return [int(text) for text in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@pytest.mark.slow
@ON_LINUX
@pytest.mark.parametrize("to", ["torchrun", "all"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1], ids=lambda number: number.name)
def test_a_signal_to_torchrun_or_to_all_stops_the_run(
    place: Place, job: str, two: Started, number: signal.Signals, to: str
) -> None:
    """A cluster sends it to all, and torchrun passes it on to those that have it already."""
    started = place(job)
    for step in (5, 20, 40):
        started.begin(2, pace=0.05, launcher=["--signals-to-handle", "SIGTERM,SIGINT,SIGUSR1"],
                      mishaps=f"nan:1:{NAN}")
        started.wait_for(step)
        for process in [*(workers(started) if to == "all" else []), started.agents[0].pid]:
            os.kill(process, number)
        assert_stopped(started)
    assert started.go(2) == [0]
    assert_same_run(started, two)


@pytest.mark.slow
def test_processes_that_were_started_by_hand_are_the_same_and_say_that_they_were_stopped(
    place: Place, job: str, two: Started
) -> None:
    """As Slurm's srun starts them: each is told its number and where the first one is, and gets the signal itself."""
    started = place(job)
    started.begin(2, by_hand=True, pace=0.05)
    started.wait_for(5)
    for agent in started.agents:
        agent.send_signal(signal.SIGUSR1)
    assert started.end() == [75, 75], started.launched
    assert started.go(2, by_hand=True, mishaps=f"nan:1:{NAN} kill:1:35")[0] == 1, started.launched
    assert started.go(2, by_hand=True) == [0, 0], started.launched
    assert_same_run(started, two)


# The same tensors.


@pytest.mark.parametrize("processes", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 3, 4))])
def test_what_was_saved_is_loaded_bit_by_bit(alone: Started, two: Started, sharded: Started, processes: int) -> None:
    assert_loaded(processes, alone, two, sharded)


def assert_loaded(processes: int, *saved: Started) -> None:
    """Each run's newest checkpoint, as whole tensors and in parts, and put together again, is what its files hold."""
    reader = saved[0]
    script = (str(HERE / "reshard.py"), *(str(started.run) for started in saved))
    assert not any(reader.go(processes, by_hand=processes > 1, script=script)), reader.launched
    assert reader.said(0).splitlines()[-2 * len(saved):] == [
        f"{started.run} {how}: the same" for started in saved for how in ("whole", "in parts")]


def test_one_process_opens_what_many_have_saved_in_pieces(sharded: Started) -> None:
    scores = json.loads((sharded.run / "scores.json").read_text())
    assert load(sharded.run, device="cpu").evaluate("val") == scores["val"]


# Processes that are killed.


def assert_same_run(started: Started, other: Started) -> None:
    last = f"checkpoints/step-{newest(other):08d}"
    for name in ("model.safetensors", f"{last}/model.safetensors", f"{last}/optimizer.safetensors"):
        assert (started.run / name).read_bytes() == (other.run / name).read_bytes(), name
    assert started.losses() == other.losses()


def recoveries(started: Started, kills: Sequence[float]) -> list[float]:
    """Seconds from each kill to the first step of the processes that come after it."""
    born: dict[int, float] = {}
    for line in started.diary():
        born.setdefault(line["process"], line["time"])
    return [min((time for time in born.values() if time > kill), default=inf) - kill for kill in kills]


def test_a_run_whose_processes_are_killed_ends_as_if_they_had_not_been(place: Place, job: str, two: Started) -> None:
    """On two machines with one process each: each torchrun has its own count of restarts."""
    started = place(job)
    mishaps = f"kill:1:7 kill:0:23 nan:1:{NAN}"
    assert started.go(2, machines=2, launcher=["--max-restarts", "2"], mishaps=mishaps) == [0, 0], started.launched
    assert_same_run(started, two)
    assert len({line["process"] for line in started.diary()}) == 6
    kills = [file.stat().st_mtime for file in (started.folder / "diary").glob("kill-*")]
    assert len(kills) == 2
    assert max(recoveries(started, kills)) < RECOVERY
    assert "Traceback" not in started.said(0)  # of both machines


def kill_one(started: Started, dice: random.Random, seen: set[int], *, starting: bool) -> float:
    """Kill one of two processes that were not there before: while they are `starting`, or when they learn again."""
    steps = len(started.diary())
    until(started, lambda: len(set(workers(started)) - seen) == 2)
    if not starting:
        until(started, lambda: len(started.diary()) > steps)
    time.sleep(dice.uniform(0, 1))
    seen |= set(workers(started))
    os.kill(dice.choice(workers(started)), signal.SIGKILL)
    return time.time()


@pytest.mark.slow
@ON_LINUX
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("settings", [(), ("train.fsdp=true",)], ids=["whole", "sharded"])
def test_twenty_kills_at_any_moment_change_nothing(place: Place, job: str, settings: tuple[str, ...]) -> None:
    settings = (*settings, "train.steps=400", "train.evaluate_every=60")
    unharmed = place(job, *settings)
    assert unharmed.go(2) == [0]
    dice = random.Random()
    started = place(job, *settings)
    started.begin(2, launcher=["--max-restarts", "20"], pace=0.05)
    seen: set[int] = set()
    kills = [kill_one(started, dice, seen, starting=number % 4 == 0) for number in range(20)]
    assert started.end() == [0], started.launched
    assert_same_run(started, unharmed)
    assert len(list(started.logs.glob("*/*/attempt_*"))) == 21, "one restart for each kill"
    # Some are killed again before they can have recovered.
    found = sorted(recoveries(started, [kill for number, kill in enumerate(kills) if number % 4 != 3]))
    print(f"recovered within {found[0]:.1f} to {found[-1]:.1f} s, mostly {found[len(found) // 2]:.1f} s")
    assert found[-1] < RECOVERY


@pytest.mark.slow
@ON_LINUX
def test_machines_join_a_run_and_leave_it(place: Place, job: str) -> None:
    started = place(job, "train.steps=2000")
    where = [*endpoint(), "--rdzv-id", "test", "--nnodes", "1:2", "--max-restarts", "3", "--rdzv-conf",
             "last_call_timeout=2,keep_alive_interval=3,keep_alive_max_attempt=3"]

    def machine() -> None:  # the variable: else torch 2.13 waits for the newcomer in vain
        command = [*started.torchrun(1, *where), *started.work()]
        started.launch(command, pace=0.05, TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")

    started.logs.mkdir()
    machine()
    until(started, lambda: {line["size"] for line in started.diary()} == {1})
    machine()
    until(started, lambda: [line["size"] for line in started.diary()[-2:]] == [2, 2])
    leaver = started.agents.pop()
    for process in [leaver.pid, *children(leaver.pid)]:
        os.kill(process, signal.SIGKILL)
    leaver.wait()
    shared_steps = {line["step"] for line in started.diary() if line["size"] == 2}
    until(started, lambda: started.diary()[-1]["size"] == 1 and started.diary()[-1]["step"] > max(shared_steps))
    started.agents[0].terminate()
    started.end()
    assert newest(started) > max(shared_steps)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_run_with_a_stopped_process_ends_and_goes_on_bit_for_bit(
    place: Place, job: str, two: Started, rank: int
) -> None:
    started = place(job, "train.timeout=3")
    started.begin(2, by_hand=True, pace=0.05, mishaps=f"nan:1:{NAN}")
    started.wait_for(12)
    agents = list(started.agents)
    agents[rank].send_signal(signal.SIGSTOP)
    assert agents[1 - rank].wait(LONGEST) == 1
    assert f"rank {rank} (process {agents[rank].pid} on " in started.said(1 - rank)
    assert "has been silent for 3 s, and train.timeout is 3 s" in started.said(1 - rank)
    agents[rank].kill()
    started.end()
    assert started.go(2, by_hand=True, mishaps=f"nan:1:{NAN}") == [0, 0], started.launched
    assert_same_run(started, two)


@pytest.mark.slow
@ON_LINUX
@pytest.mark.parametrize(("rank", "restarts"), [(0, 0), (1, 1)])
def test_under_torchrun_a_stopped_process_is_named_in_time_and_the_run_goes_on_bit_for_bit(
    place: Place, job: str, two: Started, rank: int, restarts: int
) -> None:
    """By itself if torchrun may restart it, which waits half a minute for a process that ignores SIGTERM."""
    started = place(job, "train.timeout=3")
    started.begin(2, pace=0.05, mishaps=f"nan:1:{NAN}", launcher=["--max-restarts", str(restarts)])
    started.wait_for(12)
    stopped = process_of(started, rank)
    os.kill(stopped, signal.SIGSTOP)
    began = time.monotonic()
    until(started, lambda: "has been silent" in started.said(1 - rank))
    assert 1.5 < time.monotonic() - began < 3 + RECOVERY
    assert f"regard: rank {rank} (process {stopped} on {socket.gethostname()}) has been silent for 3 s, and " in (
        started.said(1 - rank))
    assert started.end() == [1 - restarts], started.launched
    assert not Path(f"/proc/{stopped}").exists()  # torchrun has killed it
    if not restarts:
        assert started.go(2, mishaps=f"nan:1:{NAN}") == [0], started.launched
    assert_same_run(started, two)


def process_of(started: Started, rank: int) -> int:
    """The process of a rank among those that one torchrun has started."""
    wanted = f"RANK={rank}".encode()
    [agent] = started.agents
    [found] = [number for number in children(agent.pid)
               if wanted in Path(f"/proc/{number}/environ").read_bytes().split(b"\0")]
    return found


# Processes that make a mistake.


def test_a_mistake_in_the_data_is_said_once(tmp_path: Path, place: Place) -> None:
    (tmp_path / "pairs.tsv").write_text("one\tun\ntwo\n")
    started = place("translate")
    command = (str(HERE / "mishaps.py"), "train", "--data", str(tmp_path / "pairs.tsv"), "--out", str(started.run))
    began = time.monotonic()
    assert started.go(2, script=command) == [1]
    assert time.monotonic() - began < 30
    assert started.said(0) + started.said(1) == (
        f"regard: {tmp_path / 'pairs.tsv'}:2: one column instead of two: source, a tab, target\n")
    assert not started.run.exists()


@pytest.mark.slow
def test_a_mistake_in_the_settings_is_said_once(place: Place) -> None:
    started = place("translate", "model.widht=3")
    assert started.go(2) == [1]
    assert started.said(0) + started.said(1) == "regard: model.widht: no such setting; did you mean model.width?\n"


@pytest.mark.slow
def test_an_error_of_one_process_ends_all_of_them_soon(place: Place, job: str) -> None:
    started = place(job)
    began = time.monotonic()
    assert started.go(2, mishaps="raise:1:8") == [1]
    assert time.monotonic() - began < 30
    assert "ValueError: a mishap" in started.said(1)
    assert "Traceback" not in started.said(0)


@pytest.mark.slow
def test_a_run_that_has_ended_says_so_once_and_can_be_lengthened(place: Place, job: str) -> None:
    started = place(job, "train.steps=4")
    assert started.go(2) == [0]
    assert started.go(2) == [0]
    assert "has ended, after 4 steps" in started.said(0)
    assert started.said(1) == ""
    assert started.go(2, script=started.work("--extend", "3")) == [0], started.launched
    assert started.said(1) == ""
    assert list(started.losses()) == list(range(1, 8))


@pytest.mark.slow
def test_processes_wait_for_the_first_to_read_the_data_however_long_it_takes(place: Place, job: str) -> None:
    started = place(job, "train.steps=4")
    assert started.go(2, patience=5) == [0], started.launched + started.said(1)
