"""What `import batchnav` costs and pulls in."""

import subprocess
import sys

MEASURE = """
import sys, time
import torch
before = time.perf_counter()
import batchnav
print(time.perf_counter() - before)
"""
LIMIT = 0.5
"""Seconds on top of torch's own import."""


def test_import_is_quick():
    seconds = [
        float(subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True).stdout)
        for _ in range(2)
    ]
    assert min(seconds) < LIMIT
