"""The command line: options and help of the verbs. What a verb does is in verbs/, imported only when it runs."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import typer
from typer.main import get_command

from regard import __version__
from regard.settings.errors import UserError
from regard.stdio import open_closed_streams, print_message, print_result, release

__all__ = ["main"]

app = typer.Typer(
    name="regard", add_completion=False, pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="The transformer as a tool: train it on your own files, run it, open it up.\n\n"
         "`regard train` makes a French-English translator, `regard train language` a model that goes on with Python, "
         "`regard train classify` one that tells questions from commands: offline, in minutes on two cores. `regard "
         "predict` and `regard look` then ask it.")

RunOption = Annotated[Path | None, typer.Option("--run", help="Run directory; the newest under runs/ if not given.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
PrecisionOption = Annotated[Literal["float32", "bfloat16"], typer.Option(
    "--precision", help="Of the arithmetic; bfloat16 is faster where the machine has units for it.")]
QuantizeOption = Annotated[Literal["int8", "float16"] | None, typer.Option(
    "--quantize", help="Narrower weights, which are read sooner: int8; on a CPU also float16, for half of the gain.")]
TaskArgument = Annotated[str | None, typer.Argument(
    help="What to learn: translate (the default); language: to go on with a text; classify: the label of a text; tag: "
         "of each of its words; and from raw text mask: to fill blanks, or detect: to find words that were replaced.")]
DataOption = Annotated[list[Path] | None, typer.Option(
    "--data", help="Your files; give it several times for several. translate: a folder of train.en, train.de, "
                   "val.en …; two such files; a .tsv; a .jsonl. language, mask, detect: any text, by file, folder or "
                   "pattern. classify: a folder of train.tsv, test.tsv …, or one file: .tsv or .csv of text, label; "
                   ".jsonl; else lines of LABEL, a space, text. tag: .conllu, or two columns, word and tag. "
                   "Without it, what is built in: a French-English phrase book; for language, the source of Python.")]
SourceOption = Annotated[str | None, typer.Option(
    "--source", help="Language (file ending), column or JSON key of the input; of raw text, the key of its texts.")]
TargetOption = Annotated[str | None, typer.Option(
    "--target", help="Language, column or key of the output: of classify its labels; of tag the column of the tags: "
                     "upos, xpos …, or its number.")]
RecipeOption = Annotated[Path | None, typer.Option("--recipe", help="Settings from a TOML file or a saved run.json.")]
SetOption = Annotated[list[str] | None, typer.Option(
    "--set", help="One setting, as in --set model.width=512. `regard settings` lists them.")]
FromOption = Annotated[Path | None, typer.Option(
    "--from", metavar="DIR", help="Go on from a model: a run or a Hugging Face directory (train.start). Its body and "
                                  "its tokens are taken over; the output is new.")]
TuneOption = Annotated[Literal["all", "head", "lora"] | None, typer.Option(
    "--tune", help="With --from: what learns (train.tune): all, the head alone, or that and low-rank adapters.")]
VerifyOption = Annotated[bool, typer.Option(
    "--verify/--no-verify", help="Compare the run's files with its MANIFEST.json first; about a second per GB.")]
DeviceOption = Annotated[Literal["auto", "cpu", "cuda", "mps"], typer.Option("--device", help="Where it runs.")]


@app.command()
def train(
    task: TaskArgument = None, data: DataOption = None, source: SourceOption = None, target: TargetOption = None,
    start: FromOption = None, tune: TuneOption = None, recipe: RecipeOption = None, setting: SetOption = None,
    out: Annotated[Path | None, typer.Option("--out", help="Where the run goes; runs/TASK-DATA if not given.")] = None,
    extend: Annotated[int | None, typer.Option(
        "--extend", metavar="STEPS", min=1, help="Lengthen a run that has ended, by so many steps.")] = None,
    json: JsonOption = False,
) -> None:
    """Train a model for a task. The same command again goes on where it stopped.

    Ctrl-C finishes the step and saves; exit codes: 2 usage or data, 3 loss not finite, 75 asked to stop, 130 Ctrl-C.
    So do SIGTERM, SIGUSR1 and SIGHUP (a closed terminal), with 75; under nohup a closed terminal changes nothing.
    """
    from regard.verbs.train import main

    main(task, data or [], source, target, recipe, _settings(setting, start, tune), out, extend, json)


@app.command()
def plan(
    task: TaskArgument = None, data: DataOption = None, source: SourceOption = None, target: TargetOption = None,
    start: FromOption = None, tune: TuneOption = None, recipe: RecipeOption = None, setting: SetOption = None,
    length: Annotated[int | None, typer.Option(
        "--length", min=2, help="Tokens of an example; if not given, that of the built-in examples.")] = None,
    tokens: Annotated[float | None, typer.Option(
        "--tokens", min=1, help="Tokens to train on, as in 300e9; if not given, those of train.steps.")] = None,
    gpus: Annotated[int, typer.Option("--gpus", min=1, help="How many GPUs share each batch.")] = 1,
    on: Annotated[Literal["h200", "h100", "a100", "4090", "l4"] | None, typer.Option(
        "--on", help="A GPU that is not here: its time is computed, not measured.")] = None,
    memory: Annotated[float | None, typer.Option(
        "--memory", min=0, help="GiB there are on each device; if not given, what it has.")] = None,
    json: JsonOption = False,
) -> None:
    """Say what a run will need, before it starts: parameters, memory, time."""
    from regard.verbs.plan import main

    settings = _settings(setting, start, tune)
    main(task, data or [], source, target, recipe, settings, length, tokens, gpus, on, memory, json)


@app.command(name="eval")
def evaluate(
    run: RunOption = None,
    split: Annotated[list[str] | None, typer.Option(
        "--split", help="Which split; if not given all tests, or else val.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only the first so many examples.")] = None,
    shots: Annotated[str | None, typer.Option(
        "--shots", metavar="0,1,4,8", help="Of a language model: how often it finds the label of a text after so many "
                                           "labelled examples in its prompt. Needs --data as of classify.")] = None,
    data: Annotated[list[Path] | None, typer.Option(
        "--data", help="Other data than the run's own, by file or folder, as `regard train` reads it for translate, "
                       "language, classify and tag; of two parallel files both. Each is measured, with its drop in "
                       "accuracy or BLEU against the first. With --split, the run's own come first.")] = None,
    source: Annotated[str | None, typer.Option(
        "--source", help="With --data: language, column or key of the input; if not given, the run's own.")] = None,
    target: Annotated[str | None, typer.Option(
        "--target", help="With --data: language, column or key of the output or label.")] = None,
    shift: Annotated[str, typer.Option(
        "--shift", metavar="typos,case,length", help="Measure copies of labelled texts, too, with typos in a fifth "
                                                     "of the words, in other case, or cut to the first half; and the "
                                                     "drop.")] = "",
    seed: Annotated[int, typer.Option(
        "--seed", min=0, help="Of the shifts, and of the examples in the prompts of --shots.")] = 0,
    plot: Annotated[Path | None, typer.Option(
        "--plot", metavar="FILE.png", help="Draw which labels are taken for which in what is measured first, without "
                                           "any shift; with --shots the accuracy.")] = None,
    device: DeviceOption = "auto", precision: PrecisionOption = "float32", quantize: QuantizeOption = None,
    verify: VerifyOption = True, json: JsonOption = False,
) -> None:
    """Measure a trained model on its test data, on other data, or on shifted texts."""
    paths = data or []
    if not paths and (source or target):
        raise UserError("--source and --target go with --data, as in --data texts.csv --source review")
    if shots is not None and (split or shift or len(paths) > 1):
        raise UserError("--shots asks for the labels of one --data, without --split or --shift")
    if shots is None:
        from regard.verbs.evaluate import Others, main

        main(run, split or [], limit, device, precision, quantize, json, Others(paths, source, target, shift, seed),
             plot, verify=verify)
    else:
        from regard.verbs import eval_shots

        eval_shots.main(shots, next(iter(paths), None), source, target, run, limit, seed, plot, device, precision,
                        quantize, json, verify=verify)


@app.command()
def predict(
    inputs: Annotated[list[str] | None, typer.Argument(
        metavar="INPUT", help="Texts; without any, each line of stdin is one; `-` is all of stdin.")] = None,
    run: RunOption = None,
    samples: Annotated[int | None, typer.Option(
        "--samples", min=1, help="Answers to each input (search.best).")] = None,
    beam: Annotated[int | None, typer.Option(
        "--beam", min=1, help="Translations kept while the best is searched for; 1 is greedy (search.beam).")] = None,
    max_tokens: Annotated[int | None, typer.Option(
        "--max-tokens", min=1, metavar="TOKENS", help="An answer has at most this many (search.max_tokens).")] = None,
    temperature: Annotated[float | None, typer.Option(
        "--temperature", min=0, help="1 draws as the model says, 0 takes the likeliest (search.temperature). If not "
                                     "given, a language model draws with 0.8, and a translation is searched.")] = None,
    top_k: Annotated[int | None, typer.Option(
        "--top-k", min=1, help="Only the k likeliest tokens (search.top_k).")] = None,
    top_p: Annotated[float | None, typer.Option(
        "--top-p", help="Only the likeliest tokens with this probability together (search.top_p).")] = None,
    min_p: Annotated[float | None, typer.Option(
        "--min-p", help="Only tokens at least this share as likely as the likeliest (search.min_p).")] = None,
    repetition_penalty: Annotated[float | None, typer.Option(
        "--repetition-penalty", help="Above 1, what came before is less likely (search.repetition_penalty).")] = None,
    stop: Annotated[list[str] | None, typer.Option(
        "--stop", metavar="TEXT", help="An answer ends before this text; may be given several times.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Of the drawing (search.seed).")] = None,
    setting: Annotated[list[str] | None, typer.Option(
        "--set", help="One setting of the search, as in --set search.length_penalty=0.6.")] = None,
    score: Annotated[bool, typer.Option(
        "--score", help="Do not answer: say how likely a language model finds each input.")] = False,
    embed: Annotated[str | None, typer.Option(
        "--embed", metavar="FILE", help="Do not answer: write a vector of each input, by an encoder. A .npy is numpy; "
                                        "a .jsonl, or - for stdout, has a line of JSON for each.")] = None,
    input_tokens: Annotated[int | None, typer.Option(
        "--input-tokens", min=1, metavar="TOKENS", help="Read inputs of up to so many tokens, where training had "
                                                        "shorter ones (data.max_tokens). A note says first what that "
                                                        "costs.")] = None,
    device: DeviceOption = "auto", precision: PrecisionOption = "float32", quantize: QuantizeOption = None,
    verify: VerifyOption = True, json: JsonOption = False,
) -> None:
    """Answer: translate each text, go on with it, or label it. A language model's answer to a single text streams."""
    from regard.verbs.predict import main

    said = {"best": samples, "beam": beam, "max_tokens": max_tokens, "temperature": temperature, "top_k": top_k,
            "top_p": top_p, "min_p": min_p, "repetition_penalty": repetition_penalty, "seed": seed}
    short = [f"search.{name}={value}" for name, value in said.items() if value is not None]
    if embed is not None:
        from regard.verbs import embed as vectors

        if unused := [*(setting or []), *short, *(f"--stop {text}" for text in stop or []), *["--score"] * score]:
            raise UserError(f"{unused[0]}: --embed writes vectors, which are not searched for")
        vectors.main(inputs or [], run, embed, device, precision, quantize, json, verify=verify,
                     input_tokens=input_tokens)
        return
    main(inputs or [], run, [*(setting or []), *short], stop or [], score, device, precision, quantize, json,
         verify=verify, input_tokens=input_tokens)


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(
        metavar="SOURCE", help="A Hugging Face directory, a .bin of llama2.c, or a run directory.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where it goes: a folder that is not there yet.")],
    tokens: Annotated[Path | None, typer.Option(
        "--tokenizer", metavar="PATH", help="Where the tokenizer is, if it is not in SOURCE.")] = None,
    data: Annotated[list[Path] | None, typer.Option(
        "--data", help="Text that `regard eval` measures the new run on; if not given, the built-in text.")] = None,
    precision: Annotated[Literal["float32", "bfloat16", "float16"] | None, typer.Option(
        "--precision", help="Of the numbers that are written; as they are if not given.")] = None,
    verify: VerifyOption = True, json: JsonOption = False,
) -> None:
    """Turn published weights into a run, or a run into a directory that transformers opens.

    Known are GPT-2, Llama and Qwen3; BERT, RoBERTa, ELECTRA, DistilBERT and Longformer, bare or with what they learned.

    A run directory becomes a Hugging Face directory, all else a run directory. A run of a known family needs no
    conversion: transformers opens it as it is.
    """
    from regard.verbs.convert import main

    main(source, out, tokens, data or [], precision, json, verify=verify)


@app.command()
def runs(
    folder: Annotated[Path | None, typer.Argument(
        metavar="FOLDER", help="Where the runs lie; runs/ if not given.")] = None,
    picture: Annotated[Path | None, typer.Argument(
        metavar="FILE.png", help="With --plot: where the picture goes; into that folder if not given.")] = None,
    run: Annotated[Path | None, typer.Option("--run", help="Only this run directory.")] = None,
    plot: Annotated[bool, typer.Option("--plot", help="Draw the learning curves, and print where.")] = False,
    json: JsonOption = False,
) -> None:
    """List the runs in a folder: how far they are, how good, and whether they go on."""
    from regard.verbs.runs import main

    main([path for path in (folder, picture) if path is not None], run, plot, json)


@app.command()
def settings(
    word: Annotated[str | None, typer.Argument(
        metavar="FILTER", help="Only settings whose names hold this, such as width or model.")] = None,
    json: JsonOption = False,
) -> None:
    """List every setting with its default and meaning."""
    from regard.verbs.settings import main

    main(word, json)


@app.command()
def measure(
    run: RunOption = None,
    split: Annotated[str | None, typer.Option(
        "--split", help="Which split; if not given the first test, or else val.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Only the first so many examples.")] = 200,
    ablate: Annotated[bool, typer.Option(
        "--ablate", help="Also what removing each head does to the loss and to the answers.")] = False,
    over_training: Annotated[bool, typer.Option(
        "--over-training", help="Also for every checkpoint that was kept; train with --set "
                                "train.keep_checkpoints=20 to keep 20.")] = False,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE.png", help="Draw it, too.")] = None,
    device: DeviceOption = "auto", verify: VerifyOption = True, json: JsonOption = False,
) -> None:
    """Measure every attention head: how spread out it is, how far it looks, and whether a translator's aligns words."""
    from regard.verbs.measure import main

    main(run, split, limit, ablate, over_training, plot, device, json, verify=verify)


@app.command()
def check(
    run: RunOption = None, device: DeviceOption = "auto", verify: VerifyOption = True, json: JsonOption = False
) -> None:
    """Prove on this checkpoint that batch, padding, cache, beam and the fast kernels change nothing."""
    from regard.verbs.check import main

    main(run, device, json, verify=verify)


@app.command()
def explain(
    texts: Annotated[list[str] | None, typer.Argument(
        metavar="TEXT", help="The text to answer. Several, with --word: how the vector of a "
                             "word that is in all of them moves with its context.")] = None,
    example: Annotated[bool, typer.Option("--example", help="Instead of a run: two words, scores 102 and 99.")] = False,
    run: RunOption = None,
    site: Annotated[str | None, typer.Option(
        "--site", help="Which attention, such as decoder.blocks.1.cross, or a language model's blocks.1.self; the "
                       "last if not given.")] = None,
    head: Annotated[int, typer.Option("--head", min=0, help="Which of its heads, counted from 0.")] = 0,
    word: Annotated[str | None, typer.Option(
        "--word", help="The word it writes or reads, or its number from 0 on; the first if not given.")] = None,
    plot: Annotated[Path | None, typer.Option(
        "--plot", metavar="FILE.png", help="With several texts: draw the way of the word's vector.")] = None,
    device: DeviceOption = "auto", verify: VerifyOption = True, json: JsonOption = False,
) -> None:
    """Show the six steps of attention for one head and one word, with the model's own numbers.

    With several texts, an encoder's: how alike the vectors of one word are, block by block.
    """
    if texts and len(texts) > 1 and not example:
        from regard.verbs import explain_word

        explain_word.main(texts, word, run, plot, device, json, verify=verify)
        return
    if plot is not None:
        raise UserError("--plot goes with several texts, as in --word bank \"the river bank\" \"the bank's money\"")
    from regard.verbs.explain import main

    main(texts[0] if texts else None, example, run, site, head, "0" if word is None else word, device, json,
         verify=verify)


@app.command()
def look(
    text: Annotated[str, typer.Argument(metavar="INPUT", help="The text to answer.")],
    run: RunOption = None,
    output: Annotated[str | None, typer.Option(
        "--output", metavar="TEXT", help="Look at this output; if not given, at the model's own answer.")] = None,
    only: Annotated[str, typer.Option(
        "--only", metavar="GLOB", help="Only attentions of this name, as in 'decoder.*.cross' or 'blocks.0.*'.")] = "*",
    head: Annotated[int | None, typer.Option("--head", min=0, help="Only this head, counted from 0.")] = None,
    out: Annotated[Path | None, typer.Option(
        "--out", metavar="FILE.html", help="Where the page goes; look.html if not given.")] = None,
    terminal: Annotated[bool, typer.Option(
        "--terminal", help="Print a heat map instead of writing a page.")] = False,
    show: Annotated[bool, typer.Option("--open/--no-open", help="Open the page, where there is a screen.")] = True,
    device: DeviceOption = "auto", verify: VerifyOption = True, json: JsonOption = False,
) -> None:
    """See what a model attends to: one page that needs no network. Prints where it is."""
    from regard.verbs.look import main

    main(text, run, output, only, out, show, device, json, head=head, terminal=terminal, verify=verify)


@app.command()
def wrong(
    run: RunOption = None,
    split: Annotated[str, typer.Option("--split", help="Which split is answered.")] = "val",
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only the first so many examples.")] = None,
    worst: Annotated[int, typer.Option("--worst", min=1, help="How many mistakes the page shows at the most.")] = 50,
    out: Annotated[Path | None, typer.Option(
        "--out", metavar="FILE.html", help="Where the page goes; into the run if not given.")] = None,
    device: DeviceOption = "auto", verify: VerifyOption = True, json: JsonOption = False,
) -> None:
    """Write a page of the worst mistakes, each with its attention beside it, and print where."""
    from regard.verbs.wrong import main

    main(run, split, limit, worst, out, device, json, verify=verify)


def _settings(given: list[str] | None, start: Path | None, tune: str | None) -> list[str]:
    """The settings that options are short for, after those that were spelled out."""
    short = {"train.start": start, "train.tune": tune}
    return [*(given or []), *(f"{path}={value}" for path, value in short.items() if value is not None)]


def _version(show: bool) -> bool:
    if show:
        print_result(f"regard {__version__}")
        raise typer.Exit
    return show


@app.callback()
def _options(
    version: Annotated[bool, typer.Option(
        "--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    pass


UsageError: Any = typer.BadParameter.__base__  # click's; where click is to be found depends on typer's version


def main() -> NoReturn:
    """Run the command line; a person's mistake ends in one line and its exit code, never in a traceback."""
    open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
    code = 0
    try:
        # Not app(): it frames its errors in boxes, and takes a reader that has seen enough for a failure.
        command = get_command(app)
        with command.make_context("regard", sys.argv[1:] or ["--help"]) as context:
            command.invoke(context)
        sys.stdout.flush()
    except typer.Exit as asked:
        code = asked.exit_code
    except UsageError as error:
        path = error.ctx.command_path if error.ctx else "regard"
        code = fail(f"{error.format_message().rstrip('.')} (`{path} --help` says more)", 2)
    except UserError as error:
        code = fail("; ".join([str(error), *getattr(error, "__notes__", [])]), error.exit_code)
    except BrokenPipeError:  # `| head -1`: the reader has seen enough; or the terminal was closed
        pass
    except PermissionError as error:
        code = fail(f"{error.filename}: no permission", 2)
    except OSError as error:  # the disk is full, or a file went away under our hands
        code = fail(f"{error.filename}: {error.strerror}" if error.filename else str(error), 1)
    except KeyboardInterrupt:
        code = 130
    for stream in (sys.stdout, sys.stderr):
        release(stream)
    sys.exit(code)


def fail(message: str, code: int) -> int:
    if _speaks():
        print_message(f"regard: {message}")
    return code


def _speaks() -> bool:
    """One of the processes that torchrun has started is enough."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return True
    from regard.training.parallel import speaks

    return speaks()
