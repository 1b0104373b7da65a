"""The interactive viewer: shows a session of episodes in the browser, with viser."""

from __future__ import annotations

import functools
import math
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from batchnav.data.goals import ShownGoals
from batchnav.envs.observations import goal_categories_of
from batchnav.evaluation.trajectories import Trajectory
from batchnav.navmesh.islands import island_areas
from batchnav.runtime.device import resolve_device
from batchnav.sensors.camera import camera_poses
from batchnav.sim.bodies import FORWARD, LEFT, LOOK_DOWN, LOOK_UP, RIGHT, STOP
from batchnav.view.topdown import AMBER, BLUE, GREEN, ORANGE, PURPLE, navigable_triangles
from batchnav.view.video import outcome_of
from batchnav.view.viewer.guard import guarded_server, plain_markdown
from batchnav.view.viewer.session import YOU, Session, scene_path, to_glb

COLOURS = (BLUE, GREEN, PURPLE, (138, 109, 0), (86, 180, 233))
"""Colours of agents, in order. Orange is reserved for the shortest path."""
ISLANDS = ((0, 114, 178), (230, 159, 0), (204, 121, 167), (0, 158, 115))
"""Colours of islands, by decreasing area."""
CUT = 2.0
"""Initial height above the start at which the mesh is cut off, metres."""
LIFT = 0.04
"""Offset of the navmesh above the floor, metres, so that the floor does not hide it; lines have twice that offset."""
POINT = 0.04
"""Size of a view point, metres."""
UP = np.array([0.0, 1.0, 0.0], np.float32)
"""Unit vector upwards."""
KEYS = {
    "forward": ("W", FORWARD), "left": ("A", LEFT), "right": ("D", RIGHT), "look up": ("R", LOOK_UP),
    "look down": ("F", LOOK_DOWN), "stop": ("X", STOP),
}  # fmt: skip
"""Key and action of each driving command."""
SPEEDS = (2, 5, 10, 20, 40)
"""Playback speeds, steps per second."""
SHEET = 576
"""Width in pixels below which viser shows the panel as a sheet over the lower part of the page."""
ABOVE_SHEET = 0.4
"""Share of the page above that sheet."""
FOV, ASPECT = math.radians(75.0), 4.0 / 3.0
"""Vertical field of view of viser's camera, and the aspect ratio of the first view, before a page's is known."""
WALLS = 2.5
"""Height of a storey that the camera shows completely, metres."""


def whole_view(low: np.ndarray, high: np.ndarray, fov: float, aspect: float, free: float = 1.0) -> np.ndarray:
    """Position and target f64 [2, 3] of a camera above a box that fills the canvas, its longer side along the canvas's.

    Args:
        low: lowest corner of the box [3], metres.
        high: highest corner.
        fov: vertical field of view, radians.
        aspect: width over height of the canvas.
        free: share of the canvas's height, from its top, that the box has to fit in.
    """
    is_wide, is_long = aspect > free, (high - low)[0] >= (high - low)[2]
    back = np.array([0.0, 0.95, 0.3] if is_wide == is_long else [0.3, 0.95, 0.0]) / math.hypot(0.95, 0.3)
    right = np.cross(UP.astype(np.float64), back)
    right /= np.linalg.norm(right)
    up, middle = np.cross(back, right), (low + high) / 2
    corners = np.array([[(low, high)[k >> axis & 1][axis] for axis in range(3)] for k in range(8)]) - middle
    x, y, z = corners @ right, corners @ up, corners @ -back
    tan = math.tan(fov / 2)
    near, far = 0.0, 100.0 * float(np.linalg.norm(high - low))
    for _ in range(60):  # bisection of the distance; `shift` moves the camera down, so that the box is in the free part
        distance = (near + far) / 2
        depth = distance + z
        lowest, highest = ((1 - 2 * free) * tan * depth - y).max(), (tan * depth - y).min()
        fits = depth.min() > 0.0 and bool((np.abs(x) <= tan * aspect * depth).all()) and lowest <= highest
        near, far = (near, distance) if fits else (distance, far)
    depth = far + z
    shift = (((1 - 2 * free) * tan * depth - y).max() + (tan * depth - y).min()) / 2
    target = middle - up * shift
    return np.stack([target + back * far, target])


class Viewer:
    """A session in the browser; `run` serves it until the process is interrupted.

    Args:
        session: the episodes and agents to show.
        host: address to listen on; 127.0.0.1 accepts only this machine (or a forwarded port). On other addresses the
            page requires the token in `url`.
        port: port to listen on; if it is in use, the next free one is taken.
    """

    def __init__(self, session: Session, host: str = "127.0.0.1", port: int = 8080):
        self.server, self.url = guarded_server(host, port, "batchnav")
        self.session, self.step, self.playing = session, 0, False
        self.colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(session.agents)}
        self.server.scene.set_up_direction("+y")
        self.server.scene.configure_default_lights(cast_shadow=False)
        self.server.gui.configure_theme(control_width="large", show_logo=False, show_share_button=False)
        self.server.gui.main_panel.dock_right()
        # viser handles each click in its own thread; the lock serialises them.
        self._lock = threading.RLock()
        self._scene_shown: tuple[Any, ...] = ()
        self._cameras: dict[int, np.ndarray] = {}
        self._make_panel()
        self.show_episode()
        self.server.on_client_connect(self._welcome)
        self.server.on_client_disconnect(lambda client: self._cameras.pop(client.client_id, None))

    def run(self) -> None:
        """Serve until interrupted; advance the step while playing."""
        while True:
            time.sleep(1.0 / float(self.speed.value))
            if self.playing:
                self.advance()

    def stop(self, patience: float = 1.0) -> bool:
        """Stop the server. False if a control's handler still runs after `patience` seconds."""
        self.session.stopped = True
        warnings.filterwarnings("ignore", "Queued a .* on a closed connection")  # by handlers that still run
        self.server.stop()
        free = self._lock.acquire(timeout=patience)
        if free:
            self._lock.release()
        return free

    def advance(self) -> None:
        """Go to the next step; playback stops at the last one."""
        with self._lock:
            self.go_to(self.step + 1)
            if self.step >= self.last_step:
                self.playing = False
                self.play.label = "Play"

    @property
    def shown(self) -> list[str]:
        """Names of the visible agents."""
        return [name for name, box in self.boxes.items() if box.value]

    @property
    def last_step(self) -> int:
        """Last step of the longest visible trajectory."""
        return max((len(self.session.track(name).trajectory.headings) for name in self.shown), default=1) - 1

    # The panel.

    def _make_panel(self) -> None:
        gui, session = self.server.gui, self.session
        self.status = gui.add_markdown("")
        with gui.add_folder("Episode"):
            self.episode = gui.add_slider("number", 0, max(1, len(session.episodes) - 1), 1, 0)
            self.time = gui.add_slider("step", 0, 1, 1, 0)
            self.play = gui.add_button("Play")
            self.hops = gui.add_button_group("steps", ("start", "step back", "step forward", "end"))
            self.speed = gui.add_dropdown("steps per second", tuple(map(str, SPEEDS)), initial_value="10")
            self.episodes = gui.add_button_group("episode", ("previous", "next", "next failure"))
            self.end_search = gui.add_button("End search", visible=False)
            scenes = tuple(dict.fromkeys(episode.scene_id for episode in session.episodes))
            self.scene = gui.add_dropdown("scene", scenes, visible=len(scenes) > 1)
        with gui.add_folder("Drive"):
            gui.add_markdown("Keys " + ", ".join(f"{key}: {name}" for name, (key, _) in KEYS.items()))
            self.moves = gui.add_button_group("action", tuple(KEYS))
        with gui.add_folder("Shown"):
            first = session.agents[0]
            self.boxes = {
                name: gui.add_checkbox(name, name == first or name in session.players) for name in session.agents
            }
            visible = {
                "navmesh": True,
                "shortest path": True,
                "view points": goal_categories_of(session.config) is not None,
                "agent's map": any(player.env_config.has_map for player in session.players.values()),
            }
            self.options = {name: gui.add_checkbox(name, True, visible=seen) for name, seen in visible.items()}
            self.cut = gui.add_slider("cut at (m)", 0.5, 6.0, 0.1, CUT)
        self.seen = gui.add_folder("Sensors")
        self.views: dict[tuple[str, str], Any] = {}
        with gui.add_folder("Map"):
            self.map = gui.add_image(np.full((64, 64, 3), 255, np.uint8))
        self._connect()

    def _connect(self) -> None:
        """Connect the panel's controls to their handlers."""
        hops: dict[str, Callable[[], int]] = {
            "start": lambda: 0,
            "step back": lambda: self.step - 1,
            "step forward": lambda: self.step + 1,
            "end": lambda: self.last_step,
        }
        self.play.on_click(self._locked(lambda _: self.toggle()))
        self.hops.on_click(self._locked(lambda event: self.go_to(hops[event.target.value]())))
        self.time.on_update(self._locked(lambda _: self.go_to(int(self.time.value))))
        self.episode.on_update(self._locked(lambda _: self.pick(int(self.episode.value))))
        self.episodes.on_click(self._locked(lambda event: self._change_episode(event.target.value)))
        self.end_search.on_click(self._end_search)
        self.scene.on_update(self._locked(lambda _: self._pick_scene(self.scene.value)))
        self.moves.on_click(self._locked(lambda event: self.drive(KEYS[event.target.value][1])))
        for name, (key, action) in KEYS.items():
            command = self.server.gui.add_command(f"drive: {name}", hotkey=key)
            command.on_trigger(self._locked(functools.partial(self._drive_by_key, action)))
        for box in (*self.boxes.values(), *self.options.values(), self.cut):
            box.on_update(self._locked(lambda _: self.show_episode()))

    def _locked(self, answer: Callable[[Any], None]) -> Callable[[Any], None]:
        """A handler that runs under the lock. Updates by the program itself, which have no client, are ignored."""

        def call(event: Any) -> None:
            if event.client is not None:
                with self._lock:
                    resolve_device(self.session.bank.device)  # CUDA's current device is per thread
                    answer(event)

        return call

    # Actions of the panel.

    def toggle(self) -> None:
        """Start or pause playback."""
        self.playing = not self.playing
        self.play.label = "Pause" if self.playing else "Play"
        if self.playing and self.step >= self.last_step:
            self.go_to(0)

    def pick(self, number: int) -> None:
        """Go to an episode."""
        self.session.pick(number)
        self.step = 0
        self.show_episode()

    def drive(self, action: int) -> None:
        """Step the driven agent with this action."""
        self.playing = False
        self.boxes[YOU].value = True
        self.session.driver.step(action)
        self.show_episode()
        self.go_to(len(self.session.track(YOU).trajectory.headings) - 1)

    def _drive_by_key(self, action: int, event: Any) -> None:
        self.drive(action)

    def _change_episode(self, how: str) -> None:
        if how == "next failure":
            if not self.session.players:
                return
            if not self._find_failure(self.session.agents[0]):
                return
            self.pick(self.session.number)
        else:
            self.pick(self.session.number + (1 if how == "next" else -1))

    def _find_failure(self, name: str) -> bool:
        """Go to an agent's next failed episode; the panel counts the episodes, and its button ends the search."""

        def count(played: int, total: int) -> None:
            shown = plain_markdown(name)
            self.status.content = f"searching for a failed episode of {shown}: {played} of {total} others searched"

        self.session.stopped, self.end_search.visible = False, True
        found = self.session.next_failure(name, count)
        self.end_search.visible = False
        if not found:
            self.status.content = (
                "search ended" if self.session.stopped else f"no other failed episode of {plain_markdown(name)}"
            )
        return found

    def _end_search(self, _: Any) -> None:
        """End the search before its next episode. Runs without the lock, which the search holds."""
        self.session.stopped = True

    def _pick_scene(self, name: str) -> None:
        """Go to the first episode in a scene."""
        self.pick(next(k for k, episode in enumerate(self.session.episodes) if episode.scene_id == name))

    def go_to(self, step: int) -> None:
        """Show a step (clamped to the trajectory)."""
        self.step = min(max(step, 0), self.last_step)
        self.time.value = self.step
        self._show_step()

    # Drawing.

    def show_episode(self) -> None:
        """Draw the current episode: scene, navmesh and paths."""
        with self._lock:
            session = self.session
            start = np.array(session.episode.start_position, np.float32)
            self._show_scene(float(start[1]))
            for name in self.boxes:
                shown = name in self.shown
                points = session.track(name).trajectory.positions if shown else np.zeros((0, 3), np.float32)
                self._line(f"/paths/{scene_path(name)}", points, self.colours[name], 0.04)
            path = session.shortest_path if self.options["shortest path"].value else np.zeros((0, 3), np.float32)
            self._line("/paths/shortest", path, ORANGE, 0.03)
            self._show_goals(session.goals)
            self.episode.value, self.scene.value = session.number, session.episode.scene_id
            self.time.max = max(1, self.last_step)
            self.go_to(self.step)

    def _show_goals(self, goals: ShownGoals | None) -> None:
        """Draw the nearest goal, the objects of the category, and their view points."""
        scene = self.server.scene
        scene.remove_by_name("/goals")
        if goals is None:
            return
        scene.add_icosphere("/goals/nearest", 0.15, color=ORANGE, position=goals.nearest + UP * 0.15)
        for number, centre in enumerate(goals.objects):
            scene.add_icosphere(f"/goals/object_{number}", 0.1, color=ORANGE, position=centre)
        if len(goals.view_points) and self.options["view points"].value:
            scene.add_point_cloud(
                "/goals/view_points", goals.view_points + UP * 2 * LIFT, AMBER, point_size=POINT, point_shape="circle"
            )

    def _show_scene(self, floor: float) -> None:
        """Draw the mesh below the cut and the navmesh's islands, unless they are already shown."""
        scene, cut = self.session.scene, float(self.cut.value)
        wanted = scene.name, round(floor + cut, 2), bool(self.options["navmesh"].value)
        if wanted == self._scene_shown:
            return
        if wanted[:2] != self._scene_shown[:2]:
            self.server.scene.add_glb("/scene", to_glb(scene.mesh, floor + cut), cast_shadow=False)
        self.server.scene.remove_by_name("/navmesh")
        if wanted[2]:
            corners, island = navigable_triangles(scene.navmesh)
            below = corners[:, :, 1].min(axis=1) < floor + cut
            for rank, k in enumerate(np.argsort(-island_areas(scene.navmesh.data))):
                part = corners[below & (island == k)].reshape(-1, 3)
                if len(part):
                    self.server.scene.add_mesh_simple(
                        f"/navmesh/{k}", part + UP * LIFT,
                        np.arange(len(part)).reshape(-1, 3), color=ISLANDS[rank % len(ISLANDS)], opacity=0.4,
                        side="double", cast_shadow=False,
                    )  # fmt: skip
        if self._scene_shown[:1] != wanted[:1]:
            self._look_at(scene.navmesh.bounds, floor)
        self._scene_shown = wanted

    def _look_at(self, bounds: np.ndarray, floor: float) -> None:
        """Place the cameras above the storey, so that all of it is visible."""
        low, high = (np.array(end, np.float64) for end in bounds)
        low[1], high[1] = floor, floor + WALLS
        self._storey = low, high
        camera = self.server.initial_camera
        camera.position, camera.look_at = whole_view(low, high, FOV, ASPECT)
        for client in self.server.get_clients().values():
            self._fit(client)

    def _fit(self, client: Any) -> None:
        """Place a page's camera so that the storey fills what the panel leaves free."""
        camera = client.camera
        free = ABOVE_SHEET if camera.image_width < SHEET else 1.0
        view = whole_view(*self._storey, camera.fov, camera.image_width / camera.image_height, free)
        self._cameras[client.client_id] = view
        camera.position, camera.look_at = view

    def _welcome(self, client: Any) -> None:
        """Fit the camera of a new page, and again where its canvas changes before the user moves the camera."""
        camera, size = client.camera, [0, 0]

        def fit(_: Any) -> None:
            now = [camera.image_width, camera.image_height]
            view = self._cameras.get(client.client_id)
            if now != size and (view is None or np.allclose(camera.position, view[0], atol=1e-2)):
                size[:] = now
                self._fit(client)

        fit(None)
        camera.on_update(fit)

    def _line(self, name: str, points: np.ndarray, colour: tuple[int, int, int], thickness: float) -> None:
        """Draw a line through points f32 [K, 3]; fewer than two points remove it."""
        if len(points) < 2:
            self.server.scene.remove_by_name(name)
            return
        raised = points + UP * 2 * LIFT
        self.server.scene.add_line_segments(
            name, np.stack([raised[:-1], raised[1:]], axis=1), colour, thickness=thickness
        )

    def _show_step(self) -> None:
        """Draw agents, sensor images, map and status of the current step."""
        session, lines = self.session, []
        for name in session.agents:
            if name not in self.shown:
                self.server.scene.remove_by_name(f"/agents/{scene_path(name)}")
                continue
            track = session.track(name)
            k = min(self.step, len(track.trajectory.headings) - 1)
            images = session.seen(name, self.step)
            self._show_agent(name, track.trajectory, k, next(iter(images.values()), None))
            for sensor, image in images.items():
                self._show_view((name, sensor), image)
            ended = track.metrics and k == len(track.trajectory.headings) - 1
            how = outcome_of(session.metric_specs, track.metrics) if ended else ""
            lines.append(f"**{plain_markdown(name)}**: step {k + 1} of {len(track.trajectory.headings)} {how}")
        for view in [view for view in self.views if view[0] not in self.shown]:
            self.views.pop(view).remove()
        colours, with_map = {name: self.colours[name] for name in self.shown}, self.options["agent's map"].value
        self.map.image = np.asarray(session.plan(self.step, colours, with_map))
        episode = session.episode
        name, place = plain_markdown(str(episode.episode_id)), plain_markdown(str(episode.scene_id))
        head = f"episode {name} in {place}, {session.number + 1} of {len(session.episodes)}"
        head += f"  \ngoal: **{plain_markdown(session.category)}**" if session.category else ""
        self.status.content = "  \n".join([head, *lines])

    def _show_agent(self, name: str, trajectory: Trajectory, step: int, image: np.ndarray | None) -> None:
        """Draw the body as a cylinder, and the camera's frustum with its image."""
        body, camera = self.session.config.body, self.session.camera(name)
        place, colour = f"/agents/{scene_path(name)}", self.colours[name]
        position = trajectory.positions[step]
        middle = position + UP * camera.camera_height / 2
        self.server.scene.add_cylinder(
            f"{place}/body", radius=body.agent_radius, height=camera.camera_height, color=colour,
            wxyz=(math.sqrt(0.5), math.sqrt(0.5), 0.0, 0.0), position=middle,
        )  # fmt: skip
        fov = 2 * math.atan(math.tan(math.radians(camera.hfov_deg) / 2) * camera.height / camera.width)
        now = slice(step, step + 1)
        (place_of_camera,), *angles = camera_poses(
            camera, trajectory.positions[now], trajectory.headings[now], trajectory.tilts[now]
        )
        # viser's cameras look along +Z with +Y down: half a turn about X; then pitch about X, heading about Y.
        (cy, sy), (cx, sx) = ((math.cos(a / 2), math.sin(a / 2)) for (a,) in angles)
        turned = (-cy * sx, cy * cx, -sy * sx, -sy * cx)
        self.server.scene.add_camera_frustum(
            f"{place}/camera", fov, camera.width / camera.height, scale=0.35, color=colour, image=image, wxyz=turned,
            position=place_of_camera,
        )  # fmt: skip

    def _show_view(self, view: tuple[str, str], image: np.ndarray) -> None:
        """Show an image in the panel, enlarged by an integer factor."""
        large = image.repeat(max(1, 256 // image.shape[1]), axis=0).repeat(max(1, 256 // image.shape[1]), axis=1)
        if view in self.views:
            self.views[view].image = large
        else:
            with self.seen:
                self.views[view] = self.server.gui.add_image(large, label=": ".join(view))
