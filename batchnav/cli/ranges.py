"""Ranges of the numeric options of benchmarks, studies and example programs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from batchnav.cli.interrupts import end_interrupted, interrupted_with, interrupts_arrive
from batchnav.errors import ArgumentError, BatchnavError
from batchnav.runtime.checks import check_int, check_number
from batchnav.runtime.command_line import parse_options

Options = TypeVar("Options")
Range = tuple[float, float]
"""Lowest and highest valid value."""
INTEGERS: dict[str, tuple[int, int]] = {
    "num_envs": (1, 2**24), "num_agents": (1, 2**24), "sizes": (1, 4096), "size": (1, 4096), "steps": (1, 2**31 - 1),
    "repeats": (1, 100_000), "houses": (1, 100_000), "resident_scenes": (0, 100_000), "rollout_steps": (1, 10_000),
    "minibatch_frames": (1, 2**31 - 1), "updates": (1, 2**31 - 1), "batch": (1, 2**28), "seed": (0, 2**62),
    "num_steps": (1, 10_000), "epochs": (1, 10_000), "minibatches": (1, 2**24), "total_frames": (1, 2**62),
    "evaluations": (0, 1_000_000), "maps": (0, 100_000), "count": (0, 2**31 - 1), "seeds": (0, 2**62),
    "ranks": (1, 1024), "speed_updates": (1, 2**31 - 1), "losses": (1, 2**31 - 1), "update_epochs": (1, 10_000),
    "num_minibatches": (1, 2**24),
}  # fmt: skip
"""Range of each integer option, by name."""
NUMBERS: dict[str, Range] = {
    "seconds": (1e-3, 86_400.0), "noise": (0.0, 1000.0), "learning_rate": (1e-12, 1e3), "learning_rates": (1e-12, 1e3),
    "gamma": (0.0, 1.0), "gae_lambda": (0.0, 1.0), "clip_coef": (1e-6, 1e3), "vf_coef": (0.0, 1e6),
    "max_grad_norm": (1e-12, 1e12), "unknown": (0.0, 1000.0), "truth_within": (0.0, 1000.0),
}  # fmt: skip
"""Range of each other numeric option, by name."""
OPTIONAL = ("num_agents",)
"""Options of several values that may be empty: the benchmark then has a default for the device."""


def check_options(chosen: Any, integers: Mapping[str, tuple[int, int]] = INTEGERS) -> None:
    """ArgumentError for a numeric option out of range, or an option of several values that has none."""
    for name, value in vars(chosen).items():
        values = value if isinstance(value, tuple) else (value,)
        option = "--" + name.replace("_", "-")
        if not values and name not in OPTIONAL:
            raise ArgumentError(f"{option}: found no value, expected at least one")
        for single in values:
            if name in integers:
                check_int(option, single, *integers[name])
            elif name in NUMBERS and single is not None:
                check_number(option, single, *NUMBERS[name])


def run(
    kind: type[Options],
    main: Callable[[Options], object],
    description: str | None,
    integers: Mapping[str, tuple[int, int]] = INTEGERS,
) -> object:
    """Run a program with the options of the command line; errors of the package and Ctrl-C are printed as one line.

    Args:
        kind: dataclass of the options.
        main: the program; its result is returned.
        description: text of the help above the options.
        integers: ranges of integer options.

    Raises:
        SystemExit: an option is out of range, the program raised a BatchnavError, or Ctrl-C.
    """
    try:
        chosen = parse_options(kind, sys.argv[0], sys.argv[1:], description)
        check_options(chosen, integers)
        with interrupts_arrive(), interrupted_with(lambda: ""):
            return main(chosen)
    except BatchnavError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt as error:
        end_interrupted(str(error))
