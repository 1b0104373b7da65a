"""States to resume from that version 0.0 saved: names of observations and of the map's tensors."""

import torch

from batchnav.envs.state import RENAMED, with_current_names
from batchnav.mapping.state import MapState
from batchnav.training import folder


def test_observations_of_all_ranks_have_their_current_names():
    value = torch.zeros(1)
    former = {
        "frames": 8, "policy": {"embeddings.plan.weight": value, "norms.map.mean": value, "actor.bias": value},
        "obs": {"plan": value, "depth": value}, "others": [{"obs": {"map": value}, "start": value}],
    }  # fmt: skip
    found = folder.with_current_names(former)
    assert list(found["policy"]) == ["embeddings.waypoint.weight", "norms.ego_map.mean", "actor.bias"]
    assert list(found["obs"]) == ["waypoint", "depth"] and list(found["others"][0]["obs"]) == ["ego_map"]
    assert found["frames"] == 8 and "plan" in former["obs"]


def test_every_tensor_of_a_map_has_a_former_name():
    current = {f"map_{name}" for name in MapState._fields if name != "quadrants"}  # newer than those names
    assert {name for name in RENAMED.values() if name.startswith("map_")} == current
    assert with_current_names({"known_stands": 1, "seed": 2}) == {"map_occupancy": 1, "seed": 2}
