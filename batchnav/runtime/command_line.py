"""Command lines: tyro's parser, with help texts as paragraphs."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import docstring_parser
import tyro

HELP = frozenset({"-h", "--help"})
"""Options that print the help of a command."""


def parse_options(
    kind: Callable[..., Any],
    prog: str,
    arguments: Sequence[str],
    description: str | None = None,
    default: Any = tyro.MISSING_NONPROP,
) -> Any:
    """The options of a command line as the dataclass `kind`, or the result of a function called with them.

    Args:
        kind: a dataclass, whose fields are the options, or a function, whose arguments are the options.
        prog: name of the program, for its help.
        arguments: the command line.
        description: text of the help above the options; None: the docstring of `kind`.
        default: values of the options that the command line omits, an instance of `kind`.
    """
    if not HELP.isdisjoint(arguments):
        describe_options(kind, default)
        description = None if description is None else _joined(description)
    return tyro.cli(kind, prog=prog, args=list(arguments), description=description, default=default)


def call_subcommand(functions: Mapping[str, Callable[..., Any]], prog: str, arguments: Sequence[str]) -> None:
    """Call the function that the first word of a command line names, with the options of the other words."""
    if not HELP.isdisjoint(arguments):
        for function in functions.values():
            describe_options(function)
    tyro.extras.subcommand_cli_from_dict(dict(functions), prog=prog, args=list(arguments))


def describe_options(kind: Callable[..., Any], default: Any = None) -> None:
    """Annotate a dataclass or function with the help texts of its options.

    tyro keeps the line breaks of docstrings and shows the default None of an option; these annotations have one
    paragraph, and no default where that is None or empty. Annotations change, so call it for help only.
    """
    texts = option_texts(kind)
    annotations = kind.__annotations__
    for name, hint in typing.get_type_hints(kind, include_extras=True).items():
        if name in annotations and name in texts:
            argument = tyro.conf.arg(help=texts[name], help_behavior_hint=_default_hint, metavar=_metavar(name, hint))
            annotations[name] = Annotated[hint, argument]
    for part in vars(default).values() if dataclasses.is_dataclass(default) else ():
        if dataclasses.is_dataclass(part):
            describe_options(type(part), part)
    for base in kind.__bases__ if isinstance(kind, type) else ():
        if dataclasses.is_dataclass(base):
            describe_options(base)


def option_texts(kind: Callable[..., Any]) -> dict[str, str]:
    """Meaning of each field of a dataclass or argument of a function, by name, from the docstrings; one line each."""
    classes = [base for base in reversed(kind.__mro__) if base is not object] if isinstance(kind, type) else [kind]
    found = [docstring_parser.parse_from_object(each).params for each in classes]
    texts = {param.arg_name: " ".join((param.description or "").split()) for params in found for param in params}
    return {name: _sentence(text) for name, text in texts.items()}


def _sentence(text: str) -> str:
    """A text with a capital letter at its start, unless it starts with a name or symbol, such as "m/s"."""
    return text[:1].upper() + text[1:] if text.partition(" ")[0].isalpha() else text


def _joined(text: str) -> str:
    """A docstring with each paragraph on one line, except for indented ones."""
    parts = text.strip().split("\n\n")
    return "\n\n".join(part if part.startswith(" ") else " ".join(part.split()) for part in parts)


def _default_hint(default: str) -> str:
    """Text that follows the help of an option; empty for an empty default."""
    return "" if default in ("", "''", "None") else f"(default: {default})"


def _metavar(name: str, hint: Any) -> str | None:
    """Placeholder of a positional argument, its name, and of an option that may be None; None: tyro's placeholder."""
    if tyro.conf.Positional in getattr(hint, "__metadata__", ()):
        is_several = typing.get_origin(typing.get_args(hint)[0]) is tuple
        return f"[{name.upper()} ...]" if is_several else name.upper()
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        kinds = [each for each in typing.get_args(hint) if each is not type(None)]
        return {"int": "INT", "float": "FLOAT", "str": "STR", "Path": "PATH"}.get(getattr(kinds[0], "__name__", ""))
    return None
