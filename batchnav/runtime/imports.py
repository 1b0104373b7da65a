"""Modules of one's own, whose import registers algorithms, encoders, memories, tasks, goals, sensors and rewards.

The option `--import MODULE_OR_FILE` of every command names them, and the key `imports` of a configuration. A run keeps
them in its `config.yaml`, so `--resume`, `evaluate RUN`, `view RUN` and `export RUN` import them again. A policy file
names them too, but files from others may name any code: nothing that only a policy file names is imported.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.metadata
import importlib.util
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from batchnav.errors import BatchnavError, ConfigError, MissingPackageError, shell_word, shortened

OPTION = "--import"
VARIABLE = "BATCHNAV_IMPORTS"
"""Environment variable that tells child processes what to import: a JSON list."""
MAX_NAMES = 64
"""Largest number of names that a configuration or a policy file may hold."""
_imported: dict[str, None] = {}
"""Names that this process has imported, in order: modules, and absolute paths of files."""


def import_modules(names: Any, key: str = OPTION, folder: Path | None = None) -> tuple[str, ...]:
    """Import modules by dotted name and files by path, each once. Importing executes them.

    A file that has moved is found among those that were imported before under the same file name.

    Args:
        names: list of names. A path has a separator or ends with ".py".
        key: the option or setting that names them, for messages.
        folder: folder of relative paths; None: the working folder.

    Returns:
        The names as a run keeps them: modules as they are, files as absolute paths.

    Raises:
        ConfigError: a name is no module or file, or its import raises an error.
    """
    kept = [_import(name, key, folder or Path.cwd()) for name in checked_names(names, key)]
    if kept:
        _imported.update(dict.fromkeys(kept))
        os.environ[VARIABLE] = json.dumps(list(_imported))
    return tuple(kept)


def import_in_child() -> None:
    """Import in a child process what its parent has imported."""
    import_modules(json.loads(os.environ.get(VARIABLE, "[]")))


def checked_names(names: Any, key: str) -> list[str]:
    """Names as a list. ConfigError for anything but a list of at most MAX_NAMES texts."""
    if isinstance(names, (list, tuple)) and len(names) <= MAX_NAMES and all(isinstance(name, str) for name in names):
        return list(names)
    raise ConfigError(f"{key}: found {shortened(names)}, expected a list of at most {MAX_NAMES} modules or files")


def split_option(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words of a command line without `--import NAME`, and the names. ConfigError for an option without a name."""
    rest, names, left = list[str](), list[str](), list(words)
    while left:
        word = left.pop(0)
        if word == OPTION:
            if not left:
                raise ConfigError(f"{OPTION}: found no value, expected a module or a file")
            names.append(left.pop(0))
        elif word.startswith(f"{OPTION}="):
            names.append(word.partition("=")[2])
        else:
            rest.append(word)
    return rest, names


def advice(info: Mapping[str, Any]) -> str:
    """The end of a message on a policy that names modules which are not imported: the options to pass; "" for none.

    `info`: the dict that a policy file holds.
    """
    known = {Path(name).name for name in _imported}
    names = [name for name in checked_names(info.get("imports", []), "imports") if Path(name).name not in known]
    if not names:
        return ""
    options = " ".join(f"{OPTION} {shell_word(name)}" for name in names)
    return f"; the policy was trained with modules of its own: if you trust them, pass {options}"


def _import(name: str, key: str, folder: Path) -> str:
    """Import one module or file; returns the name to keep."""
    is_file = name.endswith(".py") or os.sep in name
    if is_file:
        path = (folder / name).resolve()
        if not path.is_file():
            moved = next((known for known in _imported if Path(known).name == path.name), None)
            if moved is not None:
                return moved
            raise ConfigError(
                f"{key}: found no file {shortened(str(path))}, expected one; if it moved, name it by {OPTION}"
            )
        name = str(path)
    if name in _imported:
        return name
    try:
        if is_file:
            _execute(path)
        else:
            _import_dotted(name)
    except BatchnavError as error:
        raise ConfigError(f"{key}: {shortened(name)}: {error}") from error
    except Exception as error:  # whatever the module does
        found = " ".join(f"{type(error).__name__}: {error}".split())
        raise ConfigError(
            f"{key}: {shortened(name)}: found an error while importing it ({shortened(found)})"
        ) from error
    return name


def _execute(path: Path) -> None:
    """Import a file as a module, whose name is the same in all processes."""
    name = f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # a file that ends with .py
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


def _import_dotted(name: str) -> None:
    """Import a module by name, from the working folder too."""
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    importlib.import_module(name)


def names_of(found: Iterable[str]) -> tuple[str, ...]:
    """The given names followed by all others that this process has imported, each once."""
    return tuple(dict.fromkeys((*found, *_imported)))


# How to install the optional packages of an extra, from a checkout and from a wheel


def install_command(extra: str, *packages: str) -> str:
    """A pip command for the packages of an extra of `pyproject.toml`, such as "viewer", or for some of them.

    It names the packages themselves, so it needs neither the checkout nor an index that has batchnav, and leaves the
    installation of batchnav as it is.
    """
    try:
        lines = importlib.metadata.requires("batchnav") or []
    except importlib.metadata.PackageNotFoundError:  # a checkout that is not installed
        lines = []
    pattern = re.compile(rf"""^(.*?)\s*;.*\bextra == ['"]{re.escape(extra)}['"]""")
    found = [match.group(1) for match in map(pattern.match, lines) if match]
    if packages:
        listed = {re.split(r"[^\w.-]", line, maxsplit=1)[0]: line for line in found}
        found = [listed.get(name, name) for name in packages]
    return "pip install " + (" ".join(f"'{name}'" for name in found) or f"-e '.[{extra}]' in the checkout")


def shortest_install(extra: str) -> str:
    """A command that adds an extra: that of make in the environment of `make train`, else `install_command`."""
    checkout = Path(__file__).resolve().parents[2]
    if Path(sys.prefix).resolve() == checkout / ".venv" and (checkout / "Makefile").is_file():
        return f"make {extra}"
    return install_command(extra)


@contextlib.contextmanager
def needs_extra(extra: str, what: str, package: str) -> Iterator[None]:
    """Context of imports from a package of an extra: a failed one raises MissingPackageError.

    The error says how to install the package, for `what`.
    """
    try:
        yield
    except ImportError as error:
        found, command = f"{what}: found {str(error)!r}", install_command(extra, package)
        raise MissingPackageError(f"{found}, expected the package {package}: {command}", name=error.name) from None
