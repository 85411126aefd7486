"""The program: its commands in the order of `vsdn --help`, and its exit codes."""

import contextlib
import os
import sys
from typing import Annotated

import typer

import vsdn
from vsdn.cli import (
    datasets,
    estimating,
    forecasting,
    online,
    plotting,
    reproduce,
    sampling,
    scoring,
    skeleton,
    training,
)
from vsdn.errors import VsdnError

COMMANDS = (
    training.demo,
    training.fit,
    training.resume,
    forecasting.forecast,
    forecasting.export,
    estimating.interpolate,
    estimating.filter,
    estimating.smooth,
    sampling.sample,
    sampling.simulate,
    scoring.likelihood,
    online.online,
    plotting.plot,
    scoring.evaluate,
    training.info,
    reproduce.reproduce,
    skeleton.skeleton,
)

app = typer.Typer(
    no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, help=vsdn.__doc__
)


def _show_version(asked: bool) -> None:
    """Prints the version and ends the program, if asked to."""
    if asked:
        print(f"vsdn {vsdn.__version__}")
        raise typer.Exit


@app.callback()
def _begin(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


for command in COMMANDS:
    app.command()(command)
app.add_typer(datasets.app, name="datasets")

NO_MEMORY = "there is not enough memory for this: try fewer draws or times, or a smaller batch_size"


def main(arguments: list[str] | None = None) -> int:
    """The exit code: 0; 2 and one line on bad input; 130 when interrupted."""
    try:
        result = typer.main.get_command(app).main(arguments, prog_name="vsdn", standalone_mode=False)
        sys.stdout.flush()  # finds a full disk before the exit code is fixed
        return result if isinstance(result, int) else 0
    except VsdnError as error:
        return _fail(str(error))
    except (KeyboardInterrupt, typer.Abort):
        print("interrupted", file=sys.stderr)
        return 130
    except (BrokenPipeError, SystemExit):  # the reader has stopped, as in `| head`; typer makes it an exit
        _give_up_stdout()
        return 0
    except MemoryError:
        return _fail(NO_MEMORY)
    except OSError as error:
        _give_up_stdout()
        return _fail(f"{error.filename or 'standard output'}: {error.strerror or error}")
    except Exception as error:
        if "RESOURCE_EXHAUSTED" in str(error):  # JAX's MemoryError
            return _fail(NO_MEMORY)
        said = getattr(error, "format_message", None)  # typer has a private copy of click, with its own errors
        if said is None:
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            print(said(), file=sys.stderr)
            return 2
        return _fail(said())


def _fail(message: str) -> int:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return 2


def _give_up_stdout() -> None:
    """Discards what is still to be printed, so that Python does not fail over it at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run() -> None:
    """The console script."""
    sys.exit(main())
