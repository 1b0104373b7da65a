"""ONNX files of the bundled policies beside the policies themselves."""

import pytest
from onnx_beside import play_beside

from batchnav.export import export_policy
from batchnav.policy.weights import load_policy


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["pointnav_h200", "pointnav_plan_small", "pointnav_waypoint_small", "objectnav_rgbd_small", "imagenav_rgb_small"],
)
def test_bundled_policies_act_alike(name, tmp_path):
    path = tmp_path / "policy.onnx"
    export_policy(name, path)
    play_beside(load_policy(name), path)
