"""The translator with attention of Bahdanau et al. 2015, beside a plain PyTorch loop of the same equations.

    python benchmarks/recurrent.py --device cuda
    python benchmarks/recurrent.py --device cpu --precision float32 --batch-tokens 1024

The loop is the one that is written for a paper or a course: torch's two-way GRU over packed sequences, the keys'
part of the scores worked out once, a Python loop over the target that ends in the output layer, cross entropy of all
logits, AdamW and a clipped gradient. It has our weights, and each batch cut to its own longest sentences; ours
comes in the few shapes of `regard train`, padding included. First losses and answers are compared, in float32; then
both are timed in turns. Its beam search is by sentence, as in such scripts; one for many sentences at a time, with a
state copied for each beam, stands beside it.
"""

import argparse
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import cycle
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.data.batch import BatchSampler
from regard.data.ragged import Ragged
from regard.data.text.parallel_corpus import ParallelBatch
from regard.device import choose_device
from regard.generate.beam import Beam, Search, beam
from regard.generate.filters import Forbid
from regard.kernels.cuda_graphs import Captures, weights_key
from regard.models.encoder_decoder import EncoderDecoder
from regard.nn.attention import Memory
from regard.nn.init import initialize
from regard.nn.mask import Mask
from regard.settings.presets import PRESETS
from regard.settings.schema import Run, Tower, Train
from regard.tasks.translate import Translate
from regard.training.optimizer import adamw
from regard.training.parallel import World
from regard.training.update import make_update

PAD, START, END = 0, 1, 2
BEAMS = 5
SENTENCES = 4_000  # from which batches are made
POOL = 6  # batches that come again and again
TOGETHER = 64  # sentences that are searched at once
WARM = 2  # rounds before the clock runs


class Plain(nn.Module):
    """The same equations, as one would write them down."""

    def __init__(self, width: int, vocabulary: int, dropout: float) -> None:
        super().__init__()
        self.width = width
        self.table = nn.Embedding(vocabulary, width)
        self.encoder = nn.GRU(width, width // 2, bidirectional=True, batch_first=True)
        self.start = nn.Linear(width, width)
        self.keys = nn.Linear(width, width, bias=False)
        self.query = nn.Linear(width, width, bias=False)
        self.energy = nn.Linear(width, 1, bias=False)
        self.word = nn.Linear(width, 3 * width)
        self.seen = nn.Linear(width, 3 * width, bias=False)
        self.gates = nn.Linear(width, 2 * width, bias=False)
        self.candidate = nn.Linear(width, width, bias=False)
        self.deep = nn.Linear(3 * width, 2 * width)
        self.dropout = nn.Dropout(dropout)

    def encode(self, source: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The source's states, and the decoder's first one."""
        packed = pack_padded_sequence(self.dropout(self.table(source)), lengths, batch_first=True, enforce_sorted=False)
        states, last = self.encoder(packed)
        states, _ = pad_packed_sequence(states, batch_first=True, total_length=source.shape[1])
        return self.dropout(states), torch.tanh(self.start(self.dropout(torch.cat([last[0], last[1]], dim=-1))))

    def step(self, word: Tensor, s: Tensor, h: Tensor, keys: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and state after one more word: Bahdanau et al. 2015, A.1.2 and A.2.2."""
        energy = self.energy(torch.tanh(keys + self.query(s)[:, None])).squeeze(-1)
        weights = energy.masked_fill(~real, -math.inf).softmax(-1)
        c = torch.bmm(weights[:, None].to(h.dtype), h)[:, 0]
        word_r, word_z, word_c = self.word(word).chunk(3, dim=-1)
        seen_r, seen_z, seen_c = self.seen(c).chunk(3, dim=-1)
        state_r, state_z = self.gates(s).chunk(2, dim=-1)
        r, z = torch.sigmoid(word_r + seen_r + state_r), torch.sigmoid(word_z + seen_z + state_z)
        s = (1 - z) * s + z * torch.tanh(word_c + seen_c + self.candidate(r * s))
        deep = self.deep(torch.cat([s, word, c], dim=-1)).unflatten(-1, (-1, 2)).amax(-1)
        return F.linear(self.dropout(deep), self.table.weight), s

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        h, s = self.encode(source, lengths)
        keys, real, logits = self.keys(h), source != PAD, []
        for word in self.dropout(self.table(target)).unbind(1):
            out, s = self.step(word, s, h, keys, real)
            logits.append(out)
        return torch.stack(logits, dim=1)

    def take_over(self, ours: EncoderDecoder) -> None:
        """Our weights."""
        mine, attend = self.state_dict(), ours.decoder.cross.attend
        layer = ours.encoder.blocks[0]
        mine["table.weight"].copy_(ours.decoder.output.weight)
        for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
            mine[f"encoder.{name}"].copy_(getattr(layer.forth, name))
            mine[f"encoder.{name}_reverse"].copy_(getattr(layer.back, name))
        mine["keys.weight"].copy_(attend.key_weight[0].T)
        mine["query.weight"].copy_(attend.query_weight[0].T)
        mine["energy.weight"].copy_(attend.out_weight[0].T)
        for name in ("start", "word", "seen", "gates", "candidate", "deep"):
            mine[f"{name}.weight"].copy_(getattr(ours.decoder, name).weight)
        for name in ("start", "word", "deep"):
            mine[f"{name}.bias"].copy_(getattr(ours.decoder, name).bias)


# Beam searches of the plain loop.


@torch.no_grad()
def by_sentence(model: Plain, source: Tensor, longest: int) -> list[list[int]]:
    """One sentence after the other, its beams as rows: what is likeliest by its length, with the end."""
    return [_search(model, row[row != PAD][None], longest)[0] for row in source]


@torch.no_grad()
def by_batch(model: Plain, source: Tensor, longest: int) -> list[list[int]]:
    """All sentences at once, until the last has ended."""
    return _search(model, source, longest)


def _search(model: Plain, source: Tensor, longest: int) -> list[list[int]]:
    sentences, device = len(source), source.device
    h, s = model.encode(source, (source != PAD).sum(1).cpu())
    h, s, real = (x.repeat_interleave(BEAMS, 0) for x in (h, s, source != PAD))
    keys = model.keys(h)
    totals = torch.full((sentences, BEAMS), -math.inf, device=device)
    totals[:, 0] = 0.0
    tokens = torch.full((sentences, BEAMS, 1), START, device=device)
    finished: list[list[tuple[float, list[int]]]] = [[] for _ in range(sentences)]
    done = [False] * sentences
    first = BEAMS * torch.arange(sentences, device=device)[:, None]
    for length in range(1, longest + 1):
        logits, s = model.step(model.table(tokens[:, :, -1].flatten()), s, h, keys, real)
        logits[:, [PAD, START]] = -math.inf
        chances = logits.float().log_softmax(-1).view(sentences, BEAMS, -1) + totals[:, :, None]
        best = chances.flatten(1).topk(2 * BEAMS)
        parents, words = best.indices // chances.shape[2], best.indices % chances.shape[2]
        ends = (words == END) | (length == longest)
        for i, (scores, ended, ways) in enumerate(zip(best.values.tolist(), ends.tolist(), parents.tolist(),
                                                      strict=True)):
            for place in range(BEAMS):
                if ended[place] and not done[i]:
                    whole = [*tokens[i, ways[place], 1:].tolist(), int(words[i, place])]
                    finished[i].append((scores[place] / length, whole))
            finished[i] = sorted(finished[i], reverse=True)[:BEAMS]
        live = best.values.masked_fill(ends, -math.inf).topk(BEAMS)
        totals, chosen = live.values, parents.gather(1, live.indices)
        words = words.gather(1, live.indices)
        rows = (chosen + first).flatten()
        tokens = torch.cat([tokens.flatten(0, 1)[rows].view(sentences, BEAMS, -1), words[:, :, None]], dim=2)
        s = s[rows]
        for i, top in enumerate(totals[:, 0].tolist()):
            done[i] = done[i] or (len(finished[i]) == BEAMS and top / length <= finished[i][-1][0])
        if all(done):
            break
    return [[token for token in rows[0][1] if token != END] for rows in finished]


# Batches: lengths of sentences as in Multi30k, in tokens of its own 8,000.


def sentences(vocabulary: int, seed: int = 0) -> tuple[Ragged, Ragged]:
    random = np.random.Generator(np.random.PCG64(seed))
    lengths = np.clip(random.gamma(9.0, 1.65, SENTENCES), 4, 44).astype(int)
    others = np.clip(lengths * random.normal(1.05, 0.15, SENTENCES), 4, 48).astype(int)

    def rows(counts: np.ndarray) -> Ragged:
        return Ragged.of([*random.integers(END + 1, vocabulary, count), END] for count in counts)

    return rows(lengths), rows(others)


def alike(count: int, vocabulary: int) -> list[Tensor]:
    """Sources to translate, in batches of like lengths, as `regard predict` makes them."""
    read, _ = sentences(vocabulary, seed=1)
    rows = sorted((torch.from_numpy(read[row]).long() for row in range(count)), key=len)
    return [nn.utils.rnn.pad_sequence(rows[first : first + TOGETHER], batch_first=True, padding_value=PAD)
            for first in range(0, count, TOGETHER)]


class Data:
    """The same sentences for both: in our shapes, and each batch cut to its own longest."""

    def __init__(self, task: Translate, how: Train, vocabulary: int) -> None:
        task.data.ids = {"train": sentences(vocabulary)}
        plan = BatchSampler(task.data.lengths("train"), tokens=how.batch_tokens, seed=0,
                            length_buckets=how.length_buckets)
        # One of each shape, as often as it comes.
        self.batches = [task.data.collate("train", plan[step]) for step in range(POOL)]
        self.tokens = sum(batch.counts["loss"] for batch in self.batches) / POOL

    def ours(self) -> Iterator[ParallelBatch]:
        return cycle(self.batches)

    def theirs(self) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        return cycle([trimmed(batch) for batch in self.batches])


def trimmed(batch: ParallelBatch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    full = (batch.source != PAD).any(1)  # the last batch of an epoch has rows of nothing
    source, read, write = batch.source[full], batch.read[full], batch.write[full]
    lengths, most = (source != PAD).sum(1), int((write != PAD).sum(1).max())
    return source[:, : int(lengths.max())], lengths, read[:, :most], write[:, :most]


# Both, made ready.


def translator(tower: Tower, vocabulary: int, how: Train, device: str) -> tuple[Translate, EncoderDecoder]:
    task = Translate(Run(model=tower, train=how))
    task.data.source_tokens = task.data.target_tokens = SimpleNamespace(pad=PAD, start=START, end=END)
    model = task.build({"sources": vocabulary, "targets": vocabulary})
    initialize(model, seed=0)
    return task, model.to(device)


def our_update(task: Translate, model: EncoderDecoder, how: Train, data: Data, device: str,
               precision: torch.dtype) -> Callable[[], None]:
    place = choose_device(device)
    update = make_update(model.train(), task, adamw(model, how, device=place), how, device=place, precision=precision,
                         world=World())
    batches, step = data.ours(), iter(range(1, 10**9))
    return lambda: void(update(next(batches).ready(place), next(step)))


def their_update(model: Plain, how: Train, data: Data, device: str, precision: torch.dtype) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=how.learning_rate, betas=(how.beta1, how.beta2),
                                  eps=how.epsilon, weight_decay=how.weight_decay)
    batches = data.theirs()

    def update() -> None:
        source, lengths, read, write = next(batches)
        source, read, write = (x.to(device, non_blocking=True) for x in (source, read, write))
        optimizer.zero_grad()
        with torch.autocast(device, precision, enabled=precision != torch.float32):
            logits = model(source, lengths, read)
            loss = F.cross_entropy(logits.flatten(0, 1), write.flatten(), ignore_index=PAD,
                                   label_smoothing=how.label_smoothing)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), how.grad_clip)
        optimizer.step()

    return update


def our_answers(model: EncoderDecoder, source: Tensor, longest: int, forbid: Forbid,
                captures: Captures[Search]) -> list[list[int]]:
    with torch.no_grad():
        real = source != PAD
        states = captures.call(lambda source, real: model.encode(source, Mask(keys=real)).states, source, real,
                               key=weights_key(model))
        found = beam(model, source.new_full((len(source), 1), START), memory=Memory(states, Mask(keys=real)),
                     how=Beam(end=END, longest=longest, size=BEAMS), filters=[forbid], captures=captures)
    return [row[0].tokens for row in found]


def void(_: object) -> None:
    """A result that nobody wants."""


def compare(task: Translate, model: EncoderDecoder, plain: Plain, batch: ParallelBatch, device: str) -> None:
    """Their loss and ours, of one batch and without dropout."""
    model.eval(), plain.eval()
    with torch.no_grad():
        loss = float(task.loss(model, batch.to(torch.device(device)))[1].total) / batch.counts["loss"]
        source, lengths, read, write = trimmed(batch)
        logits = plain(source.to(device), lengths, read.to(device))
        other = float(F.cross_entropy(logits.flatten(0, 1), write.to(device).flatten(), ignore_index=PAD))
    print(f"loss of a batch: ours {loss:.6f}, the loop's {other:.6f}")


def measure(runs: dict[str, Callable[[], object]], device: str, *, rounds: int) -> dict[str, float]:
    """Seconds, the median of some rounds in turns."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(WARM + rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            if device == "cuda":
                torch.cuda.synchronize()
            if turn >= WARM:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(found) for name, found in times.items()}


def several(update: Callable[[], None]) -> Callable[[], None]:
    """All shapes once."""
    return lambda: [update() for _ in range(POOL)] and None


def train(args: argparse.Namespace, tower: Tower, precision: str) -> None:
    how = Train(batch_tokens=args.batch_tokens, learning_rate=1e-4, schedule="constant", warmup=0)
    task, model = translator(tower, args.vocabulary, how, args.device)
    data = Data(task, how, args.vocabulary)
    plain = Plain(tower.width, args.vocabulary, tower.dropout).to(args.device)
    with torch.no_grad():
        plain.take_over(model)
    compare(task, model, plain, data.batches[0], args.device)
    numbers = getattr(torch, precision)
    runs = {"ours": our_update(task, model, how, data, args.device, numbers),
            "loop": their_update(plain, how, data, args.device, numbers)}
    if args.device == "cuda":
        for run in runs.values():
            several(run)()  # graphs are recorded at the second batch of a shape
    seconds = measure({name: several(run) for name, run in runs.items()}, args.device, rounds=args.rounds)
    print(f"\ntraining, {precision}\n{'':10} {'ms/update':>10} {'target tokens/s':>16} {'time/ours':>10}")
    for name, one in seconds.items():
        print(f"{name:10} {1000 * one / POOL:10.2f} {POOL * data.tokens / one:16,.0f} {one / seconds['ours']:10.2f}")


def decode(args: argparse.Namespace, tower: Tower) -> None:
    _, model = translator(tower, args.vocabulary, Train(), args.device)
    plain = Plain(tower.width, args.vocabulary, 0.0).to(args.device).eval()
    with torch.no_grad():
        plain.take_over(model.eval())
    batches = [batch.to(args.device) for batch in alike(args.sentences, args.vocabulary)]
    forbid = Forbid([PAD, START], vocabulary=args.vocabulary, device=torch.device(args.device))
    captures: Captures[Search] = Captures()

    def by_all(search: Callable[[Tensor], list[list[int]]]) -> Callable[[], list[list[int]]]:
        return lambda: [answer for batch in batches for answer in search(batch)]

    runs: dict[str, Callable[[], list[list[int]]]] = {
        "ours": by_all(lambda source: our_answers(model, source, args.longest, forbid, captures)),
        "loop": by_all(lambda source: by_sentence(plain, source, args.longest)),
        "loop, all": by_all(lambda source: by_batch(plain, source, args.longest))}
    answers = {name: run() for name, run in runs.items()}
    for name in ("loop", "loop, all"):
        same = sum(a == b for a, b in zip(answers["ours"], answers[name], strict=True))
        print(f"answers of the {name} that are ours: {same} of {args.sentences}")
    seconds = measure(runs, args.device, rounds=args.repeats)
    written = sum(map(len, answers["ours"]))
    print(f"\nbeam {BEAMS}, {args.sentences} sentences, {written} tokens\n"
          f"{'':10} {'seconds':>10} {'sentences/s':>12} {'time/ours':>10}")
    for name, one in seconds.items():
        print(f"{name:10} {one:10.3f} {args.sentences / one:12.1f} {one / seconds['ours']:10.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--precision", nargs="+", choices=["float32", "bfloat16"],
                        help="of the training; default: bfloat16 on a GPU, float32 on a CPU")
    parser.add_argument("--only", choices=["train", "decode"])
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--vocabulary", type=int, default=8_000)
    parser.add_argument("--dropout", type=float, default=0.3)
    parser.add_argument("--batch-tokens", type=int, help="4096 on a GPU, 1024 on a CPU")
    parser.add_argument("--sentences", type=int, help="that are translated: 256 on a GPU, 128 on a CPU")
    parser.add_argument("--longest", type=int, default=24, help="tokens of a translation")
    parser.add_argument("--rounds", type=int, help="of training, 9 on a GPU, 3 on a CPU")
    parser.add_argument("--repeats", type=int, default=3, help="of decoding")
    args = parser.parse_args()

    cuda = args.device == "cuda"
    args.batch_tokens = args.batch_tokens or (4_096 if cuda else 1_024)
    args.sentences, args.rounds = args.sentences or (256 if cuda else 128), args.rounds or (9 if cuda else 3)
    choose_device(args.device)  # TF32 on a GPU, and the C library's memory on a CPU: both gain from it
    tower = replace(PRESETS["bahdanau"](), width=args.width, dropout=args.dropout)
    where_ = torch.cuda.get_device_name() if cuda else f"CPU, {torch.get_num_threads()} threads"
    print(f"{where_}, torch {torch.__version__}: width {args.width}, vocabulary {args.vocabulary:,}, "
          f"dropout {args.dropout}, batches of {args.batch_tokens} tokens")
    if args.only != "decode":
        for precision in args.precision or (["bfloat16"] if cuda else ["float32"]):
            train(args, tower, precision)
    if args.only != "train":
        decode(args, replace(tower, dropout=0.0))


if __name__ == "__main__":
    main()
