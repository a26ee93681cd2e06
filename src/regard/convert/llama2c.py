"""llama2.c's files: a `.bin` of weights (its version 0) and a `.bin` of tokens. Read as a Llama; never written.

    model      seven int32 (width, hidden width, depth, heads, key heads, vocabulary, positions), then float32
    tokens     the longest length (int32), then of each token its score (float32), its length (int32) and its bytes

A negative vocabulary says that the output has a matrix of its own, which is then the last.
"""

import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, normalizers
from torch import Tensor

from regard.data.published import Specials
from regard.data.tokenizer import Tokenizer
from regard.settings.errors import UserError
from regard.settings.opening import to_read

__all__ = ["read_model", "read_tokens"]

HEADER = 7 * 4
SPECIALS = Specials(pad=2, start=1, end=2)
FIRST_PIECE = 3 + 256  # after <unk>, <s>, </s> and a token for each byte


def read_model(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The config and the tensors that transformers would have of this model."""
    content = _content(path)
    if len(content) < HEADER:
        raise UserError(f"{path}: {len(content):,} bytes are too few for a model of llama2.c")
    width, hidden, depth, heads, groups, vocabulary, longest = struct.unpack_from("<7i", content)
    least = min(width, hidden, depth, heads, groups, abs(vocabulary), longest)
    if least < 1 or width % heads or heads % groups or width // heads % 2:
        raise UserError(f"{path}: not a model of llama2.c, version 0: it begins with width={width}, "
                        f"hidden width={hidden}, depth={depth}, heads={heads}, key heads={groups}, "
                        f"vocabulary={vocabulary}, positions={longest}")
    head = width // heads
    shapes = {
        "model.embed_tokens.weight": (abs(vocabulary), width),
        "input_layernorm.weight": (depth, width),
        "self_attn.q_proj.weight": (depth, width, width),
        "self_attn.k_proj.weight": (depth, groups * head, width),
        "self_attn.v_proj.weight": (depth, groups * head, width),
        "self_attn.o_proj.weight": (depth, width, width),
        "post_attention_layernorm.weight": (depth, width),
        "mlp.gate_proj.weight": (depth, hidden, width),
        "mlp.down_proj.weight": (depth, width, hidden),
        "mlp.up_proj.weight": (depth, hidden, width),
        "model.norm.weight": (width,),
        "angles": (2, longest, head // 2),  # cosines and sines, which follow from the rest
    } | ({"lm_head.weight": (-vocabulary, width)} if vocabulary < 0 else {})
    wanted = HEADER + 4 * sum(map(math.prod, shapes.values()))
    if len(content) != wanted:
        raise UserError(f"{path}: has {len(content):,} bytes, but a model of llama2.c with its sizes has {wanted:,}")
    parts = torch.from_numpy(np.frombuffer(content, "<f4", offset=HEADER).astype(np.float32)).split(
        [math.prod(shape) for shape in shapes.values()])
    stacked = {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
    tensors = {name: stacked[name] for name in shapes if name.startswith(("model.", "lm_head."))}
    for name in (name for name in shapes if name.startswith(("input_", "self_attn.", "post_", "mlp."))):
        for layer, tensor in enumerate(stacked[name]):
            is_turned = name.startswith(("self_attn.q", "self_attn.k"))
            tensors[f"model.layers.{layer}.{name}"] = _in_halves(tensor, head) if is_turned else tensor
    config = {
        "model_type": "llama", "hidden_size": width, "intermediate_size": hidden, "num_hidden_layers": depth,
        "num_attention_heads": heads, "num_key_value_heads": groups, "vocab_size": abs(vocabulary),
        "max_position_embeddings": longest, "rms_norm_eps": 1e-5, "tie_word_embeddings": vocabulary > 0,
    }
    return config, tensors


def _in_halves(matrix: Float[Tensor, "rows width"], head: int) -> Float[Tensor, "rows width"]:
    """Rotary positions turn the planes (2j, 2j + 1) of a head there, (j, j + head/2) here."""
    planes: Tensor = matrix.unflatten(0, (-1, head // 2, 2))
    return planes.transpose(1, 2).flatten(0, 2)


def read_tokens(path: Path, *, vocabulary: int) -> Tokenizer:
    """Its pieces with their scores, as a vocabulary whose merges are in the order of the scores.

    There, of all neighbours that make up a piece those of the best score are joined, the leftmost first. Two ways to
    make one piece have one score there, but two ranks here: where they overlap (`aaa` is a + aa and aa + a), the
    leftmost need not be first.
    """
    pieces = _pieces(path, vocabulary)
    ids = {piece: id for id, (piece, _) in enumerate(pieces)}
    if len(ids) != len(pieces):
        raise UserError(f"{path}: a piece comes twice")
    learned = dict(pieces[FIRST_PIECE:])
    merges = [(piece[:cut], piece[cut:]) for piece in sorted(learned, key=lambda piece: (-learned[piece], ids[piece]))
              for cut in range(1, len(piece)) if piece[:cut] in learned and piece[cut:] in learned]
    library = Library(models.BPE(ids, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=False))
    library.normalizer = normalizers.Prepend(" ")
    library.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    library.add_special_tokens(["<unk>", "<s>", "</s>"])
    return Tokenizer(library, SPECIALS)


def _pieces(path: Path, vocabulary: int) -> list[tuple[str, float]]:
    content, place, pieces = _content(path), 4, list[tuple[bytes, float]]()
    while place < len(content):
        score, length = struct.unpack_from("<fi", content, place) if place + 8 <= len(content) else (0.0, -1)
        piece = content[place + 8 : place + 8 + length]
        if length < 0 or len(piece) < length or math.isnan(score):
            raise UserError(f"{path}: not tokens of llama2.c: token {len(pieces)} at byte {place} is cut or broken")
        pieces.append((piece, score))
        place += 8 + length
    if len(pieces) != vocabulary:
        raise UserError(f"{path}: has {len(pieces):,} tokens, but the model has {vocabulary:,}")
    names = [b"<unk>", b"<s>", b"</s>", *(b"<0x%02X>" % byte for byte in range(256))]
    if [piece.strip() for piece, _ in pieces[:FIRST_PIECE]] != names:  # llama2.c puts <s> between line breaks
        raise UserError(f"{path}: not tokens of llama2.c: the first are not <unk>, <s>, </s> and one for each byte")
    try:
        learned = [(piece.decode(), score) for piece, score in pieces[FIRST_PIECE:]]
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: a piece is not UTF-8: {error.object!r}") from None
    return [*((name.decode(), 0.0) for name in names), *learned]


def _content(path: Path) -> bytes:
    try:
        with open(path, "rb", opener=to_read) as file:
            return file.read()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None
