"""Functions that only kernels may call."""

import numba
import pytest

from batchnav.device import exact_function, inline_function, lean_function


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
