"""The command line: options and help of the verbs. The verbs are in verbs/, imported only when they run."""

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
         "`regard train` trains a French-English translator, `regard train language` a language model of Python code, "
         "`regard train classify` a model that tells questions from commands: offline, in minutes on two cores. Then "
         "use `regard predict` and `regard look`.")

RunOption = Annotated[Path | None, typer.Option("--run", help="Run directory; default: the newest under runs/.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
PrecisionOption = Annotated[Literal["float32", "bfloat16"], typer.Option(
    "--precision", help="Number format of the arithmetic; bfloat16 is faster on hardware that supports it.")]
QuantizeOption = Annotated[Literal["int8", "float16"] | None, typer.Option(
    "--quantize", help="Quantize the weights for faster generation: int8, or float16 (CPU only, about half the "
                       "speed-up).")]
TaskArgument = Annotated[str | None, typer.Argument(
    help="The task: translate (the default); language: predict the next token; classify: label a text or an image; "
         "tag: label each word; mask: fill blanks; detect: find replaced words; caption: describe an image. language, "
         "mask and detect learn from raw text.")]
DataOption = Annotated[list[Path] | None, typer.Option(
    "--data", help="Your files; repeat the option for several. translate: a folder of train.en, train.de, "
                   "val.en …; two such files; a .tsv; a .jsonl. language, mask, detect: any text, as a file, folder or "
                   "pattern. classify: a folder of train.tsv, test.tsv …, or one file: .tsv or .csv of text, label; "
                   ".jsonl; or lines of LABEL, a space, text; of images: a folder for each label in a folder, a "
                   "table of path, label, IDX files, or archives of these. tag: .conllu, or two columns, word and tag. "
                   "caption: a table of path, caption. Default: built-in data, a French-English phrase book; for "
                   "language, Python's standard library; for caption, scenes of coloured shapes.")]
SourceOption = Annotated[str | None, typer.Option(
    "--source", help="Language (file ending), column or JSON key of the input; for raw text, the JSON key.")]
TargetOption = Annotated[str | None, typer.Option(
    "--target", help="Language, column or key of the output; for classify, of the labels; for tag, the column of the "
                     "tags (upos, xpos …) or its number.")]
RecipeOption = Annotated[Path | None, typer.Option("--recipe", help="Settings from a TOML file or a saved run.json.")]
SetOption = Annotated[list[str] | None, typer.Option(
    "--set", help="One setting, for example --set model.width=512. `regard settings` lists all settings.")]
FromOption = Annotated[Path | None, typer.Option(
    "--from", metavar="DIR", help="Start from a trained model: a run or a Hugging Face directory (train.init_from). "
                                  "Its backbone and its tokenizer are kept; the head is new.")]
TuneOption = Annotated[Literal["all", "head", "lora"] | None, typer.Option(
    "--tune", help="With --from: which weights learn (train.trainable): all; only the head; or the head and low-rank "
                   "adapters (LoRA).")]
VerifyOption = Annotated[bool, typer.Option(
    "--verify/--no-verify", help="Check the run's files against its MANIFEST.json first; about a second per GB.")]
DeviceOption = Annotated[Literal["auto", "cpu", "cuda", "mps"], typer.Option("--device", help="The device to run on.")]


@app.command()
def train(
    task: TaskArgument = None, data: DataOption = None, source: SourceOption = None, target: TargetOption = None,
    start: FromOption = None, tune: TuneOption = None, recipe: RecipeOption = None, setting: SetOption = None,
    out: Annotated[Path | None, typer.Option("--out", help="The new run's directory; default: runs/TASK-DATA.")] = None,
    extend: Annotated[int | None, typer.Option(
        "--extend", metavar="STEPS", min=1, help="Train a finished run for this many more steps.")] = None,
    json: JsonOption = False,
) -> None:
    """Train a model for a task. Run the same command again to resume a run that stopped.

    Ctrl-C finishes the step and saves. SIGTERM, SIGUSR1 and SIGHUP (a closed terminal) do the same.

    Exit codes: 2 usage or data, 3 loss not finite, 75 stopped by a signal, 130 Ctrl-C.
    """
    from regard.verbs.train import main

    main(task, data or [], source, target, recipe, _settings(setting, start, tune), out, extend, json)


@app.command()
def plan(
    task: TaskArgument = None, data: DataOption = None, source: SourceOption = None, target: TargetOption = None,
    start: FromOption = None, tune: TuneOption = None, recipe: RecipeOption = None, setting: SetOption = None,
    length: Annotated[int | None, typer.Option(
        "--length", min=2, help="Tokens per example; default: as in the built-in data.")] = None,
    tokens: Annotated[float | None, typer.Option(
        "--tokens", min=1, help="Tokens to train on, for example 300e9; default: those of train.steps.")] = None,
    gpus: Annotated[int, typer.Option("--gpus", min=1, help="The number of GPUs that share each batch.")] = 1,
    on: Annotated[Literal["h200", "h100", "a100", "4090", "l4"] | None, typer.Option(
        "--on", help="Plan for this GPU; its time is computed, not measured.")] = None,
    memory: Annotated[float | None, typer.Option(
        "--memory", min=0, help="Memory of each device, in GiB; default: all of the device's memory.")] = None,
    json: JsonOption = False,
) -> None:
    """Estimate a run before it starts: its parameters, memory and time."""
    from regard.verbs.plan import main

    settings = _settings(setting, start, tune)
    main(task, data or [], source, target, recipe, settings, length, tokens, gpus, on, memory, json)


@app.command(name="eval")
def evaluate(
    run: RunOption = None,
    split: Annotated[list[str] | None, typer.Option(
        "--split", help="The split to measure; default: all test splits, or val if there are none.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Use only the first N examples.")] = None,
    shots: Annotated[str | None, typer.Option(
        "--shots", metavar="0,1,4,8", help="Few-shot accuracy of a language model, with this many labelled examples in "
                                           "the prompt. Needs --data in a format of classify.")] = None,
    data: Annotated[list[Path] | None, typer.Option(
        "--data", help="Measure on other data: a file or folder that `regard train` can read for translate, language, "
                       "classify or tag; for parallel files, give both. Prints a line for each, with its drop in "
                       "accuracy or BLEU against the first. With --split, the run's own splits come first.")] = None,
    source: Annotated[str | None, typer.Option(
        "--source", help="With --data: language, column or key of the input; default: the run's.")] = None,
    target: Annotated[str | None, typer.Option(
        "--target", help="With --data: language, column or key of the output or label.")] = None,
    shift: Annotated[str, typer.Option(
        "--shift", metavar="typos,case,length", help="Also measure changed copies of labelled inputs. Of texts: typos "
                                                     "in a fifth of the words, another case, or only the first "
                                                     "half; of images: noise, blur, colour. Prints the drop for "
                                                     "each.")] = "",
    seed: Annotated[int, typer.Option(
        "--seed", min=0, help="The seed for --shift and for the choice of examples for --shots.")] = 0,
    plot: Annotated[Path | None, typer.Option(
        "--plot", metavar="FILE.png", help="Plot the confusion matrix of the first data, without a shift; with "
                                           "--shots, the accuracy.")] = None,
    device: DeviceOption = "auto", precision: PrecisionOption = "float32", quantize: QuantizeOption = None,
    verify: VerifyOption = True, json: JsonOption = False,
) -> None:
    """Measure a trained model on its test data, on other data, or on shifted inputs."""
    paths = data or []
    if not paths and (source or target):
        raise UserError("--source and --target need --data, as in --data texts.csv --source review")
    if shots is not None and (split or shift or len(paths) > 1):
        raise UserError("--shots takes one --data, and neither --split nor --shift")
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
        metavar="INPUT", help="Texts, or paths of images; - reads all of stdin as one input. Default: each line of "
                              "stdin.")] = None,
    run: RunOption = None,
    samples: Annotated[int | None, typer.Option(
        "--samples", min=1, help="The number of answers to each input (search.best).")] = None,
    beam: Annotated[int | None, typer.Option(
        "--beam", min=1, help="Beam size; 1 is greedy search (search.beam).")] = None,
    max_tokens: Annotated[int | None, typer.Option(
        "--max-tokens", min=1, metavar="TOKENS", help="The most tokens of an answer (search.max_tokens).")] = None,
    temperature: Annotated[float | None, typer.Option(
        "--temperature", min=0, help="Sample with this temperature; 0: the most likely token (search.temperature). "
                                     "Default: 0.8 for a language model; beam search for a translator.")] = None,
    top_k: Annotated[int | None, typer.Option(
        "--top-k", min=1, help="Sample only from the k most likely tokens (search.top_k).")] = None,
    top_p: Annotated[float | None, typer.Option(
        "--top-p", help="Sample only from the most likely tokens that together have this probability "
                        "(search.top_p).")] = None,
    min_p: Annotated[float | None, typer.Option(
        "--min-p", help="Sample only from tokens with at least this share of the highest probability "
                        "(search.min_p).")] = None,
    repetition_penalty: Annotated[float | None, typer.Option(
        "--repetition-penalty", help="Above 1: makes earlier tokens less likely (search.repetition_penalty).")] = None,
    stop: Annotated[list[str] | None, typer.Option(
        "--stop", metavar="TEXT", help="End the answer before this text; repeat the option for several.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="The seed for sampling (search.seed).")] = None,
    setting: Annotated[list[str] | None, typer.Option(
        "--set", help="One setting of the search, for example --set search.length_penalty=0.6.")] = None,
    score: Annotated[bool, typer.Option(
        "--score", help="Instead of answers, print the log-probability of each input under a language model.")] = False,
    embed: Annotated[str | None, typer.Option(
        "--embed", metavar="FILE", help="Instead of answers, write an encoder's vector of each input: to a .npy file "
                                        "(numpy), or as lines of JSON to a .jsonl file or to - (stdout).")] = None,
    input_tokens: Annotated[int | None, typer.Option(
        "--input-tokens", min=1, metavar="TOKENS", help="Read inputs of up to this many tokens, even if training "
                                                        "read fewer (data.max_tokens). A note states the cost "
                                                        "first.")] = None,
    device: DeviceOption = "auto", precision: PrecisionOption = "float32", quantize: QuantizeOption = None,
    verify: VerifyOption = True, json: JsonOption = False,
) -> None:
    """Translate, continue or label each input. A language model streams its answer if there is only one text."""
    from regard.verbs.predict import main

    given = {"best": samples, "beam": beam, "max_tokens": max_tokens, "temperature": temperature, "top_k": top_k,
             "top_p": top_p, "min_p": min_p, "repetition_penalty": repetition_penalty, "seed": seed}
    short = [f"search.{name}={value}" for name, value in given.items() if value is not None]
    if embed is not None:
        from regard.verbs import embed as vectors

        if unused := [*(setting or []), *short, *(f"--stop {text}" for text in stop or []), *["--score"] * score]:
            raise UserError(f"{unused[0]}: has no effect with --embed; remove it")
        vectors.main(inputs or [], run, embed, device, precision, quantize, json, verify=verify,
                     input_tokens=input_tokens)
        return
    main(inputs or [], run, [*(setting or []), *short], stop or [], score, device, precision, quantize, json,
         verify=verify, input_tokens=input_tokens)


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(
        metavar="SOURCE", help="A Hugging Face directory, a .bin of llama2.c, or a run directory.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The new directory; it must not exist yet.")],
    tokens: Annotated[Path | None, typer.Option(
        "--tokenizer", metavar="PATH", help="The tokenizer, if it is not in SOURCE.")] = None,
    data: Annotated[list[Path] | None, typer.Option(
        "--data", help="Text for `regard eval` to measure the new run on; default: the built-in text.")] = None,
    precision: Annotated[Literal["float32", "bfloat16", "float16"] | None, typer.Option(
        "--precision", help="Number format of the written weights; default: that of SOURCE.")] = None,
    verify: VerifyOption = True, json: JsonOption = False,
) -> None:
    """Turn published weights into a run, or a run into a directory that transformers opens.

    It converts GPT-2, Llama and Qwen3; BERT, RoBERTa, ELECTRA, DistilBERT and Longformer, with or without their heads;
    ViT and ResNet with labels.

    A run directory becomes a Hugging Face directory; anything else becomes a run directory. A run of one of these
    families needs no conversion: transformers opens it as it is.
    """
    from regard.verbs.convert import main

    main(source, out, tokens, data or [], precision, json, verify=verify)


@app.command()
def runs(
    folder: Annotated[Path | None, typer.Argument(
        metavar="FOLDER", help="The folder of the runs; default: runs/.")] = None,
    picture: Annotated[Path | None, typer.Argument(
        metavar="FILE.png", help="With --plot: the file to write; default: in FOLDER.")] = None,
    run: Annotated[Path | None, typer.Option("--run", help="List only this run directory.")] = None,
    plot: Annotated[bool, typer.Option("--plot", help="Plot the learning curves and print the file's path.")] = False,
    json: JsonOption = False,
) -> None:
    """List the runs in a folder: their progress, their scores, and whether they are running."""
    from regard.verbs.runs import main

    main([path for path in (folder, picture) if path is not None], run, plot, json)


@app.command()
def settings(
    word: Annotated[str | None, typer.Argument(
        metavar="FILTER", help="List only settings whose names contain this, such as width or model.")] = None,
    json: JsonOption = False,
) -> None:
    """List every setting with its default and meaning."""
    from regard.verbs.settings import main

    main(word, json)


@app.command()
def measure(
    run: RunOption = None,
    split: Annotated[str | None, typer.Option(
        "--split", help="The split to measure on; default: the first test split, or val if there is none.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Use only the first N examples.")] = 200,
    ablate: Annotated[bool, typer.Option(
        "--ablate", help="Also measure how removing each head changes the loss and the answers.")] = False,
    over_training: Annotated[bool, typer.Option(
        "--over-training", help="Also measure every checkpoint that was kept; train with --set "
                                "train.keep_checkpoints=20 to keep 20.")] = False,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE.png", help="Also plot the result.")] = None,
    device: DeviceOption = "auto", verify: VerifyOption = True, json: JsonOption = False,
) -> None:
    """Measure every attention head: its entropy, its mean distance, and a translator's word alignment error."""
    from regard.verbs.measure import main

    main(run, split, limit, ablate, over_training, plot, device, json, verify=verify)


@app.command()
def check(
    run: RunOption = None, device: DeviceOption = "auto", verify: VerifyOption = True, json: JsonOption = False
) -> None:
    """Prove on this checkpoint that batching, padding, the cache and the fast kernels do not change the output."""
    from regard.verbs.check import main

    main(run, device, json, verify=verify)


@app.command()
def explain(
    texts: Annotated[list[str] | None, typer.Argument(
        metavar="INPUT", help="The text to answer, or the path of an image. With --word, several texts that all "
                              "contain the word: shows how its vector changes with its context.")] = None,
    example: Annotated[bool, typer.Option(
        "--example", help="Explain two made-up words, with scores 102 and 99, instead of a run.")] = False,
    run: RunOption = None,
    site: Annotated[str | None, typer.Option(
        "--site", help="The attention to explain, such as decoder.blocks.1.cross, or a language model's blocks.1.self; "
                       "default: the last.")] = None,
    head: Annotated[int, typer.Option("--head", min=0, help="The head to explain, counted from 0.")] = 0,
    word: Annotated[str | None, typer.Option(
        "--word", help="The word that the model reads or writes, or its number from 0; default: the first.")] = None,
    patch: Annotated[str | None, typer.Option(
        "--patch", metavar="ROW,COLUMN", help="Of an image: the patch instead of a word, counted from 0,0 at the upper "
                                              "left.")] = None,
    plot: Annotated[Path | None, typer.Option(
        "--plot", metavar="FILE.png", help="With several texts: plot the path of the word's vector.")] = None,
    device: DeviceOption = "auto", verify: VerifyOption = True, json: JsonOption = False,
) -> None:
    """Show the arithmetic of one attention head for one word in six steps, with the model's own numbers.

    With several texts (encoders only): show how similar the vectors of one word are, block by block.
    """
    if patch is not None:
        if word is not None:
            raise UserError(f"--word {word} and --patch {patch}: give one of them")
        word = patch.replace(" ", "")
    if texts and len(texts) > 1 and not example:
        from regard.verbs import explain_word

        explain_word.main(texts, word, run, plot, device, json, verify=verify)
        return
    if plot is not None:
        raise UserError("--plot needs several texts, as in --word bank \"the river bank\" \"the bank's money\"")
    from regard.verbs.explain import main

    main(texts[0] if texts else None, example, run, site, head, "0" if word is None else word, device, json,
         verify=verify)


@app.command()
def look(
    text: Annotated[str | None, typer.Argument(
        metavar="INPUT", help="The text to answer, or the path of an image.")] = None,
    run: RunOption = None,
    output: Annotated[str | None, typer.Option(
        "--output", metavar="TEXT", help="Look at this output; default: the model's own answer.")] = None,
    only: Annotated[str, typer.Option(
        "--only", metavar="GLOB", help="Show only attentions with this name, for example 'decoder.*.cross' or "
                                        "'blocks.0.*'.")] = "*",
    head: Annotated[int | None, typer.Option("--head", min=0, help="Show only this head, counted from 0.")] = None,
    out: Annotated[Path | None, typer.Option(
        "--out", metavar="FILE.html", help="The page to write; default: look.html. For an image also FILE.png: maps "
                                           "over the image, one for each word.")] = None,
    terminal: Annotated[bool, typer.Option(
        "--terminal", help="Print a heat map instead of writing a page.")] = False,
    filters: Annotated[bool, typer.Option(
        "--filters", help="Instead of attention, draw the first 28 principal components of the matrix that reads the "
                          "patches of an image, to filters.png or --out.")] = False,
    show: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
    device: DeviceOption = "auto", verify: VerifyOption = True, json: JsonOption = False,
) -> None:
    """Show where a model attends, as one page that needs no network. Prints the page's path."""
    from regard.verbs import look_png
    from regard.verbs.look import main

    if filters:
        if terminal:
            raise UserError("--terminal: has no effect with --filters, which writes a picture; remove it")
        look_png.filters(run, out, device, json, verify=verify)
    elif text is None:
        raise UserError("give an INPUT to look at; without one, --filters draws the filters of a model of images")
    elif out is not None and out.suffix.lower() == ".png" and not terminal:
        look_png.maps(text, run, output, only, out, device, json, head=head, verify=verify)
    else:
        main(text, run, output, only, out, show, device, json, head=head, terminal=terminal, verify=verify)


@app.command()
def wrong(
    run: RunOption = None,
    split: Annotated[str, typer.Option("--split", help="The split to answer.")] = "val",
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Use only the first N examples.")] = None,
    worst: Annotated[int, typer.Option("--worst", min=1, help="The most mistakes to show.")] = 50,
    out: Annotated[Path | None, typer.Option(
        "--out", metavar="FILE.html", help="The page to write; default: in the run's directory.")] = None,
    device: DeviceOption = "auto", verify: VerifyOption = True, json: JsonOption = False,
) -> None:
    """Write a page of the worst mistakes, each with its attention, and print the page's path."""
    from regard.verbs.wrong import main

    main(run, split, limit, worst, out, device, json, verify=verify)


def _settings(given: list[str] | None, start: Path | None, tune: str | None) -> list[str]:
    """The given settings, followed by those that --from and --tune abbreviate."""
    short = {"train.init_from": start, "train.trainable": tune}
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


UsageError: Any = typer.BadParameter.__base__  # click's; newer versions of typer bundle click


def main() -> NoReturn:
    """Run the command line. A user's mistake prints one line and sets the exit code; it never prints a traceback."""
    open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
    code = 0
    try:
        # Not app(): it draws boxes around errors, and treats a closed pipe as a failure.
        command = get_command(app)
        with command.make_context("regard", sys.argv[1:] or ["--help"]) as context:
            command.invoke(context)
        sys.stdout.flush()
    except typer.Exit as asked:
        code = asked.exit_code
    except UsageError as error:
        path = error.ctx.command_path if error.ctx else "regard"
        said = _setting_meant(error) or error.format_message().rstrip(".")
        said = said.replace(": Value error, ", ": ")  # pydantic's word, for which option
        code = fail(f"{said} (see `{path} --help`)", 2)
    except UserError as error:
        code = fail("; ".join([str(error), *getattr(error, "__notes__", [])]), error.exit_code)
    except BrokenPipeError:  # `| head -1`, or a closed terminal
        pass
    except PermissionError as error:
        code = fail(f"{error.filename}: no permission", 2)
    except OSError as error:  # the disk is full, or a file has been deleted meanwhile
        code = fail(f"{error.filename}: {error.strerror}" if error.filename else str(error), 1)
    except KeyboardInterrupt:
        code = 130
    for stream in (sys.stdout, sys.stderr):
        release(stream)
    sys.exit(code)


def _setting_meant(error: Any) -> str | None:
    """A message for an unknown option that has the name of a setting."""
    option = getattr(error, "option_name", None)
    if option is None or error.ctx is None:
        return None
    command = error.ctx.command
    options = [name for parameter in command.params for name in parameter.opts]
    if "--set" not in options:
        return None
    from regard.settings.near import setting_meant

    path = setting_meant(option, options, section="search" if command.name == "predict" else "")
    return None if path is None else f"No such option: {option}; did you mean --set {path}=…?"


def fail(message: str, code: int) -> int:
    if _speaks():
        print_message(f"regard: {message}")
    return code


def _speaks() -> bool:
    """Under torchrun, only one process prints messages."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return True
    from regard.training.parallel import speaks

    return speaks()
