"""`regard convert`: import published models, export our own."""

import json as jsons
from collections.abc import Sequence
from pathlib import Path

from regard.settings.errors import UserError
from regard.stdio import print_message, print_result

__all__ = ["main"]


def main(source: Path, out: Path, tokens: Path | None, data: Sequence[Path], precision: str | None,
         json: bool, *, verify: bool = True) -> None:
    for path in (source, *([tokens] if tokens else []), *data):
        if not path.exists():
            raise UserError(f"{path}: no such file or folder")
    is_run = (source / "run.json").is_file()
    if is_run and (tokens or data):
        raise UserError(f"{tokens or data[0]}: {source} is a run directory, with its own tokenizer and "
                            "data; remove the option")

    import torch

    from regard.convert.import_export import export_run, import_run

    kind: torch.dtype | None = None if precision is None else getattr(torch, precision)
    if is_run:
        published = export_run(source, out, precision=kind, verify=verify)
    else:
        published = import_run(source, out, tokens=tokens, data=data, precision=kind)
    parameters = sum(tensor.numel() for tensor in published.weights.values())
    if json:
        print_result(jsons.dumps({"out": str(out), "family": published.family.name, "parameters": parameters,
                                  "vocabulary": published.vocabulary, "is_run": not is_run}, ensure_ascii=False))
    else:
        print_message(f"{published.family.name}: {parameters:,} parameters, {published.reads}")
        print_result(out)
