"""`regard` with closed streams, broken pipes and closed terminals: what became of it, as one JSON object on stdout.

    python streams.py FOLDER

Importing torch takes seconds, so one process does it and forks: each child is `regard ARGUMENTS` from then on.
"""

import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios
import time
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1]) if __name__ == "__main__" else Path()
PATIENCE = 120.0  # seconds, on a machine that has much else to do
SMALL = ("model.width=8", "model.depth=1", "model.heads=2", "tokens.vocabulary=300", "train.batch_tokens=64",
         "train.evaluate_every=1000000", "train.save_every=1000000", "train.log_every=1", "search.max_tokens=4",
         "device=cpu")
NOT_EMPTIED = 99
STREAMS = ("stdin", "stdout", "stderr")
FILES = {
    "pairs.tsv": "".join(f"le chat {n} dort\tthe cat {n} sleeps\n" for n in range(12)),
    "labels.tsv": "".join(f"le chat {n}\tcat\nle chien {n}\tdog\n" for n in range(12)),
    "text.txt": "\n\n".join(f"the cat {n} sleeps, and the dog sleeps too" for n in range(12)),
}


def settings(**more: int) -> list[str]:
    return [word for text in (*SMALL, *(f"train.{name}={value}" for name, value in more.items()))
            for word in ("--set", text)]


def train(out: str, task: str = "translate", data: str = "pairs.tsv", **how: int) -> list[str]:
    return ["train", task, "--data", data, "--out", out, *settings(**how)]


ENDLESS = {"steps": 1_000_000}
VERBS = {
    "train": train("translator", steps=2), "train classify": train("classifier", "classify", "labels.tsv", steps=2),
    "train language": [*train("writer", "language", "text.txt", steps=2), "--set", "data.max_tokens=16"],
    "train again": train("translator", steps=2),
    "plan": ["plan", "translate", "--data", "pairs.tsv", *settings(steps=2)],
    "eval": ["eval", "--run", "translator"], "eval --json": ["eval", "--run", "classifier", "--json"],
    "predict": ["predict", "--run", "translator", "le chat"],
    "predict, streaming": ["predict", "--run", "writer", "the cat"],
    "predict --score": ["predict", "--run", "writer", "--score", "the cat"],
    "predict --embed": ["predict", "--run", "classifier", "--embed", "vectors.npy", "le chat"],
    "predict --embed -": ["predict", "--run", "classifier", "--embed", "-", "le chat"],
    "convert": ["convert", "writer", "--out", "converted"],
    "runs": ["runs", "."], "settings": ["settings", "width"],
    "measure": ["measure", "--run", "translator", "--limit", "1", "--ablate"],
    "check": ["check", "--run", "classifier"],
    "explain": ["explain", "--example"],
    "explain --word": ["explain", "--run", "classifier", "--word", "chat", "le chat 1", "le chat 2"],
    "look": ["look", "--run", "translator", "le chat", "--no-open"],
    "look --terminal": ["look", "--run", "translator", "le chat", "--terminal"],
    "wrong": ["wrong", "--run", "translator"],
    "--version": ["--version"], "--help": ["--help"],
}
READS = {
    "predict from stdin": ["predict", "--run", "translator"],
    "predict -": ["predict", "--run", "writer", "-"],
    "predict --embed from stdin": ["predict", "--run", "classifier", "--embed", "vectors.jsonl"],
}


def command(arguments: Sequence[str], closed: Sequence[int] = ()) -> int:
    """The exit code, in a child. A closed stream must be the null device afterwards: else a file has its number."""
    from regard.cli import main

    for number in closed:
        os.close(number)
        setattr(sys, STREAMS[number], None)
    sys.argv = ["regard", *arguments]
    try:
        main()
    except SystemExit as ended:
        null = os.stat(os.devnull)
        return int(ended.code or 0) if all(os.path.samestat(os.fstat(n), null) for n in closed) else NOT_EMPTIED


def fork(arguments: Sequence[str], *, closed: Sequence[int] = (), ignored: Sequence[int] = (),
         stderr: int | None = None, reader: int | None = None, terminal: bool = False) -> tuple[int, int]:
    """A child's number and, with a terminal of its own, our side of that."""
    pid, ours = pty.fork() if terminal else (os.fork(), -1)
    if pid:
        return pid, ours
    code = 70
    try:
        if reader is not None:
            os.close(reader)  # a pipe breaks when nobody has it open for reading
        signal.signal(signal.SIGINT, signal.default_int_handler)  # the tests themselves may have been started with &
        for number in (signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)
        if not terminal:
            said = os.open("said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(said, 1)
            os.dup2(said if stderr is None else stderr, 2)
        sys.stdout, sys.stderr = (open(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))  # noqa: SIM115
        code = command(arguments, closed)
    except BaseException:  # noqa: BLE001 (the tests are told of it)
        with open("raised", "a", encoding="utf-8") as file:  # whatever became of stderr
            traceback.print_exc(file=file)
    finally:
        try:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
        except OSError:
            code = 120  # as Python's own end has it
        os._exit(code)


def wait(pid: int) -> int:
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def at_work(pid: int, out: str) -> None:
    """Until its first steps are done."""
    began, file = time.monotonic(), Path(out, "metrics.jsonl")
    while not (file.exists() and file.read_bytes().count(b'{"kind": "step"') >= 2):
        assert time.monotonic() - began < PATIENCE, f"{out}: no step"
        assert os.waitpid(pid, os.WNOHANG) == (0, 0), f"{out}: ended before it was asked"
        time.sleep(0.005)


# What may happen. Each gives the exit code.


def with_closed_streams(arguments: Sequence[str]) -> int:
    return wait(fork(arguments, closed=(0, 1, 2))[0])


def with_closed_stdin(arguments: Sequence[str]) -> list[Any]:
    code = wait(fork(arguments, closed=(0,))[0])
    return [code, Path("said").read_text()]


def tee_dies_first() -> int:
    """`regard train … 2>&1 | tee log`, Ctrl-C."""
    theirs, ours = os.pipe()
    tee = subprocess.Popen(["tee", "log"], stdin=theirs, stdout=subprocess.DEVNULL)
    os.close(theirs)
    pid, _ = fork(train("teed", **ENDLESS), stderr=ours)
    os.close(ours)
    at_work(pid, "teed")
    tee.kill()
    tee.wait()
    os.kill(pid, signal.SIGINT)
    return wait(pid)


def reader_leaves() -> int:
    """`regard train … 2>&1 | head -1`: the training goes on to its end."""
    theirs, ours = os.pipe()
    pid, _ = fork(train("unread", steps=6), stderr=ours, reader=theirs)
    os.close(ours)
    os.read(theirs, 1)
    os.close(theirs)
    return wait(pid)


def terminal_closes(out: str, ignored: Sequence[int] = (), **how: int) -> int:
    pid, ours = fork(train(out, **how), terminal=True, ignored=ignored)
    fcntl.ioctl(ours, termios.TIOCSWINSZ, b"\x18\x00\x50\x00\x00\x00\x00\x00")
    os.set_blocking(ours, False)
    began, file = time.monotonic(), Path(out, "metrics.jsonl")
    while not (file.exists() and b'{"kind": "step"' in file.read_bytes()):
        assert time.monotonic() - began < PATIENCE, f"{out}: no step"
        try:
            os.read(ours, 65536)  # or it would wait for us
        except BlockingIOError:
            time.sleep(0.002)
    os.close(ours)
    return wait(pid)


def signals(out: str, *numbers: int, ignored: Sequence[int] = (), **how: int) -> int:
    pid, _ = fork(train(out, **how), ignored=ignored)
    at_work(pid, out)
    for number in numbers:
        os.kill(pid, number)
        time.sleep(0.01)
    return wait(pid)


SCENES: dict[str, Callable[[], int]] = {
    "tee": tee_dies_first,
    "head": reader_leaves,
    "closed terminal": lambda: terminal_closes("hung", **ENDLESS),
    "closed terminal, nohup": lambda: terminal_closes("nohup", (signal.SIGHUP,), steps=40),
    "SIGHUP thrice": lambda: signals("thrice", *[signal.SIGHUP] * 3, **ENDLESS),
    "SIGINT ignored": lambda: signals("deaf", signal.SIGINT, ignored=(signal.SIGINT, signal.SIGHUP), steps=40),
}

if __name__ == "__main__":
    os.chdir(FOLDER)
    for name, text in FILES.items():
        Path(name).write_text(text)
    for module in ("torch._dynamo", "regard.predictor", "regard.training.loop"):
        import_module(module)  # once for all

    found: dict[str, Any] = {name: with_closed_streams(arguments) for name, arguments in VERBS.items()}
    found |= {name: with_closed_stdin(arguments) for name, arguments in READS.items()}
    found |= {name: scene() for name, scene in SCENES.items()}
    print(json.dumps(found))
