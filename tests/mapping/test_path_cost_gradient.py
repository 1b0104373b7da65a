"""Path costs and their gradient: against the reference mapper, as sums of cell costs, as slopes, CPU against CUDA."""

import numpy as np
import pytest
import torch
from map_helpers import follow_waypoints, kernel_arguments, reference_costs
from numba import typeof

from batchnav.data.scenes.load import load_scene
from batchnav.envs.nav import NavEnv
from batchnav.mapping.costs import COST_UNITS
from batchnav.mapping.learn.path_cost_gradient import PathEnds, gradient_one, path_costs, path_costs_one
from batchnav.mapping.shortest_path import UNREACHED
from batchnav.mapping.state import CELLS, SIDE, MapLayers

pytestmark = pytest.mark.usefixtures("one_thread")
MAPS, STARTS = 3, 5


@pytest.fixture(scope="module")
def given():
    """Layers of maps that agents built in a house, path ends at random cells, and random predicted costs.

    The first start is -1: no path.
    """
    env = NavEnv([load_scene("house:3")], MAPS, "cpu", sensors=("depth", "ego_map", "waypoint"))
    follow_waypoints(env, 12)
    state, generator = env.mapper.map_state, torch.Generator().manual_seed(0)
    origin, size = state.origin_and_resolution[:, :2], state.origin_and_resolution[:, 2:]
    at = ((env.task.state.goal[:, [0, 2]] - origin) / size).int()
    starts = torch.randint(CELLS, (MAPS, STARTS), generator=generator).int()
    starts[0, 0] = -1
    goal = (at[:, 1] * SIDE + at[:, 0]).contiguous()
    predicted = 20 * COST_UNITS * torch.rand(MAPS, CELLS, generator=generator)
    return MapLayers(state.occupancy.clone(), state.explored.clone()), PathEnds(goal, starts), predicted


def unknown(maps):
    """bool [MAPS, CELLS]: True where a cell has a predicted cost."""
    return ~maps.is_known


def test_path_costs_equal_the_reference(given):
    maps, ends, predicted = given
    found = path_costs(maps, ends, predicted)
    assert found[0, 0] == UNREACHED, "a path without a start"
    rounded = (predicted.round() * unknown(maps)).int().view(-1, SIDE, SIDE).numpy()
    for i in range(MAPS):
        _, _, to_go = reference_costs(maps, i, divmod(int(ends.goal[i]), SIDE), rounded[i])
        for k, start in enumerate(ends.starts[i].tolist()):
            assert start < 0 or found[i, k] == to_go[divmod(start, SIDE)]


def test_a_path_cost_is_the_sum_of_cell_costs_times_the_gradient(given):
    """On unexplored maps, where every cell has a predicted cost."""
    _, ends, predicted = given
    empty = torch.zeros(MAPS, CELLS, dtype=torch.uint8)
    predicted = predicted.round().requires_grad_()
    found = path_costs(MapLayers(empty, empty), ends, predicted)
    for k in range(1, STARTS):
        (gradient,) = torch.autograd.grad(found[:, k].sum(), predicted, retain_graph=True)
        total = (gradient * (2.0 * COST_UNITS + predicted.detach())).sum(1)
        torch.testing.assert_close(total, found[:, k], rtol=1e-5, atol=0)


def test_known_cells_have_no_gradient(given):
    """Their costs are known, so a prediction for them must not be trained."""
    maps, ends, predicted = given
    predicted = predicted.clone().requires_grad_()
    costs = path_costs(maps, ends, predicted)
    (gradient,) = torch.autograd.grad(costs[ends.starts >= 0].sum(), predicted)
    assert (gradient[~unknown(maps)] == 0).all() and (gradient[unknown(maps)] > 0).any()
    explored = MapLayers(maps.occupancy, maps.explored.clamp(min=1))
    (gradient,) = torch.autograd.grad(path_costs(explored, ends, predicted)[ends.starts >= 0].sum(), predicted)
    assert (gradient == 0).all()


def test_the_gradient_is_the_slope(given):
    """A lower cell cost lowers the path cost by its gradient. The gradient ignores the rounding of costs."""
    maps, ends, predicted = given
    predicted = (predicted + 2.4).requires_grad_()
    found = path_costs(maps, ends, predicted)
    (gradient,) = torch.autograd.grad(found[1, 2], predicted)
    cell = int((gradient[1] * unknown(maps)[1]).argmax())
    lower = predicted.detach().clone()
    lower[1, cell] -= 1.0
    change = path_costs(maps, ends, lower)[1, 2] - found[1, 2].detach()
    assert gradient[1, cell] >= 10.0 and change <= -gradient[1, cell], "another path may have become even shorter"
    weights = torch.tensor([0.0, 1.0, -0.5, 0.25, 0.0])
    (mixed,) = torch.autograd.grad((path_costs(maps, ends, predicted) * weights)[1].sum(), predicted)
    each = [torch.autograd.grad(path_costs(maps, ends, predicted)[1, k], predicted)[0] for k in range(STARTS)]
    expected = sum(weight * part for weight, part in zip(weights, each, strict=True))
    torch.testing.assert_close(mixed, expected, rtol=0, atol=0.01)


@pytest.mark.cuda
def test_cuda_equals_the_cpu(given):
    maps, ends, predicted = given
    found = []
    for device in ("cpu", "cuda"):
        own = predicted.detach().to(device).requires_grad_()
        costs = path_costs(MapLayers(*(x.to(device) for x in maps)), PathEnds(*(x.to(device) for x in ends)), own)
        reached = torch.where(costs < UNREACHED, costs, 0.0)
        (gradient,) = torch.autograd.grad(reached.sum(), own)
        found.append((costs.detach().cpu(), gradient.cpu()))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_kernels_compile_for_the_gpu(compile_ptx):
    given, costs = kernel_arguments(), np.zeros((1, STARTS), np.int32)
    ends, state, search = PathEnds(np.zeros(1, np.int32), costs), given["state"], given["search"]
    ptx = compile_ptx(path_costs_one, *map(typeof, (ends, state, search, costs)))
    assert all(word in ptx for word in ("global.min.s32", "bar.sync"))
    assert "atom.global.add.u32" in compile_ptx(gradient_one, *map(typeof, (ends, costs, state, search, costs)))
