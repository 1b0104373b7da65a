"""Images of the goal: observations of a camera sensor at the goal's pose, rendered once for each goal."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from batchnav.errors import ConfigError
from batchnav.observation import Frame, ObservationSource, Requirements, Spec
from batchnav.observation import Frame as FrameInput
from batchnav.sensors.camera import MAIN, CameraConfig, FreeBodies
from batchnav.sensors.frame import BYTES_RENDERED, write_observations
from batchnav.sensors.sensor import CameraSensor

FAR = 1e6
"""Height, metres, of cameras whose image is already rendered: their rays hit nothing, which costs little time."""


class GoalImage(ObservationSource):
    """The observation of a camera sensor at the pose `task.goal_position`, `task.goal_heading`, with level tilt.

    It equals the sensor's observation of a body that begins the episode at this pose, bit for bit: camera, renderer and
    noise are the same. On CUDA every call launches the same kernels, so that a CUDA graph can hold it.

    Args:
        name: name of the observation.
        sensor: camera sensor; the GoalImage takes ownership.
    """

    def __init__(self, name: str, sensor: CameraSensor):
        self.spec, self._sensor = sensor.spec._replace(name=name), sensor
        goal = frozenset({"goal_position", "goal_heading"})
        self.requires = Requirements(appearance=sensor.requires.appearance, goal=goal)

    def memory(self, num_envs: int, device: torch.device) -> Mapping[str, int]:
        """Bytes of two images per agent, of the rendered images, and of the sensor."""
        images = 2 * num_envs * math.prod(self.spec.shape) * self.spec.dtype.itemsize
        requires, (height, width) = self._sensor.requires, self.spec.shape[-2:]
        pixels = num_envs * requires.scale**2 * height * width
        rendered = pixels * BYTES_RENDERED * (2 if requires.triangles else 1)
        return {self.spec.name: images + rendered + sum(self._sensor.memory(num_envs, device).values())}

    def bind(self, frame: FrameInput) -> None:
        """Allocate the images, and a renderer for them."""
        n, device, shape, dtype = frame.num_envs, frame.device, self.spec.shape, self.spec.dtype
        self._bodies = FreeBodies.at_origin(n, device)
        self._frame: Any = self._views(frame)
        self._image, self._new = (torch.zeros(n, *shape, dtype=dtype, device=device) for _ in range(2))
        self._goal = torch.full((n,), -1, dtype=torch.int32, device=device)
        self._materials = torch.zeros(n, dtype=torch.int32, device=device)

    def reset(self) -> None:
        """Discard the images: episode numbers start again at 0."""
        self._goal.fill_(-1)

    @property
    def state(self) -> Mapping[str, torch.Tensor]:
        """The goal of each image, by number, and the number of the randomisation of materials that it shows.

        The images are not saved: they follow from these and the goals' poses.
        """
        return {f"{self.spec.name}_episode": self._goal, f"{self.spec.name}_materials": self._materials}

    @property
    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """Numbers of randomisations begin at 0."""
        return {f"{self.spec.name}_materials": (0, torch.iinfo(torch.int32).max)}

    @property
    def repeatable(self) -> bool:
        """True: an image that exists is only copied."""
        return True

    def restore(self, frame: FrameInput, set_materials: Callable[[int], None]) -> None:
        """Render the images of the saved goals again, each with the materials that it showed."""
        existed = self._goal == frame.task.goal_number
        for count in self._materials[existed].unique().tolist():
            set_materials(count)
            self._update(frame, existed & (self._materials == count))

    def write(self, frame: FrameInput, out: torch.Tensor) -> None:
        """Render the images of new goals, and copy the images of all agents to `out`."""
        due = self._goal != frame.task.goal_number
        if frame.device.type == "cuda" or due.any():
            self._update(frame, due)
            self._goal.copy_(frame.task.goal_number)
            if frame.material_sampler is not None:
                self._materials.copy_(torch.where(due, frame.material_sampler.count, self._materials))
        out.copy_(self._image)

    def _update(self, frame: FrameInput, due: torch.Tensor) -> None:
        """Render the images of some agents, bool [N]."""
        goals, task = self._bodies, frame.task
        goals.scene.copy_(frame.bodies.scene)
        goals.episode.copy_(frame.bodies.episode)
        self._place(task)
        goals.position[:, 1].masked_fill_(~due, FAR)
        self._render(task)
        self._image.copy_(torch.where(due.view(-1, *(1 for _ in self.spec.shape)), self._new, self._image))

    def _views(self, frame: FrameInput) -> FrameInput:
        """The frame of the images."""
        return frame.with_bodies(self._bodies, (self._sensor,))

    def _place(self, task: Any) -> None:
        """Move the bodies to the goals' poses."""
        self._bodies.position.copy_(task.goal_position)
        self._bodies.heading.copy_(task.goal_heading)

    def _render(self, task: Any) -> None:
        """Render the images of all bodies."""
        write_observations(self._frame, {self._sensor.spec.name: self._sensor}, {self._sensor.spec.name: self._new})


class GoalCameraImage(GoalImage):
    """The observation of a camera sensor from the cameras `task.goal_camera`, which are mounted on no body.

    Args:
        name: name of the observation.
        sensor: camera sensor; the source takes ownership.
        camera: size of the image.
    """

    def __init__(self, name: str, sensor: CameraSensor, camera: CameraConfig):
        super().__init__(name, sensor)
        self._camera = replace(camera, camera_height=0.0)
        self.requires = self.requires._replace(goal=frozenset({"goal_camera"}))

    def _views(self, frame: FrameInput) -> FrameInput:
        return frame.with_bodies(self._bodies, (self._sensor,), {MAIN: self._camera})

    def _place(self, task: Any) -> None:
        self._bodies.position.copy_(task.goal_camera[:, :3])
        self._bodies.heading.copy_(task.goal_camera[:, 3])
        self._bodies.tilt.copy_(task.goal_camera[:, 4])

    def _render(self, task: Any) -> None:
        self._frame.begin((self._sensor,))
        self._frame.cameras(MAIN).tan_half_hfov.copy_(torch.tan(0.5 * task.goal_camera[:, 5]))
        self._sensor.write(self._frame, self._new)


# Field of view of the goal's image in Instance ImageNav, as habitat-lab's InstanceImageGoalHFOVSensor

GOAL_HFOV = "goal_hfov"
"""Name of the observation."""
_COLUMN = 5
"""Column of the field of view in `task.goal_camera`."""


class GoalHfov(ObservationSource):
    """f32 [N, 1]: horizontal field of view of the camera that took the goal's image, radians."""

    spec = Spec(GOAL_HFOV, (1,), torch.float32, 0.0, math.pi, torch.float32)
    requires = Requirements(goal=frozenset({"goal_camera"}))

    def bind(self, frame: Frame) -> None:
        """ConfigError for a task whose goal images have no cameras of their own."""
        if frame.task.goal_camera is None:
            raise ConfigError(
                f"sensors: found {GOAL_HFOV!r} with a task without cameras of goal images, expected instance_imagenav; "
                "leave the sensor out"
            )

    def write(self, frame: Frame, out: torch.Tensor) -> None:
        """Write the field of view of every agent's goal image."""
        out.copy_(frame.task.goal_camera[:, _COLUMN : _COLUMN + 1])
