"""Input of observation sources in one step: cameras, rendered images, and results that sources share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import numpy as np
import torch

from batchnav.errors import ArgumentError
from batchnav.observation import ObservationSource
from batchnav.renderers.bodies import SeenBodies
from batchnav.renderers.choose import make_renderer
from batchnav.scene.appearance import COLOR_FIELDS, Appearance
from batchnav.scene.bank import SceneBank
from batchnav.sensors.camera import MAIN, CameraBodies, CameraConfig, MountedCamera, Seeds
from batchnav.sensors.disturbances import Odometry
from batchnav.sensors.sensor import Cameras, check_observation
from batchnav.types import MovingBodies, Observation

BYTES_RENDERED = 4
"""Bytes of a pixel in a depth image, and in a triangle image."""
SEMANTIC = "semantic"
"""Last part of the key of an image of the semantic meshes."""
ImageKey = tuple[str, int] | tuple[str, int, str]
"""Name of a camera, rendered rows per row of an observation; and `SEMANTIC` for an image of the semantic meshes."""


def images_needed(
    sources: Iterable[ObservationSource], has_semantic: bool = False
) -> dict[ImageKey, list[ObservationSource]]:
    """Images to render for these sources, each with the sources that read it.

    `has_semantic`: True where scenes have a mesh for ids besides the one for colours.
    """
    needed: dict[ImageKey, list[ObservationSource]] = {}
    for source in sources:
        requires = source.requires
        if requires.camera is None:
            continue
        for scale in {1: None, requires.scale: None} if requires.map else (requires.scale,):  # maps read depth as it is
            key = image_key(requires.camera, scale, requires.semantic and has_semantic)
            needed.setdefault(key, []).append(source)
    return needed


def image_key(camera: str, scale: int, semantic: bool) -> ImageKey:
    """Key of an image of a camera."""
    return (camera, scale, SEMANTIC) if semantic else (camera, scale)


def appearance_needed(sources: Iterable[ObservationSource]) -> frozenset[str]:
    """Fields of `scene.appearance.Appearance` that these sources read."""
    return frozenset(field for source in sources for field in source.requires.appearance)


class GivenImages:
    """A `batchnav.observation.Frame` of one camera whose images exist already.

    Args:
        depth: f32 [N, H, W], metres.
        triangle: i32 [N, H, W], or None.
        cameras: cameras of the images, for sources that read poses.
        appearance: appearance of the scenes, or None.
        bodies: bodies that carry the cameras, for sources that read them.
        task: the agents' task, for sources that read a goal.
    """

    def __init__(
        self,
        depth: torch.Tensor,
        triangle: torch.Tensor | None = None,
        cameras: Cameras | None = None,
        appearance: Appearance[torch.Tensor] | None = None,
        bodies: Any = None,
        task: Any = None,
    ):
        self.num_envs, self.device = len(depth), depth.device
        self.bodies, self.task = bodies, task
        self.odometry = bodies
        self.appearance = self.semantic_appearance = appearance
        self.bank = self.material_sampler = self.seeds = self.seen = None
        self._depth, self._triangle, self._cameras = depth, triangle, cameras
        self._shared: dict[Hashable, Any] = {}

    def cameras(self, name: str = MAIN) -> Cameras:
        """The cameras. ArgumentError where there are none."""
        if self._cameras is None:
            raise ArgumentError("cameras: found none, expected the cameras of the images")
        return self._cameras

    def estimated_cameras(self, name: str = MAIN) -> Cameras:
        """The cameras: odometry is exact."""
        return self.cameras(name)

    def estimated_goal(self, goal: torch.Tensor) -> torch.Tensor:
        """The goal: odometry is exact."""
        return goal

    def depth(self, camera: str = MAIN, scale: int = 1, semantic: bool = False) -> torch.Tensor:
        """The depth images."""
        return self._depth

    def triangle(self, camera: str = MAIN, scale: int = 1, semantic: bool = False) -> torch.Tensor:
        """The triangle images. ArgumentError where there are none."""
        if self._triangle is None:
            raise ArgumentError("triangles: found none, expected triangle images of the same views as the depth images")
        return self._triangle

    def begin(self, sources: Iterable[ObservationSource]) -> None:
        """Do nothing: the images stay."""

    def shared(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """The result of `compute`, which is called at the first request of a key."""
        if key not in self._shared:
            self._shared[key] = compute()
        return self._shared[key]

    def resource(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The object that `make` returned at the first request of a key."""
        return self.shared(("resource", key), make)

    def with_bodies(
        self,
        bodies: CameraBodies,
        sources: Iterable[ObservationSource],
        cameras: Mapping[str, CameraConfig] | None = None,
    ) -> Frame:
        """ArgumentError: there is no renderer."""
        raise ArgumentError("frame: found given images, expected a frame with a renderer")


class Frame:
    """A `batchnav.observation.Frame` of cameras on bodies. An image is rendered once per step, on first use.

    Args:
        bank: scenes, with the appearance fields that the sources require.
        bodies: N bodies that carry the cameras.
        cameras: configurations by name.
        sources: all sources that will read this frame; a renderer is made for each image that they require.
        renderer: "raycast", "opengl" or "auto".
        seeds: seed of the sensor noise and of camera ranges; None: sources with noise raise ArgumentError.
        task: the agents' task, for sources that read a goal.
        odometry: estimates of the agents' poses; None: they know their poses.
    """

    def __init__(
        self,
        bank: SceneBank,
        bodies: CameraBodies,
        cameras: Mapping[str, CameraConfig],
        sources: Iterable[ObservationSource],
        renderer: str = "raycast",
        seeds: Seeds | None = None,
        task: Any = None,
        odometry: Odometry | None = None,
    ):
        self.bank, self.bodies, self.task, self.appearance = bank, bodies, task, bank.appearance
        self._odometry, self.odometry = odometry, bodies if odometry is None else odometry.bodies
        self.num_envs, self.device = len(bodies.heading), bank.device
        self._has_semantic, self.semantic_appearance = bank.semantic is not None, (bank.semantic or bank).appearance
        self.max_climb, self.material_sampler = bank.max_climb, bank.material_sampler
        self.seeds = seeds
        self._made_of = dict(cameras), renderer
        self.sources = tuple(sources)
        """All sources that read this frame."""
        needed = images_needed(self.sources, self._has_semantic)
        for source in self.sources if self._has_semantic else ():
            if source.requires.semantic and (both := source.requires.appearance.intersection(COLOR_FIELDS)):
                raise ArgumentError(
                    f"{source.spec.name}: found a sensor of ids that also reads {', '.join(sorted(both))}, expected "
                    "two sensors: in these scenes colours and ids belong to different meshes"
                )
        read = {key[0] for key in needed}
        self.mounts = {
            name: MountedCamera(bodies, camera, number, seeds)
            for number, (name, camera) in enumerate(cameras.items())
            if name in read
        }
        """Cameras that a source reads, by name."""
        self.renderers = {
            key: make_renderer(
                renderer, bank.semantic if SEMANTIC in key[2:] and bank.semantic else bank, self.num_envs,
                max_depth=max(source.requires.max_depth for source in readers),
                **_options(cameras[key[0]].rendered, key[1]),
            )
            for key, readers in needed.items()
        }  # fmt: skip
        """Renderers by `image_key`."""
        self._with_triangles: set[ImageKey] = set()
        self._shared: dict[Hashable, Any] = {}
        self._resources: dict[Hashable, Any] = {}
        self.seen: SeenBodies | None = None
        """Moving bodies in the images; None: none."""
        self.derived: list[Frame] = []
        """Frames of `with_bodies`."""
        for source in self.sources:
            source.bind(self)

    def show_bodies(
        self, bodies: MovingBodies | None, world: torch.Tensor | None = None, own: torch.Tensor | None = None
    ) -> None:
        """Show moving bodies to all sensors of the agents' cameras, as `Renderer.show_bodies` does.

        Images of goals (`with_bodies`) show the scene alone.
        """
        self.seen = None if bodies is None else SeenBodies.of(bodies, self.num_envs, self.device, world, own)
        for renderer in self.renderers.values():
            renderer.seen = self.seen

    @property
    def capturable(self) -> bool:
        """True where a CUDA graph can hold the rendering and the sources."""
        own = all(renderer.capturable for renderer in self.renderers.values())
        own = own and all(source.capturable for source in self.sources)
        return own and all(frame.capturable for frame in self.derived)

    def begin(self, sources: Iterable[ObservationSource]) -> None:
        """Begin a step in which these sources are read: discard the results of the last step."""
        self._shared.clear()
        self._with_triangles = {
            key
            for key, readers in images_needed(sources, self._has_semantic).items()
            if any(reader.requires.triangles for reader in readers)
        }
        if self._odometry is not None:
            self._odometry.update(self)

    def cameras(self, name: str) -> Cameras:
        """The N cameras with this name, at their current poses."""

        def move() -> Cameras:
            self.mounts[name].move()
            return self.mounts[name].cameras

        return self.shared(("cameras", name), move)

    def estimated_cameras(self, name: str) -> Cameras:
        """The N cameras with this name, at the poses that odometry estimates."""
        if self._odometry is None:
            return self.cameras(name)

        def make() -> MountedCamera:
            cameras = self._made_of[0]
            return MountedCamera(self.odometry, cameras[name], list(cameras).index(name), self.seeds)

        def move() -> Cameras:
            mount = self.resource(("estimated camera", name), make)
            mount.move()
            return mount.cameras

        return self.shared(("estimated cameras", name), move)

    def estimated_goal(self, goal: torch.Tensor) -> torch.Tensor:
        """Live tensor f32 [N, 2]: distance and bearing of a goal by odometry, from those by the true poses."""
        return goal if self._odometry is None else self._odometry.goal(goal)

    def depth(self, camera: str, scale: int = 1, semantic: bool = False) -> torch.Tensor:
        """Planar depth f32 [N, scale * H, scale * W], metres, 0 for holes; without sensor noise."""
        return self._rendered(image_key(camera, scale, semantic and self._has_semantic))[0]

    def triangle(self, camera: str, scale: int = 1, semantic: bool = False) -> torch.Tensor:
        """Surface ids i32 [N, scale * H, scale * W] of `types.Visibility`.

        ArgumentError where no source of this step requires triangles of this image.
        """
        triangle = self._rendered(image_key(camera, scale, semantic and self._has_semantic))[1]
        if triangle is None:
            raise ArgumentError(
                f"camera {camera!r}: found no source that requires its triangles, expected "
                "Requirements(triangles=True) of the source that reads them"
            )
        return triangle

    def _rendered(self, key: ImageKey) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Depth, and triangles if a source of this step requires them."""

        def render() -> tuple[torch.Tensor, torch.Tensor | None]:
            poses = self.cameras(key[0]).poses
            if key in self._with_triangles:
                depth, triangle = self.renderers[key].visibility(*poses)
                return depth, triangle
            return self.renderers[key].render(*poses), None

        return self.shared(("image", *key), render)

    def shared(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """The result of `compute`, which is called for the first request of a key in this step."""
        if key not in self._shared:
            self._shared[key] = compute()
        return self._shared[key]

    def resource(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The object that `make` returned at the first request of a key; kept for all steps."""
        if key not in self._resources:
            self._resources[key] = make()
        return self._resources[key]

    def find(self, key: Hashable) -> Any:
        """The object that a source keeps under this key (`resource`), or None."""
        return self._resources.get(key)

    def with_bodies(
        self,
        bodies: CameraBodies,
        sources: Iterable[ObservationSource],
        cameras: Mapping[str, CameraConfig] | None = None,
    ) -> Frame:
        """A frame with the same scenes on other bodies, for other sources; None: with the same cameras."""
        own, renderer = self._made_of
        cameras = own if cameras is None else cameras
        frame = Frame(self.bank, bodies, cameras, sources, renderer, self.seeds, self.task)
        self.derived.append(frame)
        return frame


def _options(camera: CameraConfig, scale: int) -> dict[str, Any]:
    """Options of the renderer of a camera's images with `scale` rows (and columns) per row (and column)."""
    height, width = scale * camera.height, scale * camera.width
    lens: dict[str, Any] = {"hfov_deg": camera.hfov_deg}
    if camera.lens is not None:
        fine = np.diag([float(scale), float(scale), 1.0])  # coordinates of the fine pixels' centres
        fine[:2, 2] = (scale - 1) / 2.0
        lens |= {"intrinsics": fine @ camera.intrinsics}
    return {"height": height, "width": width, "backface_culling": camera.backface_culling, **lens}


def write_observations(frame: Frame, sources: Mapping[str, ObservationSource], out: Observation) -> None:
    """Begin a step, and write its observations into the tensors of `out` that belong to a source, by name.

    ArgumentError where a tensor does not fit its spec (`sensors.sensor.check_observation`).
    """
    check_observation(out, (source.spec for source in sources.values()), frame.num_envs, frame.device)
    wanted = {name: source for name, source in sources.items() if name in out}
    frame.begin(wanted.values())
    for name, source in wanted.items():
        source.write(frame, out[name])
