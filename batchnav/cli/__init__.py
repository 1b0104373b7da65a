"""The command line `batchnav COMMAND ...`. Most modules of this package are a command, imported when it is run."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import select
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from batchnav import __version__
from batchnav.cli.interrupts import end_interrupted, interrupted_with, interrupts_arrive
from batchnav.errors import BatchnavError, printable, shortened
from batchnav.runtime.imports import import_in_child, import_modules, split_option


class Command(NamedTuple):
    """Usage of a command."""

    arguments: str
    """Synopsis of the arguments."""
    about: str
    """Description in one line."""
    if_interrupted: str = ""
    """Message after Ctrl-C, unless the command itself says what was written."""


WHOLE_FILES = "no file was left incomplete"
"""Message after Ctrl-C in commands that write several files."""
SUBCOMMAND = "SUBCOMMAND"
"""Place in a synopsis of the names in `SUBCOMMANDS` of the command's module."""
COMMANDS = {
    "train": Command(
        "[anticipation|cartpole|detector|encoder] [--config NAME] [--out FOLDER] [--gpus N] ...",
        "train an agent or continue a run",
        WHOLE_FILES,
    ),
    "evaluate": Command(
        "[AGENT ...] [--split val] [--report] ...",
        "evaluate agents: success rate, SPL, intervals",
        "no results were written",
    ),
    "view": Command("[SCENE ...] [--agents NAME ...] [--episodes FILE]", "show a scene and its agents in the browser"),
    "bench": Command(f"{SUBCOMMAND} ...", "measure frames and steps per second on this machine"),
    "data": Command(
        f"{SUBCOMMAND} ...",
        "manage datasets, scans and episode files",
        WHOLE_FILES,
    ),
    "navmesh": Command(f"{SUBCOMMAND} ...", "bake, describe and plot navigation meshes; write ROS maps", WHOLE_FILES),
    "export": Command(
        "POLICY --out FILE.onnx ...", "write a policy for a robot: ONNX file and its description", "no file was written"
    ),
    "doctor": Command("[--config NAME]", "check this machine: devices, renderers, missing packages"),
    "cite": Command("", "print BibTeX entries"),
}
"""Commands by name. The module `batchnav.cli.NAME` has a function `command(arguments)`."""
SLOW = ("train", "evaluate", "view", "bench", "export")
"""Commands that log a line at their start: their imports take seconds, and over ten seconds on first use."""


def main(arguments: Sequence[str] | None = None) -> None:
    """The program `batchnav`. Errors are printed as one line.

    Args:
        arguments: command-line arguments; None: those of the process.
    """
    name, *rest = words = (sys.argv[1:] if arguments is None else arguments) or [""]
    _prepare_streams(all(map(str.isprintable, words)))
    try:
        _check_working_folder()
        if name == "--version":
            print(f"batchnav {__version__}", flush=True)
        elif name in COMMANDS:
            rest, imports = split_option(rest)
            _run(name, rest, imports)
        else:
            print(usage(), flush=True)
            sys.exit(0 if name in ("-h", "--help") else 2)
    except BatchnavError as error:
        sys.exit(f"error: {error}")
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        what = str(error).partition("\n")[0] or "an allocation failed"
        sys.exit(f"error: memory does not suffice ({what}); use fewer environments, smaller images or fewer scenes")
    except KeyboardInterrupt as error:
        end_interrupted(str(error))
    except BrokenPipeError:  # the reader of stdout closed it, for example `| head`: discard the rest
        if _is_read(sys.stdout.fileno()):
            raise  # a different pipe broke, for example to a child process
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        if error.filename is None:
            raise
        sys.exit(f"error: {printable(shortened(str(error.filename)))}: {error.strerror}")


def _check_working_folder() -> None:
    """BatchnavError in a folder that was deleted: PyTorch ends a process there without naming the reason."""
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise BatchnavError("working folder: found none, it was deleted; change to another folder") from error


def _prepare_streams(arguments_are_printable: bool) -> None:
    """Make output possible in any encoding; where an argument has control characters, none reach the terminal.

    The parser of arguments repeats them in its messages.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
        if not arguments_are_printable:
            from batchnav.runtime.console import PlainStream  # rarely needed, and takes a while

            setattr(sys, name, PlainStream(stream))


class _OneLine(logging.Formatter):
    """Formats each record as one line, apart from tracebacks."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))


def _is_out_of_memory(error: Exception) -> bool:
    """True for the errors of Python, NumPy and torch where an allocation on the host or the device failed."""
    words = "can't allocate memory", "not enough memory", "out of memory"
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)


def _run(name: str, arguments: Sequence[str], imports: Sequence[str]) -> None:
    """Run a command; messages of the package go to stderr."""
    logging.basicConfig(format="%(message)s")
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_OneLine("%(message)s"))
    logging.getLogger("batchnav").setLevel(logging.INFO)  # messages such as the chosen renderer
    asks_for_help = not {"-h", "--help"}.isdisjoint(arguments)
    if name in SLOW and not asks_for_help and os.environ.get("RANK", "0") == "0":
        logging.getLogger("batchnav").info("batchnav %s: starting", __version__)
    with _plain_warnings(), interrupts_arrive(), interrupted_with(lambda: COMMANDS[name].if_interrupted):
        import_in_child()
        import_modules(imports)
        command = importlib.import_module(f"batchnav.cli.{name}").command
        command(arguments)
    sys.stdout.flush()


@contextlib.contextmanager
def _plain_warnings() -> Iterator[None]:
    """Print warnings about a user's files as one line, without the place in the source that issued them."""
    usual = warnings.formatwarning

    def plain(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> str:
        if category is not UserWarning:
            return usual(message, category, *place, **more)
        return f"warning: {printable(str(message))}\n"

    warnings.formatwarning = plain
    try:
        yield
    finally:
        warnings.formatwarning = usual


def _is_read(descriptor: int) -> bool:
    """True if the descriptor is a file or a pipe that is still open for reading."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return not any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def usage() -> str:
    """The usage text: all commands with a description."""
    lines = [
        f"  batchnav {name} {_synopsis(name, command)}".rstrip() + f"\n      {command.about}"
        for name, command in COMMANDS.items()
    ]
    return "\n".join(
        [
            "usage:",
            *lines,
            "  batchnav --version",
            "",
            "option of every command: --import MODULE_OR_FILE, repeatable: a module of your own to import first, which",
            "registers tasks, sensors, encoders, memories, algorithms, scene sources or episode formats by name",
            "options of a command: batchnav train --help, batchnav data list --help",
        ]
    )


def _synopsis(name: str, command: Command) -> str:
    """Synopsis of a command's arguments, with the names of its subcommands."""
    if SUBCOMMAND not in command.arguments:
        return command.arguments
    names = importlib.import_module(f"batchnav.cli.{name}").SUBCOMMANDS
    return command.arguments.replace(SUBCOMMAND, f"{{{','.join(names)}}}")
