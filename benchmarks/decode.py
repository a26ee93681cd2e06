"""Writing token by token with GPT-2: ours, CTranslate2 (if it is installed) and transformers, in turns.

    python benchmarks/decode.py                 # a CPU: the likeliest token; float32, bfloat16, float16, int8 weights
    python benchmarks/decode.py --device cuda   # a GPU: drawn among 50, bfloat16, 124M and 1.5B parameters

All have the same random weights and write equally many tokens, whatever they are. The memory limit is the time that
the weights of a step take to arrive, at the speed of a copy measured in the same run.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from elsewhere import elsewhere
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

from regard.convert.gpt2 import GPT2
from regard.convert.model_spec import ModelSpec
from regard.device import choose_device, large_pages
from regard.generate.sampler import Sampler, Sampling, sample
from regard.kernels.cuda_graphs import Captures
from regard.kernels.quantize import quantize
from regard.models.decoder import Decoder
from regard.settings.presets import PRESETS

VOCABULARY = 50_257
PROMPT = 16
NEVER = VOCABULARY  # an id that no model says: nothing ends before its time
REST = 0.3  # seconds in which the threads of one library, which wait by turning, give way to those of the next
CPU = torch.device("cpu")


@dataclass
class Contestant:
    """`write(prompt)` gives the new tokens; a step reads `weights` bytes of weights."""

    name: str
    write: Callable[[Tensor], Tensor]
    weights: int
    most: int | None = None  # timed runs: of what takes long, fewer
    seconds: list[float] = field(default_factory=list)


def read_each_step(model: torch.nn.Module) -> int:
    """Bytes of the parameters but for a table of positions, of which a step reads a row."""
    return sum(p.numel() * p.element_size() for name, p in model.named_parameters()
               if not name.startswith(("positions", "transformer.wpe")))


# The models.


def theirs(preset: str, device: torch.device, precision: torch.dtype) -> GPT2LMHeadModel:
    tower = PRESETS[preset]()
    torch.manual_seed(0)
    with torch.device(device):
        model = GPT2LMHeadModel(GPT2Config(n_embd=tower.width, n_layer=tower.depth, n_head=tower.heads))
    model.generation_config.eos_token_id = model.generation_config.pad_token_id = None
    return model.to(precision).eval()


def ours(peer: GPT2LMHeadModel) -> Decoder:
    """The same weights under our names."""
    tower = GPT2.tower(peer.config.to_dict(), origin="transformers")
    shape = ModelSpec(tower=tower, vocabulary=VOCABULARY)
    weights = GPT2.weights(peer.state_dict(), shape, origin="transformers")
    with torch.device("meta"):
        model = Decoder(tower, vocabulary=VOCABULARY)
    named = GPT2.table(shape).ours(weights, origin="transformers")
    laid = {name: tensor.contiguous() for name, tensor in named.items()}  # theirs are transposed
    model.load_state_dict({**laid, "output.weight": laid["tokens.table.weight"]}, assign=True)
    model.output.weight = model.tokens.table.weight
    return model.requires_grad_(False).eval()


def our_way(model: Decoder, how: Sampling) -> Callable[[Tensor], Tensor]:
    captures: Captures[Sampler] = Captures()

    def write(prompt: Tensor) -> Tensor:
        with torch.inference_mode():
            return torch.stack([drawn.tokens for drawn in sample(model, prompt, how=how, captures=captures)], dim=1)

    return write


def their_way(model: GPT2LMHeadModel, new: int, **more: Any) -> Callable[[Tensor], Tensor]:
    def write(prompt: Tensor) -> Tensor:
        with torch.inference_mode():
            found = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=new, **more)
        return found[:, prompt.shape[1] :].cpu()

    return write


def ctranslate2_way(peer: GPT2LMHeadModel, kind: str, new: int, threads: int) -> Callable[[Tensor], Tensor]:
    import ctranslate2

    with tempfile.TemporaryDirectory() as folder:
        spec = ctranslate2_spec(deepcopy(peer))  # quantising writes over the weights it is given
        spec.optimize(quantization=kind)
        spec.save(folder)
        model = ctranslate2.Generator(folder, device="cpu", compute_type=kind, intra_threads=threads, inter_threads=1)

    def write(prompt: Tensor) -> Tensor:
        found = model.generate_batch(
            [[str(token) for token in row] for row in prompt.tolist()], max_length=new, min_length=new,
            include_prompt_in_result=False, sampling_topk=1)
        return torch.tensor([one.sequences_ids[0] for one in found])

    return write


def ctranslate2_spec(peer: GPT2LMHeadModel) -> Any:
    """As its own converter does, which wants a tokenizer as well."""
    from ctranslate2.specs import common_spec, transformer_spec

    spec = transformer_spec.TransformerDecoderModelSpec.from_config(
        peer.config.n_layer, peer.config.n_head, pre_norm=True, activation=common_spec.Activation.GELUTanh)

    def norm(into: Any, module: torch.nn.LayerNorm) -> None:
        into.gamma, into.beta = module.weight.detach().numpy(), module.bias.detach().numpy()

    def linear(into: Any, module: Any) -> None:
        into.weight, into.bias = module.weight.detach().T.contiguous().numpy(), module.bias.detach().numpy()

    body, decoder = peer.transformer, spec.decoder
    decoder.scale_embeddings = False
    decoder.embeddings.weight = body.wte.weight.detach().numpy()
    decoder.position_encodings.encodings = body.wpe.weight.detach().numpy()
    decoder.projection.weight = peer.lm_head.weight.detach().numpy()
    norm(decoder.layer_norm, body.ln_f)
    for layer, block in zip(decoder.layer, body.h, strict=True):
        norm(layer.self_attention.layer_norm, block.ln_1)
        linear(layer.self_attention.linear[0], block.attn.c_attn)
        linear(layer.self_attention.linear[1], block.attn.c_proj)
        norm(layer.ffn.layer_norm, block.ln_2)
        linear(layer.ffn.linear_0, block.mlp.c_fc)
        linear(layer.ffn.linear_1, block.mlp.c_proj)
    # Tokens are their numbers; the first, which is to be the end, is one that `min_length` keeps away.
    spec.register_vocabulary([str(token) for token in range(VOCABULARY)])
    spec.config.bos_token = spec.config.eos_token = spec.config.unk_token = "0"
    spec.validate()
    return spec


# Who takes part.


def our_kinds(new: int, threads: int) -> dict[str, Callable[[Tensor], Tensor]]:
    torch.set_num_threads(threads)
    choose_device("cpu")  # as regard does when it loads a model
    large_pages(4 << 30)
    model, greedy = ours(theirs("gpt2", CPU, torch.float32)), Sampling(end=NEVER, longest=new, temperature=0)
    found = {"ours float32": model, "ours bfloat16": deepcopy(model).to(torch.bfloat16)}
    for kind in ("float16", "int8"):
        found[f"ours {kind}"] = narrow = deepcopy(model)
        quantize(narrow, kind)
    return {name: our_way(one, greedy) for name, one in found.items()}


def ctranslate2_kinds(new: int, threads: int) -> dict[str, Callable[[Tensor], Tensor]]:
    peer = theirs("gpt2", CPU, torch.float32)
    return {f"ctranslate2 {kind}": ctranslate2_way(peer, kind, new, threads) for kind in ("float32", "int8")}


def transformers_kinds(new: int, threads: int) -> dict[str, Callable[[Tensor], Tensor]]:
    torch.set_num_threads(threads)
    return {"transformers float32": their_way(theirs("gpt2", CPU, torch.float32), new, do_sample=False)}


def on_cpu(new: int, threads: int) -> list[Contestant]:
    """Each library in a process of its own, as its users run it."""
    makers = [our_kinds, ctranslate2_kinds, transformers_kinds]
    if find_spec("ctranslate2") is None:
        makers.remove(ctranslate2_kinds)
        print("ctranslate2 is not installed: left out")
    size = read_each_step(theirs("gpt2", torch.device("meta"), torch.float32))
    share = {"float32": 1, "bfloat16": 2, "float16": 2, "int8": 4}
    return [Contestant(name, write, size // share[name.split()[-1]])
            for maker in makers for name, write in elsewhere(maker, new, threads).items()]


def on_gpu(preset: str, new: int, rows: int) -> list[Contestant]:
    peer = theirs(preset, torch.device("cuda"), torch.bfloat16)
    size, drawn = read_each_step(peer), {"do_sample": True, "temperature": 1.0, "top_k": 50}
    how = Sampling(end=NEVER, longest=new, temperature=1.0, top_k=50)
    narrow = ours(peer)
    quantize(narrow, "int8")
    found = [Contestant("ours bfloat16", our_way(ours(peer), how), size),
             Contestant("ours int8", our_way(narrow, how), size // 2)]
    if preset == "gpt2":
        found.append(Contestant("transformers bfloat16", their_way(peer, new, **drawn), size, most=2))
    if preset == "gpt2" and rows == 1:  # on a GPU transformers compiles the step of a static cache by itself
        found.append(Contestant("transformers compiled", their_way(peer, new, cache_implementation="static", **drawn),
                                size))
    return found


# The race.


def copied_bytes_per_second(device: torch.device) -> float:
    """Read and written, both counted: what the memory gives at the most."""
    source = torch.empty((1 << 32) if device.type == "cuda" else (1 << 29), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    times = [timed(lambda: target.copy_(source), device) for _ in range(8)]
    return 2 * source.numel() / min(times[2:])


def timed(run: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def race(contestants: list[Contestant], rows: int, new: int, repeats: int, device: torch.device) -> list[Contestant]:
    """In turns, after one round that does not count. Who fails is left out, and the failure printed."""
    prompt = torch.randint(VOCABULARY, (rows, PROMPT), generator=torch.Generator().manual_seed(rows)).to(device)
    left, first = [], dict[str, Tensor]()
    for one in contestants:
        one.seconds = []
        try:
            first[one.name] = one.write(prompt)
            if one.most is None:
                one.write(prompt)  # a GPU records or compiles what it meets for the second time
        except (RuntimeError, ValueError, TypeError, AttributeError, ImportError) as error:
            print(f"{one.name}: left out: {type(error).__name__}: {str(error)[:300]}")
            continue
        assert first[one.name].shape == (rows, new), f"{one.name} wrote {tuple(first[one.name].shape)}"
        left.append(one)
    if device.type == "cpu":
        for name in ("transformers float32", "ctranslate2 float32"):
            if name in first:
                same = (first["ours float32"] == first[name]).float().mean()
                print(f"{rows} rows: {100 * same:.1f} % of our float32 tokens are those of {name}")
    for number in range(repeats):
        for one in left:
            if one.most is not None and number >= one.most:
                continue
            time.sleep(REST)
            one.seconds.append(timed(partial(one.write, prompt), device))
    return left


def report(contestants: list[Contestant], rows: int, new: int, limit: float) -> None:
    """Ratios are to each contestant's fellow: how many times as fast we are."""
    speeds = {one.name: rows * new / statistics.median(one.seconds) for one in contestants}
    best = [name for name in speeds if name.startswith("ours")]
    print(f"\n{'':22} {'rows':>4} {'tokens/s':>9} {'fastest':>9} {'of the limit':>13}   " +
          " ".join(f"{name:>15}" for name in best))
    for one in contestants:
        share = speeds[one.name] / rows * one.weights / limit
        ratios = " ".join(f"{speeds[name] / speeds[one.name]:14.2f}×" for name in best)
        print(f"{one.name:22} {rows:4} {speeds[one.name]:9,.1f} {rows * new / min(one.seconds):9,.1f} {share:12.0%}   "
              f"{ratios}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--tokens", type=int, help="new ones for each row (96 on a CPU, 256 on a GPU)")
    parser.add_argument("--repeats", type=int, default=5, help="timed runs of each")
    parser.add_argument("--threads", type=int, help="of a CPU; if not given, as many as torch takes")
    args = parser.parse_args()

    device = choose_device(args.device)
    if args.threads:
        torch.set_num_threads(args.threads)
    threads, new = torch.get_num_threads(), args.tokens or (256 if device.type == "cuda" else 96)
    where = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {threads} threads"
    limit = copied_bytes_per_second(device)
    print(f"{where}, torch {torch.__version__}: {new} tokens after {PROMPT}; a copy moves {limit / 1e9:,.0f} GB/s; "
          f"medians of {args.repeats}")
    if device.type == "cpu":
        contestants = on_cpu(new, threads)
        for rows in (1, 8):
            report(race(contestants, rows, new, args.repeats, device), rows, new, limit)
        return
    for preset, rows in (("gpt2", 1), ("gpt2", 64), ("gpt2-xl", 1)):
        print(f"\n{preset}")
        report(race(on_gpu(preset, new, rows), rows, new, args.repeats, device), rows, new, limit)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
