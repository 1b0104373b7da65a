"""Scene streaming: more scenes than fit in device memory, of which a fixed number are resident at a time."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch

from batchnav.errors import CheckpointError, ConfigError
from batchnav.runtime.checks import check_int
from batchnav.runtime.kernels.arrays import is_dense
from batchnav.scene.material_sampling import MaterialLibrary
from batchnav.scene.resident import ResidentSceneBank, SceneSize
from batchnav.scene.scene import Scene
from batchnav.sim.simulator import Simulator

log = logging.getLogger(__name__)
SPARE = 8
"""Slots per spare slot. A spare slot holds a scene that is being loaded, or one that its last agents still use."""

READERS = 4
"""Largest number of scenes that are read at a time."""


class SceneStream:
    """Streams scenes into the bank of one environment.

    A slot is the memory for one scene in the bank. Agents are divided into groups with one slot each; further slots
    are spare. Threads read the next scenes while the simulation runs, and one thread copies them into spare slots.
    `move`, called between rollouts, assigns the scene that was requested first to the next group in turn. Each agent of
    the group moves there when its episode ends. A slot that its last agent has left receives the next scene.

    The schedule depends on the seed alone and not on loading times: `move` waits for a scene that is due. Runs are
    therefore reproducible and resume exactly. Scenes are loaded in a random order, sampled again after each pass. A
    scene in which the task finds no episode is left out, with a warning.

    Args:
        names: names of the scenes.
        load: returns a scene by name; called in several other threads.
        capacity: size of a slot, large enough for each scene (`SceneSize.largest`).
        resident_scenes: number of slots, at least 2; one in eight of them, rounded up, is spare.
        seed: seed of the order of scenes.
    """

    @torch.inference_mode(False)
    def __init__(
        self,
        names: Sequence[str],
        load: Callable[[str], Scene],
        capacity: SceneSize,
        resident_scenes: int,
        seed: int = 0,
    ):
        resident_scenes = check_int("resident_scenes", resident_scenes, 0, 2**31 - 1)
        self.names, self.resident_scenes = tuple(names), resident_scenes
        self._load, self._capacity, self._seed = load, capacity, seed
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="scenes: files")
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="scenes")  # in order: a bank numbers categories
        self._loads: deque[tuple[int, Future]] = deque()  # slots that are being loaded, oldest first
        self._taken = 0  # scenes requested so far
        self._turn = 0  # the group that moves next
        self._left_out = set[str]()  # scenes without episodes
        self._in_slot = [-1] * resident_scenes  # index of the scene in each slot
        groups = resident_scenes - -(-resident_scenes // SPARE)
        self._slot_of = list(range(groups))  # by group

    def open(
        self,
        num_envs: int,
        device: torch.device,
        appearance: Collection[str],
        material_library: MaterialLibrary | None = None,
        goal_categories: tuple[str, ...] | None = None,
    ) -> ResidentSceneBank:
        """The bank, with a scene for each group.

        ConfigError for too many or too few resident scenes, and for goals without names of their categories.
        """
        if goal_categories == ():
            raise ConfigError("categories: found none with a SceneStream, expected the names of all categories")
        if not 2 <= self.resident_scenes < len(self.names) or len(self._slot_of) > num_envs:
            raise ConfigError(
                f"resident_scenes: found {self.resident_scenes} for {len(self.names)} scenes and {num_envs} agents, "
                f"expected at least 2, fewer than the number of scenes, and at most one active scene per environment"
            )
        self.bank = ResidentSceneBank(
            self._capacity, self.resident_scenes, device, appearance, material_library, goal_categories
        )
        for slot in range(self.resident_scenes):
            self._request(slot)
        for _ in self._slot_of:
            self._loads.popleft()[1].result()
        return self.bank

    def begin(self, sim: Simulator) -> None:
        """Assign each agent to the slot of its group; it moves there with its next episode.

        NoEpisodesError where no scene has episodes.
        """
        while lacking := sim.scenes_without_episodes(self._slot_of):
            self._leave_out(sim, lacking)
            for slot in lacking:
                self._request(slot)
            for _, load in [self._loads.pop() for _ in lacking]:
                load.result()
        self._send_all(sim)

    def _send_all(self, sim: Simulator) -> None:
        self._send(sim, range(len(self._slot_of)))

    def _leave_out(self, sim: Simulator, slots: Sequence[int]) -> None:
        """Warn of scenes without episodes in these slots, once. NoEpisodesError where no other scenes are left."""
        names = [self.names[self._in_slot[slot]] for slot in slots]
        if new := sorted({*names} - self._left_out):
            self._left_out.update(new)
            error = sim.no_episodes(new)
            if len(self._left_out) == len({*self.names}):
                raise error
            log.warning("left out of training: %s", error)

    def move(self, sim: Simulator) -> dict[str, float]:
        """Move at most one group to a new scene, and request scenes for free slots (synchronises with the device).

        Returns "scenes_loaded", 1 or 0, and "scene_stall", the seconds that were spent waiting for a scene.
        MeshError or NavMeshError where a scene cannot be loaded. NoEpisodesError where no scene has episodes.
        """
        sim.settle()
        # Counted before a group moves: its agents stay in their slot until their episodes end.
        occupied = torch.bincount(sim.bodies.scene, minlength=self.bank.num_scenes).tolist()
        busy = {*self._slot_of, *(slot for slot, _ in self._loads)}
        free = [slot for slot, agents in enumerate(occupied) if not agents and slot not in busy]
        loaded, stall = 0, 0.0
        if self._loads:
            slot, load = self._loads.popleft()
            start = time.perf_counter()
            load.result()
            loaded, stall = 1, time.perf_counter() - start
            if sim.scenes_without_episodes([slot]):
                self._leave_out(sim, [slot])
                self._send(sim, [0])  # whose first agent tried the scene
                free.append(slot)
            else:
                self._slot_of[self._turn] = slot
                self._send(sim, {0, self._turn})
                self._turn = (self._turn + 1) % len(self._slot_of)
        for slot in free:
            self._request(slot)
        return {"scenes_loaded": loaded, "scene_stall": stall}

    def _request(self, slot: int) -> None:
        """Request the next scene for a slot."""
        cycle, place = divmod(self._taken, len(self.names))
        self._in_slot[slot] = int(np.random.default_rng((self._seed, cycle)).permutation(len(self.names))[place])
        self._taken += 1
        self._submit(slot)

    def _submit(self, slot: int) -> None:
        name = self.names[self._in_slot[slot]]
        scene = self._readers.submit(self._load, name)
        self._loads.append((slot, self._loader.submit(lambda: self.bank.replace(slot, scene.result()))))

    def _send(self, sim: Simulator, groups: Collection[int]) -> None:
        """Assign the agents of these groups to their slots; each moves there with its next episode."""
        bounds = [g * sim.num_envs // len(self._slot_of) for g in range(len(self._slot_of) + 1)]
        sim.assign_scenes([range(bounds[g], bounds[g + 1]) for g in groups], [self._slot_of[g] for g in groups])

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Schedule and contents of the slots, as tensors on the CPU."""
        lists = {
            "progress": [self._taken, self._turn], "in_slot": self._in_slot, "slot_of": self._slot_of,
            "loads": [slot for slot, _ in self._loads],
        }  # fmt: skip
        return {f"stream_{name}": torch.tensor(value, dtype=torch.int64, device="cpu") for name, value in lists.items()}

    def load_state_dict(self, state: Mapping[str, torch.Tensor], sim: Simulator) -> None:
        """Continue from a result of `state_dict`, with its scenes. CheckpointError for a state of another stream."""
        found = self._checked(state)
        for _, load in self._loads:
            load.result()
        self._loads.clear()
        if sim.device.type == "cuda":
            torch.cuda.synchronize(sim.device)  # kernels under way read the scenes that are replaced below
        self._taken, self._turn = found["progress"]
        self._in_slot, self._slot_of = found["in_slot"], found["slot_of"]
        here = [slot for slot in range(self.resident_scenes) if slot not in found["loads"]]
        for slot in (*here, *found["loads"]):
            self._submit(slot)
        for _ in here:
            self._loads.popleft()[1].result()
        self._send_all(sim)

    def _checked(self, state: Mapping[str, torch.Tensor]) -> dict[str, list[int]]:
        """Lists of a state. CheckpointError for missing lists and for numbers out of range."""
        scenes, slots, groups = len(self.names), self.resident_scenes, len(self._slot_of)
        expected = {
            "progress": (2, 2**62), "in_slot": (slots, scenes), "slot_of": (groups, slots), "loads": (None, slots),
        }  # fmt: skip
        found: dict[str, list[int]] = {}
        for name, (size, below) in expected.items():
            value = state.get(f"stream_{name}")
            is_list = isinstance(value, torch.Tensor) and is_dense(value) and value.ndim == 1
            numbers = value.tolist() if value is not None and is_list else None
            fits = numbers is not None and size in (None, len(numbers))
            if (
                numbers is None
                or not fits
                or not all(isinstance(number, int) and 0 <= number < below for number in numbers)
            ):
                what = "nothing" if value is None else f"{value}"
                raise CheckpointError(
                    f"environment state 'stream_{name}': found {what[:80]}, expected "
                    f"{'some' if size is None else size} whole numbers from 0 to {below - 1}"
                )
            found[name] = numbers
        for name in ("slot_of", "loads"):
            if len(set(found[name])) != len(found[name]):
                raise CheckpointError(
                    f"environment state 'stream_{name}': found {found[name]}, expected each slot at most once"
                )
        if waiting := {*found["loads"]} & {int(slot) for slot in state["scene"].unique()}:
            raise CheckpointError(
                f"environment state 'scene': found slot {min(waiting)}, expected a slot with a loaded scene"
            )
        if found["progress"][1] >= groups:
            turn = found["progress"][1]
            raise CheckpointError(f"environment state 'stream_progress': found group {turn}, expected below {groups}")
        return found

    def close(self) -> None:
        """Stop the loading threads."""
        self._loader.shutdown(cancel_futures=True)
        self._readers.shutdown(cancel_futures=True)
