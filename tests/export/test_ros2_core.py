"""The core of the ROS 2 node without ROS: transitions, stale and wrong inputs, clocks, goals, moves and conversions."""

import itertools
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

from batchnav.config import validate
from batchnav.errors import ArgumentError, ConfigError
from batchnav.export.onnx_policy import FORMAT
from batchnav.export.ros2.control import Limiter, Move, moves_of, speeds
from batchnav.export.ros2.conversions import (
    CameraPlace,
    Resampler,
    camera_place,
    color_of,
    depth_of,
    grid_of,
    planar,
    pose_of,
    scan_of,
    seconds,
    transformed,
)
from batchnav.export.ros2.core import (
    ABORTED,
    CANCELED,
    COLOR,
    DRIVING,
    IDLE,
    IMAGE,
    SUCCEEDED,
    WAITING,
    Driver,
    Policy,
    Settings,
    depth_observation,
    named_detector,
)
from batchnav.sensors.distortion import undistort

SIZE = 8
CAMERA = {
    "width": SIZE, "height": SIZE, "fx": 4.0, "fy": 4.0, "cx": 3.5, "cy": 3.5, "distortion": [],
    "height_above_floor": 1.25, "forward": 0.0, "left": 0.0, "heading_deg": 0.0, "pitch_deg": 0.0,
    "trained_heights": [0.3, 1.6],
}  # fmt: skip
VELOCITY = {
    "kind": "velocity", "time_step": 0.5,
    "components": [
        {"lowest": 0.0, "highest": 0.25, "minimum": 0.025}, {"lowest": -10.0, "highest": 10.0, "minimum": 1.0},
    ],
}  # fmt: skip
DISCRETE = {
    "kind": "discrete",
    "table": [{"index": 0, "name": "stop"}, {"index": 1, "name": "forward", "metres": 0.25},
              {"index": 2, "name": "left", "degrees": 10.0}, {"index": 3, "name": "right", "degrees": -10.0}],
}  # fmt: skip
INFO = SimpleNamespace(
    height=SIZE, width=SIZE, k=[4.0, 0, 3.5, 0, 4.0, 3.5, 0, 0, 1], d=[], distortion_model="plumb_bob"
)
PLACE = CameraPlace(1.25, 0.0, 0.0, 0.0, 0.0)
FAST = (1.0, 0.0)
"""Action of velocity control: full speed ahead, no turn."""


class Session:
    """A policy that does what `actions` lists, then stops; it remembers what it observed."""

    def __init__(self, actions, discrete=False):
        self.actions, self.discrete, self.seen = list(actions), discrete, []

    def run(self, outputs, inputs):
        self.seen.append({name: np.array(value) for name, value in inputs.items()})
        action = self.actions.pop(0) if self.actions else (0 if self.discrete else (-1.0, 0.0))
        if self.discrete:
            first = np.eye(4, dtype=np.float32)[[action]]
        else:
            first = np.array([action], np.float32)
        state = inputs["state"] + 1.0
        return (
            [first, np.ones((1, 2), np.float32), state][:1]
            + ([] if self.discrete else [np.ones((1, 2), np.float32)])
            + [state]
        )


def driver_of(
    actions=(FAST,) * 100, discrete=False, observations=("depth", "pointgoal"), mapper=None, rows=1, detector=None,
    **settings,
):  # fmt: skip
    session = Session(actions, discrete)
    shapes = {
        "depth": ([1, SIZE, SIZE], "float32"), "rgb": ([3, SIZE, SIZE], "uint8"), "pointgoal": ([2], "float32"),
        "gps": ([2], "float32"), "compass": ([1], "float32"), "heading": ([1], "float32"),
        "objectgoal": ([], "int64"), "lidar": ([rows, 4], "float32"),
        "waypoint": ([2], "float32"), "ego_map": ([1, 48, 48], "float32"),
        "goal_mask": ([1, SIZE, SIZE], "uint8"), "imagegoal": ([3, SIZE, SIZE], "uint8"),
    }  # fmt: skip
    inputs = [{"name": n, "shape": ["batch", *shapes[n][0]], "dtype": shapes[n][1]} for n in observations]
    action = (["batch"], "int64") if discrete else (["batch", 2], "float32")
    memory = {
        "previous_action": action, "episode_start": (["batch"], "bool"), "state": ([2, 1, "batch", 3], "float32"),
    }  # fmt: skip
    inputs += [{"name": name, "shape": shape, "dtype": dtype} for name, (shape, dtype) in memory.items()]
    outputs = ["probabilities"] if discrete else ["mean", "std"]
    description = {
        "inputs": inputs, "outputs": [{"name": name} for name in (*outputs, "next_state")],
        "cameras": {"main": CAMERA}, "depth": {"min_depth": 0.0, "max_depth": 10.0, "hole_value": 0.0},
        "lidar": {
            "angle_min": -math.pi, "angle_increment": math.pi / 2, "range_min": 0.1, "range_max": 8.0,
        },
        "actions": DISCRETE if discrete else VELOCITY,
        "environment": {"task": {"max_steps": 50, "categories": ["chair", "bed"]}},
    }  # fmt: skip
    chosen = Settings(max_linear_acceleration=100.0, max_angular_acceleration=100.0, **settings)
    return Driver(Policy(session, description, chosen), description, chosen, mapper, detector), session


def feed(driver, now, pose=(0.0, 0.0, 0.0), image=True, odometry=True, lag=0.0):
    if odometry:
        driver.receive_odometry(now, now - lag, "odom", pose)
    if image:
        driver.receive_image(now, now - lag, np.full((SIZE, SIZE), 2.0, np.float32))


def ready(**options):
    """A driver that drives at time 10."""
    driver, session = driver_of(**options)
    driver.receive_camera_info(INFO)
    driver.receive_camera_place(PLACE)
    feed(driver, 10.0)
    assert driver.set_goal(10.0, "odom", (3.0, 0.0)) == ""
    assert driver.step(10.0).state == DRIVING
    return driver, session


def test_without_a_goal_it_stands():
    driver, session = driver_of()
    feed(driver, 1.0)
    assert driver.step(1.0) == (0.0, 0.0, IDLE, "no goal")
    assert not session.seen


def test_it_drives_until_the_policy_stops():
    driver, session = driver_of(actions=[FAST, (1.0, 0.5)])
    driver.receive_camera_info(INFO)
    driver.receive_camera_place(PLACE)
    driver.set_goal(1.0, "odom", (3.0, 4.0))
    for step, expected in enumerate([(0.25, 0.0), (0.25, math.radians(5.0)), None]):
        now = 1.0 + 0.5 * step
        feed(driver, now, (0.1 * step, 0.0, 0.0))
        found = driver.step(now)
        if expected:
            assert found[:2] == pytest.approx(expected, abs=1e-6) or step == 0  # it accelerates from standstill
            assert found.state == DRIVING
    assert found[:3] == (0.0, 0.0, IDLE)
    assert driver.outcomes == {1: (SUCCEEDED, f"the policy stopped {math.hypot(2.8, 4.0):.2f} m from the goal")}
    starts = [seen["episode_start"].item() for seen in session.seen]
    assert starts == [True, False, False]
    assert [seen["state"].max() for seen in session.seen] == [0.0, 1.0, 2.0]
    np.testing.assert_allclose(session.seen[0]["pointgoal"], [[5.0, math.atan2(4.0, 3.0)]], rtol=1e-6)
    np.testing.assert_allclose(session.seen[1]["previous_action"], [FAST])
    np.testing.assert_allclose(session.seen[0]["depth"], 0.2)
    assert len(driver.path) == 3


@pytest.mark.parametrize(
    ("silent", "after", "reason"),
    [
        ("image", 0.6, "depth: found nothing for 0.60 s, expected at most 0.5 s"),
        ("odometry", 0.4, "odometry: found nothing for 0.40 s, expected at most 0.3 s"),
    ],
)
def test_a_silent_input_stops_the_robot_and_says_why(silent, after, reason):
    driver, _ = ready()
    others = {"image", "odometry"} - {silent}
    times = np.arange(10.1, 10.0 + after + 1e-6, 0.1)
    for now in times:
        feed(driver, float(now), **{name: name in others for name in ("image", "odometry")})
    found = driver.step(10.0 + after)
    assert found == (0.0, 0.0, WAITING, reason)
    feed(driver, 11.0)
    assert driver.step(11.0).state == DRIVING  # it goes on when the input is back
    assert driver.goal_number == 1 and not driver.outcomes


def test_inputs_that_never_came_are_named():
    driver, _ = driver_of(observations=("depth", "rgb", "pointgoal"))
    driver.set_goal(1.0, "odom", (1.0, 0.0))
    assert driver.step(1.0).reason == "odometry: found none yet"
    feed(driver, 1.0)
    assert driver.step(1.0).reason == "rgb: found none yet"
    driver.receive_image(1.0, 1.0, np.zeros((SIZE, SIZE, 3), np.uint8), COLOR)
    assert driver.step(1.0).reason == "camera_info: found none yet"
    driver.receive_camera_info(INFO)
    assert driver.step(1.0).reason == "camera: found no transform to the body's frame yet"
    driver.receive_camera_place(PLACE)
    assert driver.step(1.0).state == DRIVING


def test_messages_out_of_order_and_from_the_future_are_refused():
    driver, _ = ready()
    image = np.ones((SIZE, SIZE), np.float32)
    assert not driver.receive_image(10.1, 10.0, image)  # twice the same time
    assert not driver.receive_image(10.1, 9.5, image)
    assert not driver.receive_image(10.1, 10.3, image)
    assert not driver.receive_image(10.1, math.nan, image)
    assert driver.receive_image(10.1, 10.12, image)  # within the tolerance of two clocks
    assert not driver.receive_odometry(10.1, 9.9, "odom", (0.0, 0.0, 0.0))
    assert not driver.receive_odometry(10.1, 11.0, "odom", (0.0, 0.0, 0.0))
    for bad in (math.nan, math.inf):
        assert not driver.receive_odometry(10.1, 10.1, "odom", (0.0, bad, 0.0))
    assert driver.inputs[IMAGE].refused == {"out of order": 2, "from the future": 1, "no time": 1}
    status = driver.status(10.2)
    assert status["odometry refused, not finite"] == "2" and status["depth age"] == "0.08 s"
    assert status["state"] == DRIVING


def test_an_image_needs_odometry_of_its_time():
    driver, session = driver_of()
    driver.receive_camera_info(INFO)
    driver.receive_camera_place(PLACE)
    driver.set_goal(10.0, "odom", (3.0, 0.0))
    driver.receive_odometry(10.0, 9.9, "odom", (1.0, 0.0, 0.0))
    driver.receive_image(10.0, 9.7, np.ones((SIZE, SIZE), np.float32))
    assert driver.step(10.0).reason == "odometry: found none within 0.1 s of the image, expected some"
    driver.receive_image(10.05, 9.95, np.ones((SIZE, SIZE), np.float32))
    driver.receive_odometry(10.05, 10.0, "odom", (1.2, 0.0, 0.2))
    assert driver.step(10.05).state == DRIVING
    np.testing.assert_allclose(session.seen[0]["pointgoal"][0], [1.9, -0.1], atol=1e-6)  # halfway between both


def test_a_clock_that_goes_back_ends_the_goal():
    driver, _ = ready()
    feed(driver, 4.0)
    assert driver.outcomes == {1: (ABORTED, "the clock went back by 6.00 s")}
    assert driver.step(4.0)[:3] == (0.0, 0.0, IDLE)
    assert driver.set_goal(4.0, "odom", (1.0, 0.0)) == "" and driver.step(4.0).state == DRIVING


def test_a_clock_that_jumps_ahead_makes_inputs_stale():
    driver, _ = ready()
    assert driver.step(500.0).reason == "odometry: found nothing for 490.00 s, expected at most 0.3 s"
    feed(driver, 500.0)
    assert driver.step(500.0).state == DRIVING


def test_a_goal_while_driving_begins_an_episode():
    driver, session = ready()
    feed(driver, 10.5, (0.1, 0.0, 0.0))
    driver.step(10.5)
    assert driver.set_goal(10.6, "odom", (0.0, 2.0)) == ""
    assert driver.outcomes == {1: (ABORTED, "a new goal")} and driver.goal_number == 2
    feed(driver, 10.7, (0.1, 0.0, 0.0))
    assert driver.step(10.7).state == DRIVING
    assert session.seen[-1]["episode_start"].item() and session.seen[-1]["state"].max() == 0.0
    assert driver.feedback(10.7).elapsed == pytest.approx(0.1)
    assert driver.feedback(10.7).distance == pytest.approx(math.hypot(0.1, 2.0))


def test_a_goal_can_be_canceled():
    driver, _ = ready()
    driver.cancel()
    assert driver.outcomes == {1: (CANCELED, "canceled")}
    assert driver.step(10.1) == (0.0, 0.0, IDLE, "canceled: canceled")
    driver.cancel()  # nothing to cancel
    with pytest.raises(ArgumentError, match="feedback: found no goal"):
        driver.feedback(10.2)


def test_bad_goals_are_refused():
    driver, _ = ready()
    assert "expected finite numbers" in driver.set_goal(10.1, "odom", (math.nan, 0.0))
    assert "found no frame" in driver.set_goal(10.1, "", (1.0, 0.0))
    assert driver.goal_number == 1 and not driver.outcomes  # the running goal goes on


def test_a_goal_in_another_frame_needs_a_fresh_transform():
    driver, session = driver_of()
    driver.receive_camera_info(INFO)
    driver.receive_camera_place(PLACE)
    feed(driver, 10.0)
    driver.set_goal(10.0, "map", (1.0, 0.0))
    assert driver.step(10.0).reason == "goal frame: found none yet (from 'map' to 'odom')"
    assert not driver.receive_goal_frame(10.0, 10.0, "earth", (0.0, 0.0, 0.0))
    assert not driver.receive_goal_frame(10.0, 10.0, "map", (math.nan, 0.0, 0.0))
    assert driver.receive_goal_frame(10.0, 9.9, "map", (2.0, 0.0, math.pi / 2))
    assert driver.receive_goal_frame(10.0, 9.9, "map", (2.0, 0.0, math.pi / 2))  # TF repeats itself
    assert driver.step(10.0).state == DRIVING
    np.testing.assert_allclose(session.seen[0]["pointgoal"][0], [math.hypot(2.0, 1.0), math.atan2(1.0, 2.0)], rtol=1e-6)
    for now in (10.4, 10.8, 11.2):
        feed(driver, now)
    assert driver.step(11.2).reason.startswith("goal frame: found nothing for 1.30 s, expected at most 1 s")


def test_a_policy_of_laser_scans_needs_no_camera():
    driver, session = driver_of(observations=("lidar", "pointgoal"))
    scan = SimpleNamespace(
        ranges=[1.0, 2.0, 0.05, 4.0], angle_min=-math.pi, angle_increment=math.pi / 2, range_min=0.01, range_max=30.0
    )
    driver.set_goal(1.0, "odom", (1.0, 0.0))
    feed(driver, 1.0)
    assert driver.step(1.0).reason == "scan: found none yet"
    assert driver.receive_scan(1.0, 1.0, scan) and not driver.receive_scan(1.0, 0.9, scan)
    assert driver.step(1.0).state == DRIVING
    np.testing.assert_allclose(session.seen[0]["lidar"], [[[0.125, 0.25, 0.0, 0.5]]])
    for now in (1.2, 1.4, 1.6):
        feed(driver, now)
    assert driver.step(1.6).reason == "scan: found nothing for 0.60 s, expected at most 0.5 s"
    with pytest.raises(ArgumentError, match="found a LiDAR with 16 rows, expected 1"):
        driver_of(observations=("lidar",), rows=16)


def test_numbers_that_are_not_finite_end_the_goal():
    driver, _ = driver_of(actions=[(math.nan, 0.0)])
    driver.receive_camera_info(INFO)
    driver.receive_camera_place(PLACE)
    feed(driver, 1.0)
    driver.set_goal(1.0, "odom", (1.0, 0.0))
    assert driver.step(1.0)[:3] == (0.0, 0.0, IDLE)
    assert driver.outcomes[1] == (ABORTED, "policy: found mean that is not finite, expected finite numbers")


def test_too_many_steps_end_the_goal():
    driver, session = ready()
    for step in range(1, 60):
        feed(driver, 10.0 + 0.5 * step)
        driver.step(10.0 + 0.5 * step)
    assert len(session.seen) == 50 and driver.outcomes[1] == (ABORTED, "found no stop after 50 steps, expected one")


def test_speeds_change_by_at_most_the_acceleration():
    limiter = Limiter(0.5, 2.0)
    assert limiter.limit(0.0, (1.0, 1.0)) == (0.0, 0.0)
    assert limiter.limit(0.1, (1.0, 1.0)) == pytest.approx((0.05, 0.2))
    assert limiter.limit(1.1, (0.3, -3.0)) == pytest.approx((0.3, -1.8))
    assert limiter.limit(1.2, (0.0, -3.0)) == pytest.approx((0.25, -2.0))
    limiter.stop()
    assert limiter.limit(1.3, (1.0, 1.0)) == (0.0, 0.0)


# Cameras


def test_a_camera_at_another_place_is_refused():
    driver, _ = ready()
    for place, text in (
        (PLACE._replace(pitch=math.radians(-10.0)), "a place 0.00 m and 10.0 degrees from that of the policy"),
        (PLACE._replace(height=1.9), "a place 0.30 m and 0.0 degrees"),
        (PLACE._replace(left=math.nan), "found a place"),
    ):
        driver.receive_camera_place(place)
        assert text in driver.step(10.1).reason
    driver.receive_camera_place(PLACE._replace(height=0.4))  # within the heights of training
    assert driver.step(10.1).state == DRIVING


def test_another_camera_is_resampled_or_refused():
    driver, session = driver_of()
    driver.receive_camera_place(PLACE)
    k, d = [20.0, 0, 33.0, 0, 22.0, 20.0, 0, 0, 1], [-0.05, 0.01, 0.0, 0.0]
    wide = SimpleNamespace(height=48, width=64, k=k, d=d, distortion_model="plumb_bob")
    driver.receive_camera_info(wide)
    driver.receive_odometry(1.0, 1.0, "odom", (0.0, 0.0, 0.0))
    # each pixel holds the undistorted tangent of its ray, so that what the policy sees says where it looks
    rows, columns = np.indices((48, 64))
    x, _ = undistort((columns - 33.0) / 20.0, (rows - 20.0) / 22.0, d)
    driver.receive_image(1.0, 1.0, (5.0 + x).astype(np.float32))
    driver.set_goal(1.0, "odom", (1.0, 0.0))
    assert driver.step(1.0).state == DRIVING
    seen = session.seen[0]["depth"][0, 0] * 10.0 - 5.0
    np.testing.assert_allclose(seen, np.broadcast_to((np.arange(8) - 3.5) / 4.0, (8, 8)), atol=0.6 / 20.0)
    narrow = SimpleNamespace(**{**vars(wide), "k": [90.0, 0, 31.5, 0, 90.0, 23.5, 0, 0, 1], "d": []})
    driver.receive_camera_info(narrow)
    assert "camera: found 6% of the policy's view, expected 90% at least" in driver.step(1.1).reason
    driver.receive_camera_info(SimpleNamespace(**{**vars(wide), "distortion_model": "equidistant"}))
    assert "found distortion model 'equidistant'" in driver.step(1.1).reason
    driver.receive_camera_info(SimpleNamespace(**{**vars(wide), "k": [math.nan] * 9}))
    assert "camera_info: found k" in driver.step(1.1).reason


def test_an_image_of_another_size_than_camera_info_ends_the_goal():
    driver, _ = ready()
    feed(driver, 10.6, image=False)
    driver.receive_image(10.6, 10.6, np.ones((4, 4), np.float32))
    assert driver.step(10.6).state == IDLE
    assert "found 4 rows of 4 pixels, expected 8 of 8 as camera_info says" in driver.outcomes[1].reason


# Discrete moves


def drive(driver, move, times):
    """Tick with a body that moves as it is told: `move(pose, command, seconds)`; returns its last pose and commands."""
    pose, commands = (0.0, 0.0, 0.0), []
    for before, now in itertools.pairwise(times):
        feed(driver, now, pose)
        command = driver.step(now)
        commands.append(command)
        pose = move(pose, command, now - before)
    return pose, commands


def unicycle(pose, command, elapsed):
    x, y, yaw = pose
    return (
        x + command.linear * elapsed * math.cos(yaw), y + command.linear * elapsed * math.sin(yaw),
        yaw + command.angular * elapsed,
    )  # fmt: skip


def test_discrete_actions_are_moves_closed_on_odometry():
    driver, session = driver_of(actions=[1, 2, 2, 2, 1, 3], discrete=True)
    driver.receive_camera_info(INFO)
    driver.receive_camera_place(PLACE)
    driver.set_goal(10.0, "odom", (3.0, 0.0))
    (x, y, yaw), commands = drive(driver, unicycle, np.arange(10.0, 40.0, 0.05).tolist())
    assert driver.outcomes[1].state == SUCCEEDED and len(session.seen) == 7
    assert math.degrees(yaw) == pytest.approx(20.0, abs=4.0)
    turned = math.radians(30.0)
    assert (x, y) == pytest.approx((0.25 + 0.25 * math.cos(turned), 0.25 * math.sin(turned)), abs=0.05)
    assert max(command.linear for command in commands) <= 0.25 and max(abs(c.angular) for c in commands) <= 0.6
    observed = [seen["pointgoal"][0, 0] for seen in session.seen]
    assert observed[0] - observed[1] == pytest.approx(0.25, abs=0.03)  # it acts when the move has ended
    assert [seen["previous_action"].item() for seen in session.seen[1:]] == [1, 2, 2, 2, 1, 3]


def test_a_blocked_move_ends_after_its_time():
    collided = []

    def observe(depth, pose, goal, blocked):
        collided.append(blocked)
        return {"waypoint": np.zeros((1, 2), np.float32)}

    mapper = SimpleNamespace(reset=lambda: None, observe=observe)
    driver, session = driver_of(
        actions=[1, 1, 2], discrete=True, observations=("waypoint", "pointgoal"), mapper=mapper, move_timeout=1.0
    )
    driver.receive_camera_info(INFO)
    driver.receive_camera_place(PLACE)
    driver.set_goal(10.0, "odom", (3.0, 0.0))
    drive(driver, lambda pose, command, elapsed: (pose[0], pose[1], pose[2] + command.angular * elapsed),
          np.arange(10.0, 20.0, 0.05).tolist())  # fmt: skip
    assert len(session.seen) == 4 and collided == [False, True, True, False]


def test_the_next_action_waits_for_an_image_after_the_move():
    driver, session = driver_of(actions=[1, 1], discrete=True)
    driver.receive_camera_info(INFO)
    driver.receive_camera_place(PLACE)
    feed(driver, 10.0)
    driver.set_goal(10.0, "odom", (3.0, 0.0))
    driver.step(10.0)
    feed(driver, 10.3, (0.25, 0.0, 0.0), image=False)
    driver.receive_image(10.3, 10.25, np.ones((SIZE, SIZE), np.float32))
    assert driver.step(10.3)[:3] == (0.0, 0.0, DRIVING) and len(session.seen) == 1
    feed(driver, 10.4, (0.25, 0.0, 0.0))
    driver.step(10.4)
    assert len(session.seen) == 2


def test_moves_and_speeds():
    move = Move((1.0, 2.0, math.pi / 2), 0.0, forward=0.25)
    assert move.left((1.0, 2.1, math.pi / 2))[0] == pytest.approx(0.15)
    assert move.is_done((1.0, 2.245, math.pi / 2)) and not move.is_done((1.2, 2.0, math.pi / 2))
    turn = Move((0.0, 0.0, math.pi), 0.0, turn=math.radians(-10.0))
    assert turn.command((0.0, 0.0, math.pi), 0.25, 0.6, (0.5, 2.0))[1] < 0.0
    assert turn.is_done((0.0, 0.0, math.pi - math.radians(10.2)))
    assert speeds(np.float32([-1.0, 0.05]), VELOCITY) == (0.0, 0.0)
    assert speeds(np.float32([3.0, 0.5]), VELOCITY) == pytest.approx((0.25, math.radians(5.0)))
    with pytest.raises(ArgumentError, match="found the action 'look up'"):
        moves_of({"table": [*DISCRETE["table"], {"index": 4, "name": "look up", "camera_degrees": 30.0}]})


def test_policies_and_settings_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(ArgumentError, match="policy: found the inputs imagegoal, expected some of compass, depth"):
        driver_of(observations=("depth", "imagegoal"))
    with pytest.raises(ConfigError, match="image_timeout: found 0"):
        validate(Settings(image_timeout=0.0))
    (tmp_path / "policy.json").write_text("{}")
    with pytest.raises(ArgumentError, match=r"policy\.json: found format None"):
        Driver.load(tmp_path / "policy.onnx")
    (tmp_path / "policy.json").write_text(json.dumps({"format": FORMAT}))
    with pytest.raises(ArgumentError, match=r"policy\.onnx: found no exported policy"):
        Driver.load(tmp_path / "policy.onnx")
    (tmp_path / "policy.onnx").write_bytes(b"no model")
    with pytest.raises(ArgumentError, match=r"policy\.onnx: found no exported policy"):
        Driver.load(tmp_path / "policy.onnx")


def test_sampled_actions_follow_the_probabilities():
    driver, _ = driver_of(discrete=True, actions=[], sample=True)
    driver.policy._session.run = lambda outputs, inputs: [np.float32([[0.0, 0.25, 0.75, 0.0]]), inputs["state"]]
    observed = {name: np.zeros(1) for name in ("depth", "pointgoal")}
    found = [int(driver.policy.act(observed)) for _ in range(400)]
    assert set(found) == {1, 2} and 0.68 < np.mean(np.array(found) == 2) < 0.82


# Conversions


def image(depth, encoding="16UC1", pad=6):
    """A message with rows of more bytes than pixels."""
    values = np.round(depth * 1000.0).astype("<u2") if encoding == "16UC1" else depth.astype("<f4")
    rows = np.pad(values.view(np.uint8).reshape(len(depth), -1), ((0, 0), (0, pad)))
    height, width = depth.shape
    return SimpleNamespace(
        encoding=encoding, is_bigendian=0, height=height, width=width, step=rows.shape[1], data=rows.tobytes()
    )


def test_images_are_read():
    depth = np.float32([[0.5, 2.0, 0.0], [1.0, np.nan, np.inf]])
    np.testing.assert_allclose(depth_of(image(depth, "32FC1")), [[0.5, 2.0, 0.0], [1.0, 0.0, 0.0]])
    np.testing.assert_allclose(depth_of(image(np.nan_to_num(depth, posinf=0.0))), [[0.5, 2.0, 0.0], [1.0, 0.0, 0.0]])
    color = SimpleNamespace(encoding="bgr8", height=1, width=2, step=8, data=bytes([1, 2, 3, 4, 5, 6, 0, 0]))
    np.testing.assert_array_equal(color_of(color), [[[3, 2, 1], [6, 5, 4]]])
    with pytest.raises(ArgumentError, match="found encoding 'rgb8', expected 32FC1, 16UC1"):
        depth_of(SimpleNamespace(encoding="rgb8"))
    with pytest.raises(ArgumentError, match="image: found 5 bytes in rows of 8"):
        color_of(SimpleNamespace(**{**vars(color), "data": bytes(5)}))
    observed = depth_observation(np.float32([[0.0, 0.5, 9.0]]), {"min_depth": 0.5, "max_depth": 4.5, "hole_value": 1.0})
    np.testing.assert_array_equal(observed, np.float32([[[[1.0, 0.0, 1.0]]]]))


def test_poses_and_transforms():
    assert seconds(SimpleNamespace(sec=3, nanosec=500_000_000)) == 3.5
    place, turn = (
        SimpleNamespace(x=1.0, y=2.0, z=0.0),
        SimpleNamespace(x=0.0, y=0.0, z=math.sin(0.25), w=math.cos(0.25)),
    )
    assert pose_of(SimpleNamespace(position=place, orientation=turn)) == pytest.approx((1.0, 2.0, 0.5))
    assert planar(SimpleNamespace(translation=place, rotation=turn)) == pytest.approx((1.0, 2.0, 0.5))
    assert transformed((1.0, 0.0), (1.0, 2.0, math.pi / 2)) == pytest.approx((1.0, 3.0))
    optical = SimpleNamespace(x=-0.5, y=0.5, z=-0.5, w=0.5)
    found = camera_place(SimpleNamespace(translation=SimpleNamespace(x=0.1, y=-0.2, z=0.6), rotation=optical))
    assert found == pytest.approx((0.6, 0.1, -0.2, 0.0, 0.0))


def test_scans_have_the_nearest_beam_of_each_angle():
    angles = np.radians([-90.0, 0.0, 90.0, 180.0])
    scan = SimpleNamespace(
        ranges=[1.0, 2.0, math.inf, 4.0, 0.01], angle_min=-math.pi / 2, angle_increment=math.pi / 4, range_min=0.1,
        range_max=10.0,
    )  # fmt: skip
    np.testing.assert_allclose(scan_of(scan, angles, 8.0), [1.0, 8.0, 8.0, 8.0])
    scan.ranges = [1.0, 2.0, 3.0, 4.0, 5.0]
    np.testing.assert_allclose(scan_of(scan, angles, 4.5), [1.0, 3.0, 4.5, 4.5])
    full = SimpleNamespace(
        ranges=list(range(1, 9)), angle_min=0.0, angle_increment=-math.pi / 4, range_min=0.1, range_max=10.0
    )
    np.testing.assert_allclose(scan_of(full, angles, 10.0), [3.0, 1.0, 7.0, 5.0])
    with pytest.raises(ArgumentError, match="scan: found 0 ranges"):
        scan_of(SimpleNamespace(ranges=[], angle_increment=0.1), angles, 1.0)


def test_the_map_lies_around_the_robot():
    ego = np.full((1, 1, 48, 48), 0.05, np.float32)
    ego[0, 0, 0, 24] = 0.35  # the farthest row ahead
    ego[0, 0, 24, 0] = 0.15  # on the left
    grid = grid_of(ego)
    cells = grid.data.reshape(48, 48)  # rows along y, columns along x
    assert grid.resolution == 0.25 and grid.origin == (-6.0, -6.0) and cells.dtype == np.int8
    assert np.argwhere(cells == 100).tolist() == [[23, 47]] and np.argwhere(cells == 0).tolist() == [[47, 23]]
    assert (cells == -1).sum() == 48 * 48 - 2


def test_a_resampled_symmetric_camera_is_the_image_itself():
    found = Resampler(INFO, CAMERA)
    picture = np.random.default_rng(0).random((SIZE, SIZE)).astype(np.float32)
    assert found.coverage == 1.0
    np.testing.assert_array_equal(found(picture), picture)


# Policies that search for objects


def red(rgb, category):
    """A toy detector: the red channel is the score."""
    assert rgb.shape == (1, 3, SIZE, SIZE) and rgb.dtype == np.uint8 and category.dtype == np.int64
    return rgb[:, :1] / 255.0


SEARCH = ("depth", "goal_mask", "gps", "compass", "objectgoal")


def searching(detector=red, **options):
    driver, session = driver_of(observations=SEARCH, detector=detector, discrete=True, **options)
    driver.receive_camera_info(INFO)
    driver.receive_camera_place(PLACE)
    return driver, session


def test_a_search_gives_the_policy_the_mask_of_a_detector():
    driver, session = searching(actions=(1,))
    assert driver.set_category(10.0, "bed") == ""
    feed(driver, 10.0)
    assert driver.step(10.0).reason == "rgb: found none yet"
    image = np.zeros((SIZE, SIZE, 3), np.uint8)
    image[:, :, 0] = 51 * np.arange(SIZE)[:, None] // 2
    driver.receive_image(10.0, 10.0, image, COLOR)
    assert driver.step(10.0).state == DRIVING
    assert session.seen[0]["objectgoal"].tolist() == [1]
    np.testing.assert_array_equal(session.seen[0]["goal_mask"], image.transpose(2, 0, 1)[None, :1])
    assert math.isnan(driver.feedback(10.0).distance)
    driver.set_category(11.0, "chair")
    assert driver.outcomes[1].reason == "a new goal"
    session.actions = [0]
    feed(driver, 11.0)
    driver.receive_image(11.0, 11.0, image, COLOR)
    assert driver.step(11.0).reason == "succeeded: the policy stopped"
    assert session.seen[-1]["objectgoal"].tolist() == [0]


def test_goals_of_the_wrong_kind_and_masks_of_another_shape_are_refused():
    driver, _ = searching(detector=lambda rgb, category: rgb)
    assert driver.set_goal(1.0, "odom", (1.0, 0.0)) == "goal: found a point, expected a category of chair, bed"
    assert driver.set_category(1.0, "sofa") == "goal: found the category 'sofa', expected one of chair, bed"
    assert "expected a point" in driver_of()[0].set_category(1.0, "bed")
    driver.set_category(10.0, "bed")
    feed(driver, 10.0)
    driver.receive_image(10.0, 10.0, np.zeros((SIZE, SIZE, 3), np.uint8), COLOR)
    assert "detector: found uint8 [1, 3, 8, 8], expected bool, uint8" in driver.step(10.0).reason
    with pytest.raises(ArgumentError, match="found the input goal_mask without a detector"):
        searching(detector=None)
    assert named_detector("") is None and named_detector("math:hypot") is math.hypot
    for wrong in ("nowhere:detect", "math:detect", "math"):
        with pytest.raises(ArgumentError, match=f"detector: found {wrong!r}"):
            named_detector(wrong)
