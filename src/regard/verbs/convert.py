"""`regard convert`: other people's models in, ours out."""

import json as jsons
import sys
from pathlib import Path

from regard.settings.errors import UserError

__all__ = ["main"]


def main(source: Path, out: Path, tokens: Path | None, precision: str | None, json: bool) -> None:
    for path in (source, tokens):
        if path is not None and not path.exists():
            raise UserError(f"{path}: no such file or folder")
    is_run = (source / "run.json").is_file()
    if is_run and tokens is not None:
        raise UserError(f"--tokenizer {tokens}: a run directory has its own")

    import torch

    from regard.convert.run import export_run, import_run

    kind: torch.dtype | None = None if precision is None else getattr(torch, precision)
    if is_run:
        published = export_run(source, out, precision=kind)
    else:
        published = import_run(source, out, tokens=tokens, precision=kind)
    parameters = sum(tensor.numel() for tensor in published.weights.values())
    if json:
        print(jsons.dumps({"out": str(out), "family": published.family.name, "parameters": parameters,
                           "vocabulary": published.vocabulary, "is_run": not is_run}, ensure_ascii=False))
    else:
        print(f"{published.family.name}: {parameters:,} parameters, {len(published.tokens):,} tokens", file=sys.stderr)
        print(out)
