"""The simulator benchmark."""

from worlds import write_floor


def test_fewer_steps_than_a_repeat_has_at_least(run, tmp_path):
    scene = write_floor(tmp_path / "floor.glb")
    small = ("--device", "cpu", "--num-envs", "4", "--steps", "2", "--repeats", "1", "--actions", "moving")
    assert "steps/s" in run("bench", "sim", "--scenes", scene, *small)
