"""`batchnav cite`: BibTeX entries of this program and of the paper whose method it implements."""

from __future__ import annotations

from collections.abc import Sequence

from batchnav import __version__
from batchnav.cli.console import show
from batchnav.runtime.command_line import parse_options

BIBTEX = f"""\
@software{{batchnav,
  title   = {{batchnav: training of navigation agents by batch simulation}},
  author  = {{{{the batchnav authors}}}},
  year    = {{2026}},
  version = {{{__version__}}}
}}
@inproceedings{{shacklett2021large,
  title     = {{Large Batch Simulation for Deep Reinforcement Learning}},
  author    = {{Shacklett, Brennan and Wijmans, Erik and Petrenko, Aleksei and Savva, Manolis and Batra, Dhruv and
               Koltun, Vladlen and Fatahalian, Kayvon}},
  booktitle = {{International Conference on Learning Representations}},
  year      = {{2021}}
}}"""
"""The entries; README.md has the same."""


def cite() -> None:
    """Print BibTeX entries of batchnav and of the paper whose method it implements."""
    for line in BIBTEX.splitlines():
        show(line)


def command(arguments: Sequence[str]) -> None:
    """Run `batchnav cite`."""
    parse_options(cite, "batchnav cite", arguments)
