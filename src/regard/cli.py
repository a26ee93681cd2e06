"""The command line: options and help of the verbs. What a verb does is in verbs/, imported only when it runs."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import typer
from typer.main import get_command

from regard import __version__
from regard.settings.errors import UserError

__all__ = ["main"]

app = typer.Typer(
    name="regard", add_completion=False, pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="The transformer as a tool: train it on your own files, run it, open it up.")

RunOption = Annotated[Path | None, typer.Option("--run", help="Run directory; the newest under runs/ if not given.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
PrecisionOption = Annotated[Literal["float32", "bfloat16"], typer.Option(
    "--precision", help="Of the arithmetic; bfloat16 is faster where the machine has units for it.")]
DeviceOption = Annotated[Literal["auto", "cpu", "cuda", "mps"], typer.Option("--device", help="Where it runs.")]


@app.command()
def train(
    task: Annotated[str | None, typer.Argument(help="What to learn: translate (the default).")] = None,
    data: Annotated[list[Path] | None, typer.Option(
        "--data", help="Your files: a folder of train.en, train.de, val.en …; two such files; a .tsv; a .jsonl. "
                       "Give it twice for two files. Without it, the built-in French-English phrase book.")] = None,
    source: Annotated[str | None, typer.Option(
        "--source", help="Language (file ending) or JSON key of the input.")] = None,
    target: Annotated[str | None, typer.Option("--target", help="Language or key of the output.")] = None,
    recipe: Annotated[Path | None, typer.Option(
        "--recipe", help="Settings from a TOML file or a saved run.json.")] = None,
    setting: Annotated[list[str] | None, typer.Option(
        "--set", help="One setting, as in --set model.width=512. `regard settings` lists them.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Where the run goes; runs/TASK-DATA if not given.")] = None,
    extend: Annotated[int | None, typer.Option(
        "--extend", metavar="STEPS", min=1, help="Lengthen a run that has ended, by so many steps.")] = None,
    json: JsonOption = False,
) -> None:
    """Train a model. The same command again goes on where it stopped."""
    from regard.verbs.train import main

    main(task, data or [], source, target, recipe, setting or [], out, extend, json)


@app.command(name="eval")
def evaluate(
    run: RunOption = None,
    split: Annotated[list[str] | None, typer.Option("--split", help="Which split; all tests if not given.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only the first so many examples.")] = None,
    device: DeviceOption = "auto", precision: PrecisionOption = "float32", json: JsonOption = False,
) -> None:
    """Measure a trained model on its test data."""
    from regard.verbs.evaluate import main

    main(run, split or [], limit, device, precision, json)


@app.command()
def predict(
    inputs: Annotated[list[str] | None, typer.Argument(
        metavar="[INPUT]...", help="Texts; without any, lines of stdin.")] = None,
    run: RunOption = None,
    setting: Annotated[list[str] | None, typer.Option(
        "--set", help="One setting of the search, as in --set search.beam=1.")] = None,
    device: DeviceOption = "auto", precision: PrecisionOption = "float32", json: JsonOption = False,
) -> None:
    """Answer: translate the arguments, or stdin line by line."""
    from regard.verbs.predict import main

    main(inputs or [], run, setting or [], device, precision, json)


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


def _version(show: bool) -> bool:
    if show:
        print(f"regard {__version__}")
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
    except BrokenPipeError:  # `| head -1`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except PermissionError as error:
        code = fail(f"{error.filename}: no permission", 2)
    except OSError as error:  # the disk is full, or a file went away under our hands
        code = fail(f"{error.filename}: {error.strerror}" if error.filename else str(error), 1)
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


def fail(message: str, code: int) -> int:
    if _speaks():
        print(f"regard: {message}", file=sys.stderr, flush=True)
    return code


def _speaks() -> bool:
    """One of the processes that torchrun has started is enough."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return True
    from regard.training.parallel import speaks

    return speaks()
