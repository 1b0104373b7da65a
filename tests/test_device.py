"""Functions that only kernels may call."""

import numba
import numpy as np
import pytest

from batchnav.device import exact_function, inline_function, lean_function, load4, store4


@pytest.mark.parametrize("decorate", [lean_function, inline_function, exact_function])
def test_a_call_from_python_is_refused(decorate):
    """Before and after a kernel has had it compiled; there is no code that Python could jump to."""

    @decorate
    def double(x):
        return x + x

    with pytest.raises(TypeError, match="double: called from Python"):
        double(2)
    assert numba.njit(lambda x: double(x))(2) == 4
    with pytest.raises(TypeError, match="double: called from Python"):
        double(2)


@numba.njit
def _moved(array, row):
    """Read four numbers, and write them one row down."""
    values = load4(array, row, np.int32(4))
    store4(array, np.int32(row - 1), np.int32(8), values)
    return values


def test_rows_beyond_two_to_the_31_elements(tmp_path):
    """The triangles of four thousand houses are as many. On disk, where what is never touched takes no room."""
    rows = 2**31 // 12 + 2
    array = np.memmap(tmp_path / "rows", np.float32, "w+", shape=(rows, 12))
    array[-1, 4:8] = 1, 2, 3, 4
    assert _moved(np.asarray(array), np.int32(rows - 1)) == (1, 2, 3, 4)
    assert array[-2].tolist() == [0] * 8 + [1, 2, 3, 4]
