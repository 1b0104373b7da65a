"""Parallel work: one function applied to many items in processes.

The workers are forks of one process, the server, which has imported what they need and loaded their kernels: all of
them start at once. The server is a new process that runs nothing else, since forking is unsafe after CUDA or threads
have started. It can start before its work is known, while this process still imports PyTorch (`start_early`).

The workers of a call take the numbers of its items from a common counter, and so does the caller (`Workers.next`).
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import importlib
import json
import multiprocessing
import os
import pickle
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple, TypeVar

import cloudpickle
import numpy as np
from numba.core.dispatcher import Dispatcher

from batchnav.errors import BatchnavError
from batchnav.runtime.console import progress_bar
from batchnav.runtime.imports import import_in_child
from batchnav.runtime.parallel import interrupts_blocked, interrupts_received, limit_threads, num_threads

_SERVE = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from batchnav.runtime import workers
workers.serve(int(sys.argv[2]), json.loads(sys.argv[3]))
"""
"""Code of the server. It imports from the `sys.path` of this process."""
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Variables of the server: there are as many workers as cores, so libraries need no threads of their own."""

SCENES_PER_WORKER = 8
"""Least number of scenes per process: the server takes seconds to start, a house a fifth of a second to make."""

T = TypeVar("T")
R = TypeVar("R")


def in_parallel(
    work: Callable[[T], R], items: Iterable[T], title: str, per_worker: int = 1
) -> Generator[R, None, None]:
    """Results of `work(item)` in the order of the items, as they become ready.

    Args:
        work: the function; picklable, as are items and results.
        items: its arguments.
        title: noun for the progress display and for errors.
        per_worker: least number of items per process.

    There are at most as many processes as `num_threads`, this one included, and fewer where a process would get less
    than `per_worker` items. The others continue while the caller handles a result; closing the generator stops them.
    Progress is a bar on a terminal and in notebooks with widgets, and occasional lines elsewhere.

    The caller's main module is not imported again, so scripts need no `__main__` guard. A daemonic process may not
    start processes, so it does the work itself. Raises BatchnavError where a process is killed.
    """
    items, done = list(items), 0
    workers = min(num_threads(), len(items) // per_worker)
    alone = workers < 2 or multiprocessing.current_process().daemon or not sys.executable
    with progress_bar(title, len(items)) as show:

        def counted(some: Iterable[R]) -> Iterator[R]:
            nonlocal done
            for result in some:
                done += 1
                show(done)
                yield result

        if alone:
            end_early()
            yield from counted(map(work, items))
            return
        yield from counted(map(work, items[:1]))  # compiles missing kernels once, for all processes
        try:
            with contextlib.closing(Workers(work, items[1:], workers - 1)) as others:
                yield from counted(_shared(others, work, items[1:]))
        except WorkerKilledError as error:
            raise BatchnavError(
                f"{title}: a process was killed after {done} of {len(items)}, probably because memory was short; free "
                f"memory, or set NUMBA_NUM_THREADS=1 for fewer processes"
            ) from error


def _shared(others: Workers, work: Callable[[T], R], items: list[T]) -> Iterator[R]:
    """Results in order. This process works too while the next result is not ready."""
    own: dict[int, R] = {}
    for number in range(len(items)):
        while number not in own and not others.has(number) and (mine := others.next()) is not None:
            own[mine] = work(items[mine])
        yield own.pop(number) if number in own else others.result(number)


# In the calling process


class _Server:
    """The process that forks the workers of one call."""

    def __init__(self, modules: Sequence[str]) -> None:
        self.control, there = socket.socketpair()
        arguments = [json.dumps([*map(str, sys.path)]), str(there.fileno()), json.dumps([*modules])]
        with there, interrupts_blocked():
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", _SERVE, *arguments], env={**_ONE_THREAD, **os.environ},
                stdin=subprocess.DEVNULL, pass_fds=[there.fileno()],
            )  # fmt: skip
        atexit.register(self.process.kill)

    def close(self) -> None:
        """End the process: at once if it still imports, else when all of its workers have ended."""
        try:
            self.control.recv(1, socket.MSG_DONTWAIT)
        except OSError:
            self.process.kill()
        self.control.shutdown(socket.SHUT_RDWR)  # also where a fork of this process holds it open
        self.control.close()
        self.process.wait()
        atexit.unregister(self.process.kill)


_early: list[_Server] = []
"""A server that has no work yet; at most one."""


def start_early(*modules: str) -> None:
    """Start the server of the next workers, which imports modules meanwhile."""
    if not _early and sys.executable:
        with contextlib.suppress(OSError):  # no process or memory left
            _early.append(_Server(modules))


def end_early() -> None:
    """End a server that `start_early` started, if it has had no work."""
    while _early:
        _early.pop().close()


class WorkerKilledError(Exception):
    """A worker has ended without a result."""


class _Call(NamedTuple):
    """What workers do, and what they need of the calling process."""

    work: bytes
    """The function and its arguments (work, items), pickled by value where they are not importable."""
    total: int
    """Number of items."""
    environment: dict[str, str]
    folder: str
    path: list[str]
    kernels: dict[tuple[str, str], list[tuple]]
    """Types of the arguments for which serial kernels are loaded here, by module and name."""


class Workers:
    """Processes that apply a function to items, each to the next one that nothing has taken; close it at the end."""

    def __init__(self, work: Callable[[Any], Any], items: Sequence[Any], processes: int) -> None:
        self._count = len(items)
        self._server = _early.pop() if _early else _Server(_modules(work))
        self._counter = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        told = tempfile.TemporaryFile(buffering=0)  # a socket takes little before the server reads  # noqa: SIM115
        self._results: dict[int, bytes] = {}
        self._changed, self._is_broken = threading.Condition(), False
        pickled, path = cloudpickle.dumps((work, items)), [*map(str, sys.path)]
        call = _Call(pickled, len(items), dict(os.environ), os.getcwd(), path, _loaded_kernels())
        told.write(pickle.dumps(call))
        ends = [socket.socketpair() for _ in range(processes)]
        self._connections = [Connection(here.detach()) for here, _ in ends]
        with told, contextlib.suppress(OSError):  # a dead server: its workers' connections end at once
            socket.send_fds(self._server.control, [b"c"], [told.fileno(), self._counter.fileno()])
            for _, there in ends:
                socket.send_fds(self._server.control, [b"w"], [there.fileno()])
        for _, there in ends:
            there.close()
        self._receiver = threading.Thread(target=self._receive, name="batchnav-results", daemon=True)
        self._receiver.start()

    def next(self) -> int | None:
        """Number of the next item, which the caller then works on itself; None if none is left."""
        return _next(self._counter.fileno(), self._count)

    def has(self, number: int) -> bool:
        """True where `result` returns at once."""
        return number in self._results

    def result(self, number: int) -> Any:
        """Result of an item that a worker took. Raises what the function raised; WorkerKilledError."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_broken or number in self._results)
            if number not in self._results:
                raise WorkerKilledError
            value, error = pickle.loads(self._results.pop(number))
        if error is not None:
            raise error
        return value

    def close(self) -> None:
        """End the processes, each after the item that it works on."""
        _write(self._counter.fileno(), self._count)
        self._server.close()
        self._receiver.join()
        for connection in self._connections:
            connection.close()
        self._counter.close()

    def _receive(self) -> None:
        """Keep the results as they come."""
        working = list(self._connections)
        while working:
            for connection in wait(working):
                assert isinstance(connection, Connection)
                try:
                    message = connection.recv_bytes()
                except (EOFError, OSError):
                    message = None
                with self._changed:
                    if message:
                        self._results[int.from_bytes(message[:8])] = message[8:]
                    else:  # an empty message is the last one
                        working.remove(connection)
                        self._is_broken |= message is None
                    self._changed.notify_all()


def _modules(work: Any) -> list[str]:
    """The module of a function, if it is one of this package: importing others may start threads."""
    while hasattr(work, "func"):  # functools.partial
        work = work.func
    module = getattr(work, "__module__", None) or ""
    return [module if module.startswith("batchnav.") else "batchnav.runtime.parallel"]


# The counter: a file, since a lock on it ends with its process


def _next(counter: int, count: int) -> int | None:
    """The number in the file, which is then one higher; None from `count` on."""
    fcntl.lockf(counter, fcntl.LOCK_EX)
    try:
        number = int.from_bytes(os.pread(counter, 8, 0))
        if number >= count:
            return None
        os.pwrite(counter, (number + 1).to_bytes(8), 0)
        return number
    finally:
        fcntl.lockf(counter, fcntl.LOCK_UN)


def _write(counter: int, number: int) -> None:
    """Set the number."""
    fcntl.lockf(counter, fcntl.LOCK_EX)
    os.pwrite(counter, number.to_bytes(8), 0)
    fcntl.lockf(counter, fcntl.LOCK_UN)


# Kernels, which the server loads once for all workers


def _loaded_kernels() -> dict[tuple[str, str], list[tuple]]:
    """Serial kernels that this process has loaded. Loading a `prange` loop would start threads in the server."""
    found = {}
    for name, module in list(sys.modules.items()):
        for key, kernel in list(vars(module).items()) if name.startswith("batchnav.") else ():
            is_kernel = isinstance(kernel, Dispatcher) and kernel.__module__ == name and kernel.stats.cache_path
            if is_kernel and not kernel.targetoptions.get("parallel"):
                found[name, key] = kernel.signatures
    return {where: types for where, types in found.items() if types}


def _load_kernels(kernels: dict[tuple[str, str], list[tuple]]) -> None:
    """Load kernels of modules that are imported here. A worker loads what is missing."""
    for (module, name), signatures in kernels.items():
        if module in sys.modules:
            kernel = getattr(sys.modules[module], name)
            for types in signatures:
                with contextlib.suppress(Exception):
                    kernel.compile(types)


# In the server and in the workers


def serve(control: int, modules: Sequence[str]) -> None:
    """Import modules, then fork a worker for each request of the calling process. Ends with its last worker."""
    with socket.socket(fileno=control) as caller:
        for module in modules:
            importlib.import_module(module)
        with contextlib.suppress(OSError):  # the caller has ended
            caller.sendall(b"r")
        request, files, _, _ = socket.recv_fds(caller, 1, 2)
        if not request:  # there was no work
            return
        with open(files[0], "rb") as told:
            told.seek(0)
            call: _Call = pickle.load(told)
        _load_kernels(call.kernels)
        gc.collect()
        gc.freeze()  # the collector of a worker would copy the pages of all objects
        processes = []
        while (received := socket.recv_fds(caller, 1, 1))[0]:
            (results,) = received[1]
            process = multiprocessing.get_context("fork").Process(target=_work, args=(call, caller, results, files[1]))
            try:
                process.start()
                processes.append(process)
            except OSError:  # no process or memory left: there are fewer workers
                Connection(os.dup(results)).send_bytes(b"")
            os.close(results)
    for process in processes:
        process.join()


def _work(call: _Call, server: socket.socket, results: int, counter: int) -> None:
    """Work on items until none is left. The caller receives each result, then an empty message."""
    server.close()
    with Connection(results) as caller, contextlib.suppress(ConnectionError, KeyboardInterrupt):  # it has ended
        failure, function, items = _prepared(call)
        while (number := _next(counter, call.total)) is not None:
            with interrupts_received():
                result = failure or _result(function, items[number])
            caller.send_bytes(number.to_bytes(8) + result)
        caller.send_bytes(b"")


def _prepared(call: _Call) -> tuple[bytes, Any, Sequence[Any]]:
    """The function and its arguments, in the surroundings of the caller; before them the error of an import, or b""."""
    os.environ.clear()
    os.environ.update(call.environment)
    sys.path[:] = call.path
    with contextlib.suppress(OSError):  # the folder is gone
        os.chdir(call.folder)
    np.random.seed()  # noqa: NPY002 the workers are copies of one process
    limit_threads(1)
    try:
        import_in_child()
        return b"", *pickle.loads(call.work)
    except Exception as error:
        return _pickled_error(error), None, ()


def _result(function: Callable[[Any], Any], item: Any) -> bytes:
    """The result and no error, or no result and the error, as bytes.

    Otherwise torch would send each tensor as an open file; a process may have about 1,000 of them.
    """
    try:
        return pickle.dumps((function(item), None))
    except BaseException as error:
        return _pickled_error(error)


def _pickled_error(error: BaseException) -> bytes:
    """An error with its traceback as a note, as bytes."""
    if isinstance(error, Exception):
        error.add_note(f"in a worker process:\n{traceback.format_exc()}")
    try:
        return pickle.dumps((None, error))
    except Exception:
        return pickle.dumps((None, BatchnavError(f"{type(error).__name__}: {error}")))
