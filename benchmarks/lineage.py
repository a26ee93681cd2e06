"""From one vector to attention alone: four translators on the same sentences, with the same tokens, steps and metric.

    python benchmarks/lineage.py --data multi30k --device cuda
    python benchmarks/lineage.py                                       # the built-in phrase book, on a CPU
    python benchmarks/lineage.py --steps 2 --width 32 --sentences 50   # to see that it runs
    python benchmarks/lineage.py --again                               # tells and draws what --out holds

The fixed context of Sutskever et al. 2014, the attention of Bahdanau et al. 2015 and of Luong et al. 2015, and the
transformer of 2017. `multi30k` is a folder with train.en, train.de, val.en …; the settings of each model are those of
its recipe, chosen on the validation set. Each run is a `regard train`, which is printed: the same command again goes
on, and a run that has ended is only measured. What the test sentences score is also told by fifths of their length, and
what each model looked at while it translated the first of them is drawn, if it can look at anything.

The table and JSON go to stdout; they, the pictures and all translations to --out; the rest to stderr. With several
--seeds the means are told; with --at-once several runs share the machine, and their times.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from regard.look.record import Record
    from regard.predictor import Predictor

ROOT = Path(__file__).parents[1]
FIGURES, TRANSLATIONS, ALIGNMENTS = "lineage.json", "translations.jsonl", "alignments.safetensors"
FIFTHS = 5
STEPS = 2_300  # of real text: some thirty epochs of Multi30k


@dataclass(frozen=True)
class Model:
    """One of the lineage: where its settings for real text are, and its shape for the phrase book."""

    name: str
    recipe: str
    shape: str


MODELS = {
    "fixed": Model("fixed context", "multi30k-en-de-sutskever", "model.preset=sutskever"),
    "bahdanau": Model("Bahdanau", "multi30k-en-de-bahdanau", "model.preset=bahdanau"),
    "luong": Model("Luong", "multi30k-en-de-luong", "model.preset=luong"),
    "transformer": Model("transformer", "multi30k-en-de", "model.depth=2"),
}


@dataclass(frozen=True)
class Fifth:
    """A fifth of the test sentences, by length."""

    sentences: int
    words: float
    bleu: float


@dataclass(frozen=True)
class Measured:
    """One run, or the mean of several."""

    model: str
    seed: int | None
    parameters: int
    seconds: float
    tokens_per_second: float
    val: float
    bleu: float
    fifths: tuple[Fifth, ...]


@dataclass(frozen=True)
class Translation:
    model: str
    seed: int
    source: str
    wanted: str
    answer: str


@dataclass(frozen=True)
class Ended:
    """A run that was trained, and what it did."""

    measured: Measured
    translations: list[Translation]
    looked: "Record | None"


# Training.


def command(key: str, seed: int, args: argparse.Namespace) -> list[str]:
    """The `regard train` of a model."""
    model = MODELS[key]
    words = ["regard", "train", "translate", "--out", str(args.runs / f"{key}-{seed}")]
    if args.data is not None:
        words += ["--data", str(args.data), "--recipe", str(ROOT / "recipes" / f"{model.recipe}.toml")]
        words += ["--source", args.source, "--target", args.target]
    # The phrase book's are those of a bare `regard train`, but for the blocks.
    sets = [] if args.data is not None else [model.shape, "model.width=128", "model.dropout=0"]
    if args.width is not None:
        sets.append(f"model.width={args.width}")
    if args.steps is not None:
        sets += [f"train.steps={args.steps}", f"train.warmup={args.steps // 6}",
                 f"train.evaluate_every={max(1, args.steps // 10)}", f"train.save_every={max(1, args.steps // 40)}"]
    sets += [f"seed={seed}", f"device={args.device}", *args.set]
    return words + [word for setting in sets for word in ("--set", setting)]


def train(key: str, seed: int, args: argparse.Namespace) -> bool:
    """Whether all went well. In a process of its own, so that nothing is left of the one before."""
    words = command(key, seed, args)
    print("$", shlex.join(words), file=sys.stderr, flush=True)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
    return not subprocess.run([sys.executable, "-m", *words], env=environment, stdout=subprocess.DEVNULL).returncode


# Measuring.


def measure(key: str, seed: int, args: argparse.Namespace) -> Ended:
    """A run by what it answers."""
    from sacrebleu.metrics.bleu import BLEU

    import regard

    folder = args.runs / f"{key}-{seed}"
    run = regard.load(folder, device=args.device)
    split = args.split or next(split for split in run.task.data.splits() if split.startswith("test"))
    examples = run.task.data.examples(split, args.sentences)
    answers = run.predict([example.input for example in examples])

    def bleu(places: Sequence[int]) -> float:
        return BLEU().corpus_score([answers[i] for i in places], [[examples[i].wanted for i in places]]).score

    def fifth(places: Sequence[int]) -> Fifth:
        return Fifth(len(places), fmean(len(examples[i].input.split()) for i in places), bleu(places))

    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    scores = json.loads((folder / "scores.json").read_text(encoding="utf-8"))
    measured = Measured(
        MODELS[key].name, seed, sum(weight.numel() for weight in run.model.parameters()),
        sum(line["seconds"] for line in lines if line["kind"] == "trained"),
        median(line["tokens_per_second"] for line in lines if line["kind"] == "step"), scores["val"]["bleu"],
        bleu(range(len(examples))),
        tuple(map(fifth, fifths([len(example.input.split()) for example in examples]))))
    return Ended(measured, [Translation(measured.model, seed, example.input, example.wanted, answer)
                            for example, answer in zip(examples, answers, strict=True)],
                 look(run, examples[0].input, name=key))


def look(run: "Predictor", text: str, *, name: str) -> "Record | None":
    """What the last attention to the source looked at, the mean of its heads; none, where there is no attention."""
    from regard.look.record import Record
    from regard.look.terminal import telling
    from regard.look.watch import sites

    if not sites(run.model):
        return None
    record = run.look(text).mean()
    site = telling(record)
    return Record({name: record[site]}, {name: record.axes[site]}, {name: record.heads[site]})


def fifths(lengths: Sequence[int]) -> Iterator[list[int]]:
    """The places of the shortest fifth, of the next …: as many sentences in each, or one more."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    ends = [len(order) * fifth // FIFTHS for fifth in range(FIFTHS + 1)]
    return (order[start:end] for start, end in pairwise(ends))


def mean(runs: Sequence[Measured]) -> Measured:
    """Of one model's runs."""
    first = runs[0]
    return Measured(
        first.model, None, first.parameters, *(fmean(getattr(run, name) for run in runs) for name in (
            "seconds", "tokens_per_second", "val", "bleu")),
        fifths=tuple(Fifth(its[0].sentences, its[0].words, fmean(fifth.bleu for fifth in its))
                     for its in zip(*(run.fifths for run in runs), strict=True)))


# Telling.


def table(models: Sequence[Measured]) -> str:
    """In Markdown: what each is and costs, and what it scores, in all and by length."""
    lengths = [f"{fifth.words:.1f} words" for fifth in models[0].fifths]
    heads = ["", "parameters", "training, s", "tokens/s", "validation", "test", *lengths]
    rows = [[each.model, f"{each.parameters / 1e6:.1f} M", f"{each.seconds:,.0f}", f"{each.tokens_per_second:,.0f}",
             f"{each.val:.2f}", f"**{each.bleu:.2f}**", *(f"{fifth.bleu:.2f}" for fifth in each.fifths)]
            for each in models]
    return "\n".join(f"| {' | '.join(row)} |" for row in [heads, ["---", *["---:"] * (len(heads) - 1)], *rows])


def draw(models: Sequence[Measured], runs: Sequence[Measured], *, title: str) -> "Figure":
    """BLEU against the length of a sentence; and, at the same height, against the time and the weights it took."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    from regard.look.plots.loss_curves import COLOURS, GREY, INK

    figure = Figure(figsize=(10.5, 4.8), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.15, rect=(0, 0, 1, 0.9)),
                    facecolor="white")
    by_length, by_time, by_size = figure.subplots(1, 3, width_ratios=(2.4, 1, 1), sharey=True)
    colours = dict(zip((each.model for each in models), COLOURS, strict=False))
    for each in models:
        words = [fifth.words for fifth in each.fifths]
        own = [[fifth.bleu for fifth in run.fifths] for run in runs if run.model == each.model]
        if len(own) > 1:
            by_length.fill_between(words, *([pick(its) for its in zip(*own, strict=True)] for pick in (min, max)),
                                   color=colours[each.model], alpha=0.15, linewidth=0)
        by_length.plot(words, [fifth.bleu for fifth in each.fifths], color=colours[each.model], linewidth=2, marker="o",
                       markersize=5, clip_on=False)
    for axes in (by_length, by_time, by_size):
        _plain(axes)
    least = min(fifth.bleu for each in models for fifth in each.fifths)
    by_length.set_ylim(bottom=max(0, 5 * ((least - 2) // 5)))
    _name_ends(by_length, models, colours)
    by_length.set_xticks(words := [fifth.words for fifth in models[0].fifths], [f"{each:.1f}" for each in words])
    by_length.set_xlabel("words of the source: mean of each fifth of the sentences", color=GREY)
    by_length.set_title("BLEU by length of the sentence", loc="left", color=INK, fontsize=11)
    _dots(by_time, models, [each.seconds for each in models], colours, "seconds", "… by training time")
    _dots(by_size, models, [each.parameters / 1e6 for each in models], colours, "million", "… by parameters")
    figure.suptitle("From one vector to attention alone", x=0.015, y=0.985, ha="left", color=INK, fontsize=13,
                    fontweight="bold")
    figure.text(0.015, 0.905, title, color=GREY, fontsize=9, parse_math=False)
    return figure


def _name_ends(axes: "Axes", models: Sequence[Measured], colours: dict[str, str]) -> None:
    from regard.look.plots.loss_curves import spread

    low, high = axes.get_ylim()
    ends = [(each.fifths[-1].bleu - low) / (high - low) for each in models]
    for each, height in zip(models, spread(ends, 0.06), strict=True):
        axes.annotate(each.model, (1.02, height), xycoords="axes fraction", color=colours[each.model],
                      va="center", annotation_clip=False)


def _dots(axes: "Axes", models: Sequence[Measured], x: Sequence[float], colours: dict[str, str], label: str,
          title: str) -> None:
    from regard.look.plots.loss_curves import GREY, INK

    points = [(place, each.bleu) for place, each in zip(x, models, strict=True)]
    for each, (place, bleu) in zip(models, points, strict=True):
        # Below, where the dot of a better one is so near that figures above both would meet.
        below = any(abs(other - place) < 0.25 * max(x) and 0 < better - bleu < 3 for other, better in points)
        axes.plot([place], [bleu], color=colours[each.model], marker="o", markersize=9, clip_on=False)
        axes.annotate(f"{bleu:.1f}", (place, bleu), (0, -17 if below else 8), textcoords="offset points", ha="center",
                      color=colours[each.model], fontsize=9)
    axes.set_xlim(0, 1.15 * max(x))
    axes.set_xlabel(label, color=GREY)
    axes.set_title(title, loc="left", color=INK, fontsize=11)


def _plain(axes: "Axes") -> None:
    from matplotlib.ticker import MaxNLocator

    from regard.look.plots.loss_curves import FAINT, GREY

    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(GREY)
    axes.grid(axis="y", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.tick_params(axis="y", length=0, labelcolor=GREY)
    axes.tick_params(axis="x", color=GREY, labelcolor=GREY)


def make(args: argparse.Namespace) -> None:
    """All runs, each trained, then measured and written down at once: what fails later costs nothing that is there."""
    todo = [(key, seed) for seed in args.seeds for key in args.only]
    ended, turn = dict[tuple[str, int], Ended](), Lock()
    (args.out / FIGURES).unlink(missing_ok=True)

    def work(run: tuple[str, int]) -> None:
        if train(*run, args):
            with turn:
                ended[run] = measure(*run, args)
                write([ended[each] for each in todo if each in ended], args.out)

    with ThreadPoolExecutor(args.at_once) as pool:
        list(pool.map(work, todo))
    if not ended:
        raise SystemExit("no run has ended")


def write(ended: Sequence[Ended], out: Path) -> None:
    from regard.look.record import Record

    lines = (json.dumps(asdict(told), ensure_ascii=False) for each in ended for told in each.translations)
    (out / TRANSLATIONS).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (out / FIGURES).write_text(json.dumps([asdict(each.measured) for each in ended]), encoding="utf-8")
    looked = [each.looked for each in ended if each.looked is not None]
    Record(*({site: value for record in looked for site, value in getattr(record, part).items()}
             for part in ("weights", "labels", "heads"))).save(out / ALIGNMENTS)


def read(file: Path) -> list[Measured]:
    """What an earlier call has measured."""
    return [Measured(**{**run, "fifths": tuple(Fifth(**fifth) for fifth in run["fifths"])})
            for run in json.loads(file.read_text(encoding="utf-8"))]


def pictures(models: Sequence[Measured], runs: Sequence[Measured], out: Path, *, title: str) -> None:
    from regard.look.heatmap import matrix, save
    from regard.look.record import Record

    save(draw(models, runs, title=title), out / "lineage.png")
    for key, (weights,) in (record := Record.load(out / ALIGNMENTS)).items():
        save(matrix(weights, record.axes[key], title=MODELS[key].name), out / f"lineage-{key}.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a folder of parallel text; absent: the built-in phrase book")
    parser.add_argument("--source", default="en", help="language of the input side of --data")
    parser.add_argument("--target", default="de", help="language of its output side")
    parser.add_argument("--split", help="what is translated; absent: the first that is called a test")
    parser.add_argument("--sentences", type=int, help="of it; absent: all")
    parser.add_argument("--steps", type=int, help=f"of each; absent: {STEPS:,}, of the phrase book those of a bare run")
    parser.add_argument("--width", type=int, help="of each; absent: as the recipes say, and 128 for the phrase book")
    parser.add_argument("--set", action="append", default=[], metavar="K=V", help="any other setting, for all")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--only", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--at-once", type=int, default=1, help="runs that train side by side")
    parser.add_argument("--runs", type=Path, default=Path("runs/lineage"), help="where the runs go")
    parser.add_argument("--out", type=Path, default=Path("runs/lineage"),
                        help="where pictures, figures and translations go")
    parser.add_argument("--title", help="of the picture; absent: the name of the data")
    parser.add_argument("--again", action="store_true", help="nothing is trained: what --out holds is told and drawn")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.data is not None and args.steps is None:
        args.steps = STEPS
    if not args.again:
        make(args)
    runs = read(args.out / FIGURES)
    models = [mean([run for run in runs if run.model == name]) for name in dict.fromkeys(run.model for run in runs)]
    print(f"{table(models)}\n\n{json.dumps([asdict(run) for run in runs])}", flush=True)
    data = "the built-in phrase book" if args.data is None else f"{args.data.name}, {args.source} to {args.target}"
    seeds = f" · means of {count} runs, their range shaded" if (count := len(runs) // len(models)) > 1 else ""
    pictures(models, runs, args.out, title=f"sacreBLEU of {args.title or data}{seeds}")


if __name__ == "__main__":
    main()
