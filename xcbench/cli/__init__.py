"""The command line: one module per group of verbs, each verb a thin call of public functions.

It may import every room, but only inside the verbs, so that `xcbench --help` answers at once. No room imports it.
"""

import io
import sys
from collections.abc import Sequence

import cyclopts

from xcbench import __version__
from xcbench.cli import (
    add,
    cache,
    check,
    compare,
    data,
    doctor,
    evaluate,
    graph,
    listing,
    predict,
    report,
    run,
    table,
    threshold,
    tune,
)
from xcbench.errors import XCBenchError
from xcbench.signals import Terminated, terminate_as_interrupt

app = cyclopts.App(
    name="xcbench",
    help="The benchmark framework for extreme classification.",
    version=__version__,
    suppress_keyboard_interrupt=False,
)
app.register_install_completion_command()
app.command(listing.list_, name="list")
app.command(data.app)
app.command(run.run)
app.command(add.add)
app.command(predict.predict)
app.command(evaluate.evaluate)
app.command(threshold.threshold)
app.command(tune.tune)
app.command(compare.compare)
app.command(check.check)
app.command(doctor.doctor)
app.command(graph.graph)
app.command(cache.app)
app.command(table.table)
app.command(table.claims)
app.command(table.plot)
app.command(report.report)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command. Expected failures become one line on stderr and an exit code (1 failed, 2 wrong input).

    Ctrl-C and SIGTERM do, too (130 and 143).

    Parameters
    ----------
    arguments
        The words after `xcbench`; by default those of the command line.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        # As stderr does by default: characters that the terminal cannot show must not stop the output.
        sys.stdout.reconfigure(errors="backslashreplace")

    try:
        with terminate_as_interrupt():
            app(arguments, exit_on_error=False, print_error=False)
    except XCBenchError as error:
        _fail(str(error), error.exit_code)
    except cyclopts.CycloptsError as error:
        _fail(str(error), 2)
    except BrokenPipeError:
        sys.exit(1)
    except OSError as error:
        # A file or folder that cannot be read or written, wherever it was named.
        _fail(_describe(error), 1)
    except Terminated as interrupt:
        _fail(str(interrupt) or "terminated", 143)
    except KeyboardInterrupt as interrupt:
        _fail(str(interrupt) or "interrupted", 130)


def _describe(error: OSError) -> str:
    if error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _fail(message: str, code: int) -> None:
    one_line = " ".join(message.split())
    print(f"xcbench: {one_line}", file=sys.stderr)
    sys.exit(code)
