"""Bounds on reading JSON that hold for any file."""

import tracemalloc

import pytest

from batchnav.data.files import read_json
from batchnav.errors import MeshError

JSON_MEMORY = 33
"""JSON takes at most so many times its text in memory; objects of nothing but an object take the most."""


@pytest.mark.parametrize(
    "piece", ["{}", "[]", '{"":0}', '{"":{}}', '{"":[]}', "[[]]", '"\u0101"', "300", "1.5", "null"]
)
def test_the_memory_of_json_is_bounded_by_its_text(tmp_path, piece):
    path = tmp_path / "a.json"
    path.write_text(f"[{','.join([piece] * 100_000)}]", encoding="utf-8")
    tracemalloc.start()
    try:
        read_json(path, MeshError)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= (JSON_MEMORY + 6) * path.stat().st_size  # 6: the bytes, and the text with up to 4 per character
