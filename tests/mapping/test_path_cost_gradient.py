"""How long ways over maps are and which tolls make them so: another search's lengths, sums, slopes, both devices."""

import pytest
import torch
from numba import types as nb
from walks import reference_costs, walk

from batchnav.data.scenes import find_scene
from batchnav.envs.nav import NavEnv
from batchnav.mapping.costs import COST_UNITS
from batchnav.mapping.learn.path_cost_gradient import PathEnds, gradient_cuda, path_costs, path_costs_cuda
from batchnav.mapping.shortest_path import UNREACHED, SearchBuffers
from batchnav.mapping.state import CELLS, SIDE, MapLayers, MapState

pytestmark = pytest.mark.usefixtures("one_thread")
MAPS, STARTS = 3, 5


@pytest.fixture(scope="module")
def given():
    """MapLayers that agents made in a house, odds at random, and ways from cells at random, of which one is none."""
    env = NavEnv([find_scene("house:3")], MAPS, "cpu", sensors=("depth", "ego_map", "waypoint"))
    walk(env, 12)
    state, generator = env.mapper.map_state, torch.Generator().manual_seed(0)
    at = (
        (env.task.state.goal[:, [0, 2]] - state.origin_and_resolution[:, :2]) / state.origin_and_resolution[:, 2:]
    ).int()
    starts = torch.randint(CELLS, (MAPS, STARTS), generator=generator).int()
    starts[0, 0] = -1
    goal = (at[:, 1] * SIDE + at[:, 0]).contiguous()
    added = 20 * COST_UNITS * torch.rand(MAPS, CELLS, generator=generator)
    return MapLayers(state.occupancy.clone(), state.explored.clone()), PathEnds(goal, starts), added


def unseen(maps):
    return ~maps.is_known


def test_ways_are_as_long_as_another_search_finds_them(given):
    maps, ends, added = given
    found = path_costs(maps, ends, added)
    assert found[0, 0] == UNREACHED, "no way begins nowhere"
    rounded = (added.round() * unseen(maps)).int().view(-1, SIDE, SIDE).numpy()
    for i in range(MAPS):
        _, _, times = reference_costs(maps, i, divmod(int(ends.goal[i]), SIDE), rounded[i])
        for k, start in enumerate(ends.starts[i].tolist()):
            assert start < 0 or found[i, k] == times[divmod(start, SIDE)]


def test_ways_are_the_sums_of_the_tolls_that_have_their_credit(given):
    """Where nothing was seen yet, so that every cell's toll may be guessed."""
    _, ends, added = given
    nothing = torch.zeros(MAPS, CELLS, dtype=torch.uint8)
    added = added.round().requires_grad_()
    found = path_costs(MapLayers(nothing, nothing), ends, added)
    for k in range(1, STARTS):
        (credit,) = torch.autograd.grad(found[:, k].sum(), added, retain_graph=True)
        torch.testing.assert_close(
            (credit * (2.0 * COST_UNITS + added.detach())).sum(1), found[:, k], rtol=1e-5, atol=0
        )


def test_what_was_seen_has_no_credit(given):
    """Its toll is state, so nothing that is guessed there may learn of a way over it."""
    maps, ends, added = given
    added = added.clone().requires_grad_()
    ways = path_costs(maps, ends, added)
    (credit,) = torch.autograd.grad(ways[ends.starts >= 0].sum(), added)
    assert (credit[~unseen(maps)] == 0).all() and (credit[unseen(maps)] > 0).any()
    seen = MapLayers(maps.occupancy, maps.explored.clamp(min=1))
    (credit,) = torch.autograd.grad(path_costs(seen, ends, added)[ends.starts >= 0].sum(), added)
    assert (credit == 0).all()


def test_credit_is_the_slope(given):
    """A toll that falls makes its way shorter by its credit; what a rounding hides is passed on all the same."""
    maps, ends, added = given
    added = (added + 2.4).requires_grad_()
    found = path_costs(maps, ends, added)
    (credit,) = torch.autograd.grad(found[1, 2], added)
    cell = int((credit[1] * unseen(maps)[1]).argmax())
    fewer = added.detach().clone()
    fewer[1, cell] -= 1.0
    change = path_costs(maps, ends, fewer)[1, 2] - found[1, 2].detach()
    assert credit[1, cell] >= 10.0 and change <= -credit[1, cell], "another way may have become shorter still"
    weights = torch.tensor([0.0, 1.0, -0.5, 0.25, 0.0])
    (mixed,) = torch.autograd.grad((path_costs(maps, ends, added) * weights)[1].sum(), added)
    each = [torch.autograd.grad(path_costs(maps, ends, added)[1, k], added)[0] for k in range(STARTS)]
    expected = sum(weight * part for weight, part in zip(weights, each, strict=True))
    torch.testing.assert_close(mixed, expected, rtol=0, atol=0.01)


@pytest.mark.cuda
def test_both_devices_find_the_same(given):
    maps, ends, added = given
    found = []
    for device in ("cpu", "cuda"):
        own = added.detach().to(device).requires_grad_()
        ways = path_costs(MapLayers(*(x.to(device) for x in maps)), PathEnds(*(x.to(device) for x in ends)), own)
        good = ways < UNREACHED
        (credit,) = torch.autograd.grad(torch.where(good, ways, 0.0).sum(), own)
        found.append((ways.detach().cpu(), credit.cpu()))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_they_compile_for_the_gpu(compile_ptx):
    def array(kind, dimensions):
        return nb.Array(kind, dimensions, "C")

    f32, i32, u8 = nb.float32, nb.int32, nb.uint8
    grids = array(i32, 2)
    ends = nb.NamedTuple((array(i32, 1), grids), PathEnds)
    state = nb.NamedTuple(
        (*[array(i32, 1)] * 2, grids, grids, array(i32, 1), array(f32, 2), *[array(u8, 2)] * 2, array(f32, 2),
         array(f32, 1), *[array(i32, 1)] * 3, array(u8, 2)), MapState,
    )  # fmt: skip
    search = nb.NamedTuple((grids,) * 4, SearchBuffers)
    ptx = compile_ptx(path_costs_cuda, ends, state, search, grids)
    assert all(word in ptx for word in ("global.min.s32", "bar.sync"))
    assert "atom.global.add.u32" in compile_ptx(gradient_cuda, ends, grids, state, search, grids)
