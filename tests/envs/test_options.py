"""Options of `NavEnv` that are not part of its configuration."""

import pytest
from gymnasium.vector import AutoresetMode

from batchnav.envs.arguments import EnvOptions
from batchnav.errors import ArgumentError


def test_keyword_arguments_are_split():
    options, others = EnvOptions.split({"copy": False, "height": 8, "autoreset_mode": "NEXT_STEP"})
    assert options == EnvOptions(copy=False, autoreset_mode=AutoresetMode.NEXT_STEP)
    assert others == {"height": 8}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"renderer": 1}, "renderer: found 1, expected a name"),
        ({"output": "jax"}, "output: found 'jax', expected one of torch, numpy"),
        ({"autoreset_mode": "never"}, "autoreset_mode: found 'never', expected one of NEXT_STEP, SAME_STEP, DISABLED"),
        ({"material_library": 3}, "material_library: found 3, expected a MaterialLibrary"),
    ],
)
def test_a_wrong_value_is_named(options, message):
    with pytest.raises(ArgumentError, match=message):
        EnvOptions(**options)
