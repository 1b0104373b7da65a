"""The decisions of the ROS 2 node, without ROS: checks of inputs, a state machine, and steps of the policy.

    driver = Driver.load("policy.onnx")
    driver.receive_camera_info(info)                       # messages, or objects with their fields
    driver.receive_image(now, stamp, depth_of(message))
    driver.receive_odometry(now, stamp, "odom", (x, y, yaw))
    driver.set_goal(now, "odom", (4.0, 1.5))
    driver.set_category(now, "chair")                      # for policies of ObjectNav, in place of a point
    command = driver.step(now)                             # at every tick; zero unless all inputs are fresh

Times are seconds of one clock. A message counts with the time of its measurement (its stamp), not of its arrival.

States: "idle" without a goal; "waiting" where an input is missing, old or unusable, with speeds of zero and the
reason; "driving". A goal ends as "succeeded" (the policy stopped), "canceled", or "aborted" (a new goal, a clock that
went back, too many steps, a policy without finite numbers).
"""

from __future__ import annotations

import importlib
import math
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from batchnav.config import bounded, validate
from batchnav.errors import ArgumentError
from batchnav.export.onnx_policy import read_description
from batchnav.export.ros2.control import Limiter, Move, moves_of, speeds, turned
from batchnav.export.ros2.conversions import CameraPlace, Pose, Resampler, lidar_observation, transformed

IDLE, WAITING, DRIVING = "idle", "waiting", "driving"
SUCCEEDED, CANCELED, ABORTED = "succeeded", "canceled", "aborted"
IMAGE, COLOR, ODOMETRY, SCAN, GOAL_FRAME = "depth", "rgb", "odometry", "scan", "goal frame"
"""Names of inputs."""
CATEGORY, MASK = "objectgoal", "goal_mask"
"""Observations of policies that search for objects."""
HISTORY = 2.0
"""Seconds of odometry that are kept to be matched with images."""
STOPPED_SHARE = 0.5
"""A robot that moved less than this share of its command has collided."""
OBSERVATIONS = {
    "depth", "rgb", "pointgoal", "gps", "compass", "heading", "ego_map", "waypoint", "lidar", "objectgoal", "goal_mask",
}  # fmt: skip
"""Observations that the node can make."""
Detector = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Function of colour images u8 [1, 3, H, W] and the number of the goal's category i64 [1], which returns the mask
[1, 1, H, W]: bool, scores in 0..1, or u8 with 255 for a score of 1."""


@dataclass(frozen=True)
class Settings:
    """Parameters of the node; times are seconds."""

    image_timeout: float = bounded(0.5, 0.01, 60.0)
    """Largest age of an image."""
    odometry_timeout: float = bounded(0.3, 0.01, 60.0)
    """Largest age of odometry."""
    scan_timeout: float = bounded(0.5, 0.01, 60.0)
    """Largest age of a laser scan."""
    transform_timeout: float = bounded(1.0, 0.01, 3600.0)
    """Largest age of the transform from the goal's frame to that of odometry."""
    future_tolerance: float = bounded(0.05, 0.0, 10.0)
    """How far in the future a stamp may be."""
    match_tolerance: float = bounded(0.1, 1e-3, 10.0)
    """Largest time between an image and the odometry around it."""
    camera_tolerance: float = bounded(0.05, 0.0, 10.0)
    """Metres by which the camera's place may differ from that of training."""
    camera_tolerance_deg: float = bounded(3.0, 0.0, 180.0)
    """Degrees by which its direction may."""
    min_coverage: float = bounded(0.9, 0.0, 1.0)
    """Share of the policy's image that the robot's camera must see."""
    max_linear_acceleration: float = bounded(0.5, 1e-3, 100.0)
    """m/s^2."""
    max_angular_acceleration: float = bounded(2.0, 1e-3, 100.0)
    """radians/s^2."""
    forward_speed: float = bounded(0.25, 0.01, 10.0)
    """Speed of a discrete move ahead, m/s."""
    turn_speed: float = bounded(0.6, 0.01, 10.0)
    """Speed of a discrete turn, radians/s."""
    move_timeout: float = bounded(4.0, 0.1, 600.0)
    """Time after which a discrete move ends, finished or not."""
    sample: bool = False
    """Sample actions, as in evaluation; false: the most probable ones."""
    seed: int = bounded(0, 0, 2**31 - 1)
    """Seed for action sampling."""


class Command(NamedTuple):
    """Speeds for the base, and why."""

    linear: float
    """m/s ahead."""
    angular: float
    """radians/s to the left."""
    state: str
    reason: str


class Feedback(NamedTuple):
    """Progress towards the running goal."""

    distance: float
    """Straight distance, metres; NaN while it is unknown."""
    elapsed: float
    """Seconds since the goal came."""
    steps: int
    """Steps of the policy."""


class Outcome(NamedTuple):
    """How a goal ended."""

    state: str
    reason: str


class Input:
    """Acceptance of one input's messages by their stamps.

    Args:
        name: name in reasons.
        timeout: age above which it is stale, seconds; inf: never.
        tolerance: how far in the future a stamp may be, seconds.
    """

    def __init__(self, name: str, timeout: float, tolerance: float):
        self.name, self.timeout, self._tolerance = name, timeout, tolerance
        self.refused: Counter[str] = Counter()
        """Number of refused messages by reason."""
        self.clear()

    def clear(self) -> None:
        """Forget the last message."""
        self.stamp = -math.inf
        self.value: Any = None

    def accept(self, now: float, stamp: float, value: Any) -> bool:
        """Keep a message, unless its stamp is not finite, in the future, or not after that of the last one."""
        reason = ""
        if not math.isfinite(stamp):
            reason = "no time"
        elif stamp > now + self._tolerance:
            reason = "from the future"
        elif stamp <= self.stamp:
            reason = "out of order"
        if reason:
            self.refused[reason] += 1
            return False
        self.stamp, self.value = stamp, value
        return True

    def problem(self, now: float) -> str:
        """Why the input cannot be used at a time; empty where it can."""
        if self.value is None:
            return f"{self.name}: found none yet"
        if now - self.stamp > self.timeout:
            return f"{self.name}: found nothing for {now - self.stamp:.2f} s, expected at most {self.timeout:g} s"
        return ""


class Policy:
    """Steps of an exported policy for one robot, with its memory.

    Args:
        session: `onnxruntime.InferenceSession` of the file.
        description: content of the JSON file.
        settings: sampling of actions.
    """

    def __init__(self, session: Any, description: Mapping[str, Any], settings: Settings):
        self._session, self._sample, self._seed = session, settings.sample, settings.seed
        self._inputs = description["inputs"]
        self._outputs = [value["name"] for value in description["outputs"]]
        self.names = [value["name"] for value in self._inputs]
        self.steps = 0
        """Number of steps since the policy was loaded."""
        self.reset()

    def reset(self) -> None:
        """Begin an episode."""
        self._memory = {
            value["name"]: np.zeros([1 if size == "batch" else size for size in value["shape"]], value["dtype"])
            for value in self._inputs
        }
        self._memory["episode_start"] = np.array([True])
        self.last: np.ndarray | None = None
        """The last action of the episode."""
        self._random = np.random.default_rng(self._seed)

    def act(self, observations: Mapping[str, np.ndarray]) -> np.ndarray:
        """The action, f32 [A] or i64 []; the memory advances. ArgumentError where an output is not finite."""
        inputs = self._memory | dict(observations)
        found = self._session.run(self._outputs, {name: inputs[name] for name in self.names})
        outputs = dict(zip(self._outputs, found, strict=True))
        for name, value in outputs.items():
            if value.dtype.kind == "f" and not np.isfinite(value).all():
                raise ArgumentError(f"policy: found {name} that is not finite, expected finite numbers")
        if "mean" in outputs:
            noise = self._random.standard_normal(outputs["mean"].shape) if self._sample else 0.0
            action = (outputs["mean"] + noise * outputs["std"]).astype(np.float32)
        else:
            table = outputs["probabilities"].astype(np.float64)
            below = table.cumsum(1) <= self._random.random() if self._sample else None
            action = table.argmax(1) if below is None else below[:, :-1].sum(1)
        self._memory |= {name.replace("next_", ""): outputs[name] for name in outputs if name.startswith("next_")}
        self._memory |= {"previous_action": action, "episode_start": np.array([False])}
        self.steps, self.last = self.steps + 1, np.atleast_1d(action[0])
        return action[0]


class Driver:
    """State machine of a robot that a policy drives to goals.

    Args:
        policy: the policy.
        description: content of its JSON file.
        settings: parameters.
        mapper: `batchnav.export.RobotMapper`, for policies that read a map.
        detector: gives the mask of the goal, for policies that read "goal_mask".

    ArgumentError for a policy that reads an observation which the node cannot make.
    """

    def __init__(
        self,
        policy: Policy,
        description: Mapping[str, Any],
        settings: Settings,
        mapper: Any = None,
        detector: Detector | None = None,
    ):
        self.policy, self.description, self.settings, self.mapper = policy, description, settings, mapper
        self._detector = detector
        self._observed = {value["name"] for value in description["inputs"]} - {"previous_action", "episode_start"}
        self._observed = {name for name in self._observed if not name.startswith("state")}
        if unknown := self._observed - OBSERVATIONS:
            raise ArgumentError(
                f"policy: found the inputs {', '.join(sorted(unknown))}, expected some of "
                f"{', '.join(sorted(OBSERVATIONS))}"
            )
        if MASK in self._observed and detector is None:
            raise ArgumentError("policy: found the input goal_mask without a detector, expected one: `detector`")
        self.categories = tuple(description["environment"].get("task", {}).get("categories", ()))
        """Categories of the goals, for policies that search for objects."""
        shapes = {value["name"]: value["shape"] for value in description["inputs"]}
        _, rows, self._beams = shapes.get("lidar", (1, 1, 0))
        if rows != 1:
            raise ArgumentError(f"policy: found a LiDAR with {rows} rows, expected 1, as a LaserScan has")
        self.actions = description["actions"]
        self._moves = moves_of(self.actions) if self.actions["kind"] == "discrete" else {}
        limits = settings.max_linear_acceleration, settings.max_angular_acceleration
        self._limits, self._limiter = limits, Limiter(*limits)
        needed = self._needed()
        self.inputs = {name: Input(name, timeout, settings.future_tolerance) for name, timeout in needed.items()}
        """Inputs that the policy needs, by name."""
        self._poses: deque[tuple[float, Pose]] = deque()
        self._resampler: Resampler | None = None
        self._camera_problem = "camera_info: found none yet"
        self._place_problem = "camera: found no transform to the body's frame yet"
        self._frame = ""
        self._now = -math.inf
        self._goal: tuple[str, tuple[float, float]] | None = None
        self.goal_number = 0
        """Number of goals so far; the running one has this number."""
        self.outcomes: dict[int, Outcome] = {}
        """How each goal ended, by its number."""
        self.path: list[Pose] = []
        """Poses of the steps since the running goal came."""
        self.ego_map: np.ndarray | None = None
        """The last observation "ego_map", for policies that read one."""
        self._last = Command(0.0, 0.0, IDLE, "no goal")

    @classmethod
    def load(cls, path: str | Path, settings: Settings | None = None, detector: Detector | None = None) -> Driver:
        """The driver of a policy that `batchnav export` wrote. ArgumentError for another file."""
        import onnxruntime

        path, settings = Path(path), settings or Settings()
        validate(settings)
        description = read_description(path.with_suffix(".json"))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        try:
            session = onnxruntime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
            policy = Policy(session, description, settings)
        except Exception as error:  # those of ONNX Runtime share no base
            raise ArgumentError(
                f"{path}: found no exported policy ({error}), expected the file of `batchnav export`"
            ) from error
        mapper = None
        if {"ego_map", "waypoint"} & {*policy.names}:
            from batchnav.export.robot_mapper import RobotMapper  # imports PyTorch

            mapper = RobotMapper.load(path.with_suffix(".json"))
        return cls(policy, description, settings, mapper, detector)

    @property
    def period(self) -> float:
        """Seconds between two ticks: the time step of training, or 0.05 for discrete actions."""
        return float(self.actions["time_step"]) if self.actions["kind"] == "velocity" else 0.05

    def _needed(self) -> dict[str, float]:
        """Time limits of the inputs that the policy's observations need, by name."""
        settings, needed = self.settings, {ODOMETRY: self.settings.odometry_timeout}
        if self._observed & {"depth", "ego_map", "waypoint"}:
            needed[IMAGE] = settings.image_timeout
        if self._observed & {"rgb", MASK}:
            needed[COLOR] = settings.image_timeout
        if "lidar" in self._observed:
            needed[SCAN] = settings.scan_timeout
        return needed

    # Inputs

    def receive_camera_info(self, info: Any) -> None:
        """Read the robot's camera matrix: sensor_msgs/CameraInfo."""
        try:
            self._resampler = Resampler(info, self.description["cameras"]["main"])
        except ArgumentError as error:
            self._resampler, self._camera_problem = None, str(error)
            return
        found, least = self._resampler.coverage, self.settings.min_coverage
        self._camera_problem = ""
        if found < least:
            self._camera_problem = f"camera: found {found:.0%} of the policy's view, expected {least:.0%} at least"

    def receive_camera_place(self, place: CameraPlace) -> None:
        """Compare the camera's place on the body with that of the policy."""
        camera, s = self.description["cameras"]["main"], self.settings
        low, high = camera["trained_heights"]
        low, high = min(low, camera["height_above_floor"]), max(high, camera["height_above_floor"])
        metres = max(low - place.height, place.height - high, 0.0)
        metres = max(metres, abs(place.forward - camera["forward"]), abs(place.left - camera["left"]))
        angles = (place.heading, camera["heading_deg"]), (place.pitch, camera["pitch_deg"])
        degrees = max(abs(math.degrees(turned(found, math.radians(expected)))) for found, expected in angles)
        self._place_problem = ""
        is_near = metres <= s.camera_tolerance and degrees <= s.camera_tolerance_deg
        if not (is_near and all(map(math.isfinite, place))):  # a maximum may pass over NaN
            self._place_problem = (
                f"camera: found a place {metres:.2f} m and {degrees:.1f} degrees from that of the policy, expected "
                f"{s.camera_tolerance:g} m and {s.camera_tolerance_deg:g} degrees at most"
            )

    def receive_image(self, now: float, stamp: float, image: np.ndarray, kind: str = IMAGE) -> bool:
        """Take a depth image [H, W], metres, or a colour image [H, W, 3]; False where it is refused."""
        self._set_clock(now)
        return kind in self.inputs and self.inputs[kind].accept(now, stamp, image)

    def receive_scan(self, now: float, stamp: float, scan: Any) -> bool:
        """Take a sensor_msgs/LaserScan; False where it is refused. ArgumentError for an empty one."""
        self._set_clock(now)
        if SCAN not in self.inputs:
            return False
        return self.inputs[SCAN].accept(now, stamp, lidar_observation(scan, self.description["lidar"], self._beams))

    def receive_odometry(self, now: float, stamp: float, frame: str, pose: Pose) -> bool:
        """Take the body's pose in the frame of odometry; False where it is refused."""
        self._set_clock(now)
        found = self.inputs[ODOMETRY]
        if not all(map(math.isfinite, pose)):
            found.refused["not finite"] += 1
            return False
        if not found.accept(now, stamp, pose):
            return False
        self._frame = frame
        self._poses.append((stamp, pose))
        while self._poses[0][0] < stamp - HISTORY:
            self._poses.popleft()
        return True

    def receive_goal_frame(self, now: float, stamp: float, frame: str, pose: Pose) -> bool:
        """Take the pose of the goal's frame in the frame of odometry, from TF; False where it is refused."""
        self._set_clock(now)
        if self._goal is None or frame != self._goal[0]:
            return False
        found = self._goal_frame
        if not all(map(math.isfinite, pose)):
            found.refused["not finite"] += 1
            return False
        if stamp == found.stamp:  # TF gives the last transform again and again
            return True
        return found.accept(now, stamp, pose)

    # Goals

    def set_goal(self, now: float, frame: str, goal: tuple[float, float]) -> str:
        """Drive to a point of a frame; a running goal is aborted. Returns why it is refused; empty where it is not."""
        self._set_clock(now)
        if not all(map(math.isfinite, goal)):
            return f"goal: found {goal}, expected finite numbers"
        if not frame:
            return "goal: found no frame, expected one"
        if CATEGORY in self._observed:
            return f"goal: found a point, expected a category of {', '.join(self.categories)}"
        self._begin(now, (frame, goal), 0)
        return ""

    def set_category(self, now: float, category: str) -> str:
        """Search for an object of a category; a running goal is aborted. Returns why it is refused; "" where not."""
        self._set_clock(now)
        if CATEGORY not in self._observed:
            return f"goal: found the category {category!r}, expected a point: the policy does not search for objects"
        if category not in self.categories:
            return f"goal: found the category {category!r}, expected one of {', '.join(self.categories)}"
        self._begin(now, ("", (math.nan, math.nan)), self.categories.index(category))
        return ""

    def _begin(self, now: float, goal: tuple[str, tuple[float, float]], category: int) -> None:
        """Begin to drive to a goal: a point of a frame, or, with an empty frame, an object of a category."""
        self._end(ABORTED, "a new goal")
        self.goal_number += 1
        self._goal, self._began, self._steps = goal, now, 0
        self._category = np.array([category], np.int64)
        self._goal_frame = Input(GOAL_FRAME, self.settings.transform_timeout, self.settings.future_tolerance)
        self._start: Pose | None = None
        self._acted, self._expected, self._collided = -math.inf, 0.0, False
        self._before: Pose | None = None
        self._move: Move | None = None
        self._settled: float | None = None
        """Time of the odometry at the end of a move, until the next one begins."""
        self._wanted = 0.0, 0.0
        self.path = []
        self.policy.reset()
        if self.mapper is not None:
            self.mapper.reset()

    def cancel(self) -> None:
        """End the running goal."""
        self._end(CANCELED, "canceled")

    @property
    def odometry_frame(self) -> str:
        """Frame of the last odometry; empty before it."""
        return self._frame

    @property
    def goal_frame(self) -> str:
        """Frame of the running goal; empty without one."""
        return "" if self._goal is None else self._goal[0]

    def feedback(self, now: float) -> Feedback:
        """Progress towards the running goal. ArgumentError without one."""
        if self._goal is None:
            raise ArgumentError("feedback: found no goal, expected a running one")
        poses, goal = self._poses, self._goal_in_odometry()
        distance = math.dist(poses[-1][1][:2], goal) if poses and goal else math.nan
        return Feedback(distance, now - self._began, self._steps)

    def status(self, now: float) -> dict[str, str]:
        """State, ages of inputs and refused messages, for diagnostics."""
        found = {"state": self._last.state, "reason": self._last.reason, "goals": str(self.goal_number)}
        for name, each in self.inputs.items():
            age = "none" if each.value is None else f"{now - each.stamp:.2f} s"
            found[f"{name} age"] = age
            found |= {f"{name} refused, {reason}": str(count) for reason, count in each.refused.items()}
        return found

    # Steps

    def step(self, now: float) -> Command:
        """The command at a time. Speeds are zero without a goal, and where an input cannot be used."""
        self._set_clock(now)
        if self._goal is None:
            last = self.outcomes.get(self.goal_number)
            self._last = self._stop(IDLE, "no goal" if last is None else f"{last.state}: {last.reason}")
        elif problem := self._problem(now):
            self._last = self._stop(WAITING, problem)
        else:
            try:
                self._last = self._drive(now)
            except ArgumentError as error:
                self._end(ABORTED, str(error))
                self._last = self._stop(IDLE, f"{ABORTED}: {error}")
        return self._last

    def _drive(self, now: float) -> Command:
        pose = self.inputs[ODOMETRY].value
        is_due = now - self._acted >= 0.9 * self.period
        if self.actions["kind"] == "discrete":
            is_due = self._ends_move(now, pose)
        if is_due and not self._act(now):
            outcome = self.outcomes[self.goal_number]
            return self._stop(IDLE, f"{outcome.state}: {outcome.reason}")
        if self._move is not None:
            speed = self.settings.forward_speed, self.settings.turn_speed
            self._wanted = self._move.command(pose, *speed, self._limits) if self._settled is None else (0.0, 0.0)
        return Command(*self._limiter.limit(now, self._wanted), DRIVING, "")

    def _ends_move(self, now: float, pose: Pose) -> bool:
        """True where the next discrete action may be chosen: the move has ended, and an image was taken since then."""
        if self._move is None:
            return True
        if self._settled is None:
            if not self._move.is_done(pose) and now - self._move.began < self.settings.move_timeout:
                return False
            self._settled = self.inputs[ODOMETRY].stamp
            self._collided = self._move.has_failed(pose)
        return all(self.inputs[name].stamp >= self._settled for name in (IMAGE, COLOR, SCAN) if name in self.inputs)

    def _act(self, now: float) -> bool:
        """One step of the policy; False where it stops, which ends the goal. ArgumentError after too many steps."""
        task = self.description["environment"].get("task", {})
        limit = int(task.get("max_steps", 500))
        if self._steps >= limit:
            raise ArgumentError(f"found no stop after {limit} steps, expected one")
        observations = self._observe()
        action = self.policy.act(observations)
        self._steps, self._acted = self._steps + 1, now
        pose = self.inputs[ODOMETRY].value
        if self.actions["kind"] == "velocity":
            self._wanted = speeds(action, self.actions)
            self._before, self._expected = self._seen_from, max(self._wanted[0], 0.0) * self.period
            is_stop = self._wanted == (0.0, 0.0)
        else:
            forward, turn = self._moves[int(action)]
            self._move, self._settled = Move(pose, now, forward, turn), None
            is_stop = not forward and not turn
        if is_stop:
            where = "" if math.isnan(self._distance) else f" {self._distance:.2f} m from the goal"
            self._end(SUCCEEDED, f"the policy stopped{where}")
        return not is_stop

    def _observe(self) -> dict[str, np.ndarray]:
        """The observations of the last image, from the pose at the time of the image."""
        pose, goal = self._pose_of_image(), self._goal_in_odometry()
        assert pose is not None and goal is not None
        self._seen_from, self._distance = pose, math.dist(pose[:2], goal)
        self._start = self._start or pose
        self.path.append(pose)
        if self._before is not None:
            self._collided = math.dist(pose[:2], self._before[:2]) < STOPPED_SHARE * self._expected
        x, y, yaw = pose
        bearing = turned(yaw, math.atan2(goal[1] - y, goal[0] - x))
        polar = np.array([[self._distance, bearing]], np.float32)
        x0, y0, yaw0 = self._start
        cos, sin = math.cos(yaw0), math.sin(yaw0)
        ahead, left = cos * (x - x0) + sin * (y - y0), cos * (y - y0) - sin * (x - x0)
        makers: dict[str, Callable[[], np.ndarray]] = {
            "pointgoal": lambda: polar,
            "gps": lambda: np.array([[ahead, -left]], np.float32),
            "compass": lambda: np.array([[turned(yaw0, yaw)]], np.float32),
            "heading": lambda: np.array([[turned(0.0, yaw)]], np.float32),
            "depth": lambda: depth_observation(self._image(IMAGE), self.description["depth"]),
            "rgb": lambda: np.ascontiguousarray(self._image(COLOR).transpose(2, 0, 1))[None],
            "lidar": lambda: self.inputs[SCAN].value,
            CATEGORY: lambda: self._category,
            MASK: self._detect,
        }
        found = {name: makers[name]() for name in self._observed if name in makers}
        if self.mapper is not None:
            found |= self.mapper.observe(self._image(IMAGE), pose, polar[0], self._collided)
            self.ego_map = found.get("ego_map")
        return {name: found[name] for name in self._observed}

    def _detect(self) -> np.ndarray:
        """The detector's mask u8 [1, 1, H, W]. ArgumentError for a result that is no mask."""
        assert self._detector is not None
        rgb = np.ascontiguousarray(self._image(COLOR).transpose(2, 0, 1))[None]
        return mask_observation(self._detector(rgb, self._category), rgb.shape[2:])

    def _image(self, kind: str) -> np.ndarray:
        assert self._resampler is not None
        return self._resampler(self.inputs[kind].value)

    def _problem(self, now: float) -> str:
        """Why the robot must stand; empty where it may drive."""
        for each in self.inputs.values():
            if problem := each.problem(now):
                return problem
        if (IMAGE in self.inputs or COLOR in self.inputs) and (problem := self._camera_problem or self._place_problem):
            return problem
        if self._needs_transform and (problem := self._goal_frame.problem(now)):
            return f"{problem} (from {self.goal_frame!r} to {self._frame!r})"
        if self._pose_of_image() is None:
            return f"odometry: found none within {self.settings.match_tolerance:g} s of the image, expected some"
        return ""

    @property
    def _needs_transform(self) -> bool:
        return self._goal is not None and self._goal[0] not in ("", self._frame)

    def _goal_in_odometry(self) -> tuple[float, float] | None:
        """The goal in the frame of odometry; None where the transform is missing."""
        if self._goal is None or not self._needs_transform:
            return None if self._goal is None else self._goal[1]
        pose = self._goal_frame.value
        return None if pose is None else transformed(self._goal[1], pose)

    def _pose_of_image(self) -> Pose | None:
        """The pose at the time of the last image (or scan), between those before and after; None without a match."""
        stamps = [self.inputs[name].stamp for name in (IMAGE, COLOR, SCAN) if name in self.inputs]
        if not stamps:
            return self._poses[-1][1]
        stamp, limit = max(stamps), self.settings.match_tolerance
        before = next(((t, pose) for t, pose in reversed(self._poses) if t <= stamp), None)
        after = next(((t, pose) for t, pose in self._poses if t >= stamp), None)
        near = [each for each in (before, after) if each is not None and abs(each[0] - stamp) <= limit]
        if len(near) < 2 or near[0][0] == near[1][0]:
            return near[0][1] if near else None
        (t0, (x0, y0, yaw0)), (t1, (x1, y1, yaw1)) = near
        share = (stamp - t0) / (t1 - t0)
        return x0 + share * (x1 - x0), y0 + share * (y1 - y0), yaw0 + share * turned(yaw0, yaw1)

    def _set_clock(self, now: float) -> None:
        """Note the time. A clock that goes back (a restarted simulation or bag) ends the goal and clears all inputs."""
        if now < self._now - self.settings.future_tolerance:
            self._end(ABORTED, f"the clock went back by {self._now - now:.2f} s")
            for each in self.inputs.values():
                each.clear()
            self._poses.clear()
        self._now = now

    def _stop(self, state: str, reason: str) -> Command:
        self._limiter.stop()
        return Command(0.0, 0.0, state, reason)

    def _end(self, state: str, reason: str) -> None:
        """End the running goal, if there is one."""
        if self._goal is not None:
            self.outcomes[self.goal_number] = Outcome(state, reason)
            self._goal = None


def depth_observation(depth: np.ndarray, limits: Mapping[str, float]) -> np.ndarray:
    """The observation "depth", f32 [1, 1, H, W], of an image in metres with 0 for holes."""
    span = limits["max_depth"] - limits["min_depth"]
    scaled = np.clip((depth - limits["min_depth"]) / span, 0.0, 1.0)
    return np.where(depth == 0.0, limits["hole_value"], scaled).astype(np.float32)[None, None]


def named_detector(name: str) -> Detector | None:
    """The function of a name, as "my_detector:detect"; None for "". ArgumentError where there is none."""
    if not name:
        return None
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ArgumentError(f"detector: found {name!r} ({error}), expected MODULE:FUNCTION") from error
    return found


def mask_observation(found: Any, size: Sequence[int]) -> np.ndarray:
    """The observation "goal_mask", u8 [1, 1, H, W], of a detector's mask; scores are clipped to 0..1, NaN is 0.

    ArgumentError for another shape or type.
    """
    mask = np.asarray(found)
    if mask.shape != (1, 1, *size) or not (mask.dtype in (bool, np.uint8) or mask.dtype.kind == "f"):
        expected = f"bool, uint8 or floating point {[1, 1, *size]}"
        raise ArgumentError(f"detector: found {mask.dtype} {list(mask.shape)}, expected {expected}")
    if mask.dtype == np.uint8:
        return mask
    scores = np.nan_to_num(mask.astype(np.float32), nan=0.0, posinf=1.0, neginf=0.0)
    return np.rint(scores.clip(0.0, 1.0) * 255.0).astype(np.uint8)


PARAMETERS = {field.name: field.default for field in fields(Settings)}
"""Defaults of the node's parameters by name."""
