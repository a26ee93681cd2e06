"""`regard predict --embed`: a vector for each input, into a file or as lines of JSON."""

import json as jsons
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

from regard.settings.errors import Failure, UserError
from regard.settings.opening import remove, to_write
from regard.stdio import escape_controls, print_message, print_result
from regard.verbs.predict import batched, check_stdin, read_inputs
from regard.verbs.runs import chosen

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Float

__all__ = ["main"]

STDOUT = "-"
MAX_INPUTS_AT_ONCE = 4_096  # enough to find many of one length, and a few megabytes of vectors


class Sink(Protocol):
    """A writer of vectors."""

    def write(self, inputs: Sequence[str], vectors: "Float[np.ndarray, 'inputs width']") -> None: ...


def main(inputs: Sequence[str], run: Path | None, where: str, device: str, precision: str, quantize: str | None,
         json: bool, *, verify: bool = True, input_tokens: int | None = None) -> None:
    check_stdin(inputs)
    folder, place = chosen(run), Path(where)
    if where != STDOUT and place.suffix not in (".npy", ".jsonl"):
        raise UserError(f"--embed {where}: must be a .npy or a .jsonl, or - for lines of JSON on stdout")
    if where != STDOUT and (place.is_dir() or not place.parent.is_dir()):
        raise UserError(f"{place}: {'a folder, not a file' if place.is_dir() else 'no such folder'}")

    from regard.predictor import load

    predictor = load(folder, device=device, precision=precision, quantize=quantize, verify=verify,
                     input_tokens=input_tokens)
    width, count = predictor.embed([]).shape[1], 0  # a run without vectors fails here, before a file exists
    with _lines(sys.stdout.buffer) if where == STDOUT else _file(place, width) as sink:
        reader = predictor.task.inputs
        for some in batched(read_inputs(inputs, reader), MAX_INPUTS_AT_ONCE):
            sink.write(list(map(reader.show, some)), predictor.embed(some))
            count += len(some)
    for note in predictor.task.notes.take():
        print_message(f"note: {note}")
    if where != STDOUT:
        print_result(jsons.dumps({"file": where, "inputs": count, "width": width}) if json else where)


@contextmanager
def _file(place: Path, width: int) -> Iterator[Sink]:
    """A file that gets its name when it is complete."""
    new = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        remove(new)
        with (open(new, "xb", opener=to_write) as file,
              _array(file, width) if place.suffix == ".npy" else _lines(file) as sink):
            yield sink
        new.replace(place)
    except OSError as error:
        raise Failure(f"{place}: cannot be written: {error.strerror or error}") from None
    finally:
        new.unlink(missing_ok=True)


@contextmanager
def _lines(file: BinaryIO | BufferedIOBase) -> Iterator[Sink]:
    class Lines:
        def write(self, inputs: Sequence[str], vectors: "Float[np.ndarray, 'inputs width']") -> None:
            for shown, vector in zip(inputs, vectors, strict=True):
                numbers = ", ".join(f"{number:.6g}" for number in vector.tolist())  # float32 has hardly more digits
                quoted = jsons.dumps(shown, ensure_ascii=False)
                quoted = escape_controls(quoted) if file.isatty() else quoted
                file.write(f'{{"input": {quoted}, "vector": [{numbers}]}}\n'.encode())
            file.flush()

    yield Lines()


@contextmanager
def _array(file: BinaryIO | BufferedIOBase, width: int) -> Iterator[Sink]:
    """numpy's file. Its header contains the number of rows, so it is written again at the end."""
    import numpy as np

    def header(rows: int) -> None:
        file.seek(0)
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f4", "fortran_order": False, "shape": (rows, width)})

    class Array:
        rows = 0

        def write(self, inputs: Sequence[str], vectors: "Float[np.ndarray, 'inputs width']") -> None:
            file.write(np.ascontiguousarray(vectors, dtype="<f4").data)
            self.rows += len(inputs)

    array = Array()
    header(0)
    start = file.tell()
    yield array
    header(array.rows)
    assert file.tell() == start, "numpy leaves room for the number of rows"
