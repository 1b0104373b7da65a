"""Broken files of every kind, each loaded and used in a child process that has bounds on memory and time.

    python tests/fuzz/harness.py --number 10000 --seed 0 --keep findings/

Allowed is a BatchnavError, or that the file loads and answers. All else is a finding: another exception, a crash, more
than `SECONDS` of processor time, more than `MEMORY` bytes,
or more memory than in proportion to the file. Input k of a seed is the same on every machine; what was
found is written to --keep, and told by kind and number.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SECONDS = 10.0
"""Processor time that one input may take; the slowest good one takes 0.1 s."""
MEMORY = 2 * 2**30
"""Bytes of address space that one input may take beside what the process had."""
BYTES_PER_BYTE = 40
"""Bytes of resident memory that an input may take for each of its own, beside its kind's `spare`."""
CLEAN, LOADED, FINDING = "clean", "loaded", "finding"


def child(seed: int, numbers: range, keep: Path) -> None:
    """Run inputs one after another; say the number of each before it begins, and its outcome when it ended."""
    import numpy as np
    from kinds import kinds

    from batchnav.errors import BatchnavError

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        known = list(kinds(Path(folder)))
        good = [kind.path.read_bytes() for kind in known]
        for kind in known:
            kind.use()  # compiles what it needs, and proves that the good file is good
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for number in numbers:
            which = number % len(known)
            kind, draw = known[which], np.random.default_rng([seed, number])
            data = kind.mutators[draw.integers(len(kind.mutators))](good[which], draw)
            kind.path.write_bytes(data)
            trace = keep / f"{seed}_{number}_{kind.name}{''.join(kind.path.suffixes)}"
            trace.write_bytes(data)  # gone again where the outcome is allowed
            print(number, "begins", kind.name, flush=True)
            Path("/proc/self/clear_refs").write_text("5")  # the peak is what is resident now
            before = peak()
            signal.setitimer(signal.ITIMER_PROF, SECONDS)  # its signal ends the process, in whatever code it is
            try:
                kind.use()
                outcome = LOADED
            except BatchnavError:
                outcome = CLEAN
            except BaseException as error:
                outcome = f"{FINDING} {type(error).__name__}: {error}".replace("\n", " ")[:300]
            signal.setitimer(signal.ITIMER_PROF, 0)
            taken = peak() - before
            if taken > BYTES_PER_BYTE * len(data) + kind.spare:
                outcome = f"{FINDING} took {taken:,} bytes of memory for {len(data):,} of its own"
            kind.path.write_bytes(good[which])
            if not outcome.startswith(FINDING):
                trace.unlink()
            print(number, outcome, flush=True)


def peak() -> int:
    """The most bytes of memory that were resident since the peak was set back."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split(maxsplit=1)[0]) * 1024


def run(seed: int, numbers: range, keep: Path) -> tuple[Counter, list[str]]:
    """Inputs of one seed in child processes, a new one after each that died. Outcomes by kind, and the findings."""
    outcomes, findings = Counter(), []
    while numbers:
        command = [sys.executable, __file__, "--child", "--seed", str(seed), "--keep", str(keep)]
        command += ["--first", str(numbers.start), "--number", str(numbers.stop), "--step", str(numbers.step)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        begun = kind = None
        with ThreadPoolExecutor(1) as reader:
            errors = reader.submit(process.stderr.read)
            for line in process.stdout:
                number, word, *rest = line.split(maxsplit=2)
                if word == "begins":
                    begun, kind = int(number), rest[0].strip()
                    continue
                outcomes[kind, word] += 1
                if word == FINDING:
                    findings.append(f"{kind} {seed}:{number} {rest[0].strip()}")
                numbers, begun = range(int(number) + numbers.step, numbers.stop, numbers.step), None
            status, tail = process.wait(), errors.result()[-2000:]
        if status == 0:
            break
        if begun is None:
            raise RuntimeError(f"the harness itself failed with status {status}: {tail}")
        name = "took too long" if status == -signal.SIGPROF else f"died of status {status}"
        outcomes[kind, FINDING] += 1
        findings.append(f"{kind} {seed}:{begun} {name} {tail[-200:]}".replace("\n", " "))
        numbers = range(begun + numbers.step, numbers.stop, numbers.step)
    return outcomes, findings


def fuzz(seed: int, number: int, processes: int, keep: Path) -> tuple[Counter, list[str]]:
    """`number` inputs of a seed, dealt to processes."""
    keep.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(processes) as pool:
        parts = list(pool.map(lambda k: run(seed, range(k, number, processes), keep), range(processes)))
    return sum((part[0] for part in parts), Counter()), [text for part in parts for text in part[1]]


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--keep", type=Path, default=Path("runs/fuzz"))
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--step", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.seed, range(options.first, options.number, options.step), options.keep)
        return
    begin = time.perf_counter()
    outcomes, findings = fuzz(options.seed, options.number, options.processes, options.keep)
    for kind in sorted({kind for kind, _ in outcomes}):
        counts = (f"{outcomes[kind, word]} {word}" for word in (CLEAN, LOADED, FINDING))
        print(f"{kind:10s} {', '.join(counts)}")
    print("\n".join(findings))
    total = f"{sum(outcomes.values())} inputs of seed {options.seed}"
    print(f"{total} in {time.perf_counter() - begin:.0f} s: {len(findings)} findings")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
