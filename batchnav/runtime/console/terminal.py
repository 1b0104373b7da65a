"""Terminal output: rich consoles that print names of files and scenes as they are, and never control characters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook
from rich.control import Control
from rich.segment import Segment

from batchnav.errors import printable


def terminal(**options: Any) -> Console:
    """A console without markup and emoji codes, on which control characters in texts and tables appear escaped.

    `options`: as in `rich.console.Console`, for example `stderr`, `width`, `quiet`.
    """
    console = Console(markup=False, emoji=False, highlight=False, **options)
    console.push_render_hook(_Escaping())
    return console


class _Escaping(RenderHook):
    """Wraps all that a console renders, except rich's own control codes."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [each if isinstance(each, Control) else _Escaped(each) for each in renderables]


class _Escaped:
    """A renderable whose text has no control characters."""

    def __init__(self, content: ConsoleRenderable):
        self._content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[Segment]:
        for segment in console.render(self._content, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(_lines(segment.text), segment.style)


class PlainStream:
    """A text stream that writes control characters other than line breaks escaped, and is no terminal."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text."""
        return self._stream.write(_lines(text))

    def isatty(self) -> bool:
        """False: programs shall write no colours."""
        return False


def _lines(text: str) -> str:
    """Text whose characters are printable, apart from line breaks."""
    return "\n".join(map(printable, text.split("\n")))
