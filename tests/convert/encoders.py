"""Encoders of the known families as transformers makes them, tiny and of odd sizes, and the same ones here."""

from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from towers import shaken

from regard.checkpoint import load_weights
from regard.convert.import_export import read_run_model
from regard.convert.model_spec import ModelSpec
from regard.data.tokenizer import Tokenizer
from regard.nn.mask import Mask
from regard.settings.load import load

VOCABULARY = 320
BERT: dict[str, Any] = {"hidden_size": 15, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 21,
                        "max_position_embeddings": 24}
SMALL: dict[str, dict[str, Any]] = {
    "bert": BERT, "roberta": BERT, "electra": BERT | {"embedding_size": 7},
    "distilbert": {"dim": 15, "n_layers": 2, "n_heads": 3, "hidden_dim": 21, "max_position_embeddings": 24},
    "longformer": BERT | {"attention_window": [4, 4]},
}
CLASSES = {"backbone": "AutoModel", "masked-lm": "AutoModelForMaskedLM", "sentences": "AutoModelForPreTraining",
           "discriminator": "AutoModelForPreTraining", "sequence-labels": "AutoModelForSequenceClassification",
           "token-labels": "AutoModelForTokenClassification"}
KINDS = [(name, kind) for name in SMALL for kind in ("backbone", "masked-lm", "sequence-labels", "token-labels")]
KINDS += [("bert", "sentences"), ("electra", "discriminator")]
LABELS = {0: "neither", 1: "Spaß", 2: "a, b"}


def peer(name: str, kind: str, **config: Any) -> Any:
    """transformers' own, with random weights."""
    names = {"id2label": LABELS, "label2id": {label: id for id, label in LABELS.items()}}
    there = transformers.AutoConfig.for_model(name, **{"vocab_size": VOCABULARY, **names, **SMALL[name], **config})
    return shaken(getattr(transformers, CLASSES[kind]).from_config(there))


def published(folder: Path, model: Any, tokens: Tokenizer) -> Path:
    model.save_pretrained(folder)
    tokens.save(folder / "tokenizer.json")
    return folder


def opened(folder: Path) -> nn.Module:
    """The model of a run directory."""
    run = load(folder / "run.json")
    sizes, weights = read_run_model(folder, run)
    model = ModelSpec.of(run, sizes, pad=0).model().eval()
    load_weights(model, weights, origin=str(folder))
    return model


def batch(pad: int) -> tuple[Tensor, Tensor, Tensor]:
    """Two rows of ids, their segments, and what of them is real."""
    ids, segments, real = torch.randint(3, 300, (2, 9)), torch.randint(0, 2, (2, 9)), torch.ones(2, 9).bool()
    real[1, 6:] = False
    return ids.where(real, pad), segments, real


@torch.no_grad()
def theirs(model: Any, ids: Tensor, segments: Tensor, real: Tensor) -> dict[str, Tensor]:
    more: dict[str, Tensor] = {} if model.config.model_type == "distilbert" else {"token_type_ids": segments}
    if model.config.model_type == "longformer":
        more["global_attention_mask"] = _first(real).long()
    return dict(model(ids, attention_mask=real.long(), **more).items())


@torch.no_grad()
def ours(model: Any, ids: Tensor, segments: Tensor, real: Tensor) -> Tensor:
    """States of a bare encoder, logits of any other."""
    encoder = model.encoder
    mask = Mask(keys=real, globals=None if encoder.window is None else _first(real))
    found: Tensor = model(ids, mask=mask, segments=None if encoder.inputs.segments is None else segments)
    return model.logits(found) if hasattr(model, "words") else found


def _first(real: Tensor) -> Tensor:
    first = torch.zeros_like(real)
    first[:, 0] = True
    return first
