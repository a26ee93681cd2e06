"""A run directory. Each part is written atomically.

    runs/NAME/  run.json  config.json  model.safetensors  tokenizer.json  metrics.jsonl  data/
                checkpoints/step-00000500/  model.safetensors optimizer.safetensors state.json MANIFEST.json

`files.py` writes one file, `checkpoint.py` one checkpoint, `saver.py` many of them during training.
"""

from regard.checkpoint.checkpoint import PARTS, Checkpoint, average, newest, prune, save_checkpoint, versions
from regard.checkpoint.files import read_json, read_labels, read_list, write_json, write_tensors
from regard.checkpoint.saver import Saver
from regard.checkpoint.weights import load_weights, named_tensors, refuse_misfits, refuse_not_finite, write_model

__all__ = ["PARTS", "Checkpoint", "Saver", "average", "load_weights", "named_tensors", "newest", "prune", "read_json",
           "read_labels", "read_list", "refuse_misfits", "refuse_not_finite", "save_checkpoint", "versions",
           "write_json", "write_model", "write_tensors"]
