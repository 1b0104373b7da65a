"""The command line, `batchnav NAME ...`. Each command is a module here, imported when it is asked for."""

from __future__ import annotations

import importlib
import logging
import os
import select
import sys
from collections.abc import Sequence
from typing import NamedTuple

from batchnav import __version__
from batchnav.errors import BatchnavError


class Command(NamedTuple):
    """What the usage says of a command."""

    arguments: str
    about: str


COMMANDS = {
    "train": Command("[cartpole] [--config NAME] [--out FOLDER] [--gpus N] ...", "train an agent, or go on with a run"),
    "evaluate": Command("[POLICY ...] [--split val] [--report] ...", "play fixed episodes: success, SPL, intervals"),
    "view": Command("[SCENE ...] [--policy NAME ...] [--episodes FILE]", "a scene and agents in it, in the browser"),
    "bench": Command("{render,sim,train,navmesh,load} ...", "measure this machine's frames and steps per second"),
    "data": Command("{list,download,import,prepare,episodes,validate} ...", "data sets, scans and episode files"),
    "navmesh": Command("{bake,info,view} ...", "where agents of a size can walk"),
    "doctor": Command("", "what this machine can do, and what to install for the rest"),
}
"""The modules `batchnav.cli.NAME`; each has a function `command` of the arguments after its name."""
SLOW = ("train", "evaluate", "view", "bench")
"""What they import takes seconds, the first time ten and more: they say at once that they begin."""


def main(arguments: Sequence[str] | None = None) -> None:
    """The program `batchnav`; `arguments` are those of the command line by default. What is wrong is one line."""
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or [""]
    try:
        if name == "--version":
            print(f"batchnav {__version__}", flush=True)
        elif name in COMMANDS:
            _run(name, rest)
        else:
            print(usage(), flush=True)
            sys.exit(0 if name in ("-h", "--help") else 2)
    except BatchnavError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # whoever read has had enough, as `| head`; what is still to be written goes nowhere
        if _is_read(sys.stdout.fileno()):
            raise  # another pipe, as that to a process of ours that died
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


def _run(name: str, arguments: Sequence[str]) -> None:
    """A command, with what the package says of itself."""
    logging.basicConfig(format="%(message)s")
    logging.getLogger("batchnav").setLevel(logging.INFO)  # which renderer was taken, and why
    if name in SLOW and os.environ.get("RANK", "0") == "0":
        logging.getLogger("batchnav").info("batchnav %s: starting", __version__)
    command = importlib.import_module(f"batchnav.cli.{name}").command
    importlib.import_module("batchnav.runtime.console.announce")  # from here on kernels that compile say so
    command(arguments)
    sys.stdout.flush()


def _is_read(descriptor: int) -> bool:
    """Whether what is written there is still read by somebody, or is a file."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return not any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def usage() -> str:
    """All commands, and what each is for."""
    lines = [
        f"  batchnav {name} {command.arguments}".rstrip() + f"\n      {command.about}"
        for name, command in COMMANDS.items()
    ]
    return "\n".join(
        ["usage:", *lines, "  batchnav --version", "", "batchnav train --help, batchnav data list --help ... say more"]
    )
