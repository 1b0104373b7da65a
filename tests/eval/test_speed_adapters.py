"""Every library trains as it is measured."""

import pytest

from batchnav.errors import ArgumentError
from eval import speed_adapters


def test_all_libraries_are_measured(capsys):
    options = speed_adapters.Options(num_envs=8, num_steps=8, epochs=1, minibatches=2, seconds=0.0, repeats=2)
    for name in options.libraries:
        if name not in ("ours", "single file"):
            pytest.importorskip(name)
    found = speed_adapters.main(options)
    assert set(found) == set(options.libraries) and all(len(rates) == 2 and min(rates) > 0 for rates in found.values())
    text = capsys.readouterr().out
    assert all(f"{name:<18} " in text for name in options.libraries)
    with pytest.raises(ArgumentError, match="'sb4'"):
        speed_adapters.main(speed_adapters.Options(libraries=("sb4",)))
