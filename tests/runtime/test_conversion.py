"""Conversion of results: copies and NumPy arrays keep values, types and nesting, and share no memory."""

import numpy as np
import pytest
import torch

from batchnav.runtime.conversion import JoinedResult, to_output

conversions = pytest.mark.parametrize("convert", [to_output, lambda *args: JoinedResult(args[0]).output(*args[1:])])


def results(device):
    """A nested result with tensors of several shapes and types, one of them twice."""
    done = torch.tensor([True, False, True], device=device)
    spl, steps = torch.tensor([0.5, 0.25, 1.0], device=device), torch.tensor([1.0, 2.0, 3.0], device=device)
    depth = torch.rand(3, 1, 2, 2, device=device) + 0.5
    goal, category = torch.rand(3, 2, device=device) + 0.5, torch.tensor([7, 2**40, -1], device=device)
    info = {"episode": {"spl": spl, "steps": steps}, "_episode": done, "note": "text"}
    return {"depth": depth, "goal": goal, "category": category}, steps, done, ~done, info


def leaves(value):
    """Values of a nested result, in order."""
    if isinstance(value, dict):
        return [leaf for part in value.values() for leaf in leaves(part)]
    return [leaf for part in value for leaf in leaves(part)] if isinstance(value, tuple) else [value]


def host(value):
    """A copy as a NumPy array."""
    return np.array(value.cpu() if isinstance(value, torch.Tensor) else value)


@conversions
@pytest.mark.parametrize("output", ["torch", "numpy"])
@pytest.mark.parametrize("copy", [True, False])
def test_results_keep_their_nesting_values_and_types(device, convert, copy, output):
    given = results(device)
    found = convert(given, copy, output)
    assert isinstance(found, tuple) and list(found[0]) == ["depth", "goal", "category"]
    assert list(found[4]) == ["episode", "_episode", "note"] and list(found[4]["episode"]) == ["spl", "steps"]
    for new, old in zip(leaves(found), leaves(given), strict=True):
        if isinstance(old, str):
            assert new == old
            continue
        assert isinstance(new, torch.Tensor if output == "torch" else np.ndarray)
        expected = old if output == "torch" else old.cpu().numpy()
        assert new.shape == expected.shape and new.dtype == expected.dtype and (new == expected).all()


@conversions
@pytest.mark.parametrize("output", ["torch", "numpy"])
def test_a_copy_depends_on_nothing(device, convert, output):
    """A change of one copied result changes neither the environment's tensors nor another result."""
    given = results(device)
    before = [host(leaf) for leaf in leaves(given)]
    found = leaves(convert(given, True, output))
    for i, changed in enumerate(found):
        if not isinstance(changed, str):
            changed[:] = 0
        assert all(np.array_equal(host(leaf), before[k]) for k, leaf in enumerate(found) if k > i)
    assert all(np.array_equal(host(leaf), was) for leaf, was in zip(leaves(given), before, strict=True))


def test_live_results_share_memory():
    given = results("cpu")
    assert to_output(given, False, "torch") is given
    joined = JoinedResult(given)
    for _ in range(2):
        found = joined.output(False, "torch")
        assert all(new is old for new, old in zip(leaves(found), leaves(given), strict=True))
        found[0].clear()  # a change of the caller's mappings
        found[4]["episode"]["added"] = 1
    for new, old in zip(leaves(to_output(given, False, "numpy")), leaves(given), strict=True):
        assert isinstance(old, str) or np.shares_memory(new, old.numpy())
