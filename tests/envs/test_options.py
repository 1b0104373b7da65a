"""Options of `NavEnv` that are not part of its configuration."""

import dataclasses
import inspect

import pytest
from gymnasium.vector import AutoresetMode

from batchnav.envs.config import NavConfig
from batchnav.envs.nav import NavEnv
from batchnav.envs.options import OPTION_NAMES, EnvOptions
from batchnav.errors import ArgumentError
from batchnav.tasks import TASKS


@pytest.mark.parametrize("task", TASKS)
def test_no_option_has_the_name_of_a_configuration_field_or_an_argument(task):
    config = NavConfig(task=TASKS[task].Config())
    parts = (part for part in vars(config).values() if dataclasses.is_dataclass(part))
    names = [field.name for part in parts for field in dataclasses.fields(part)]
    taken = set(names)
    assert len(names) == len(taken)  # each is an option of `NavEnv` by its name alone
    assert not OPTION_NAMES & (taken | inspect.signature(NavEnv).parameters.keys())


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


def test_every_option_is_named_in_the_docstring_of_the_environment():
    assert all(f"`{name}`" in inspect.getdoc(NavEnv) for name in OPTION_NAMES)
