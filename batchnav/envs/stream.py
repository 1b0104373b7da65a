"""Scene streaming: more scenes than fit in device memory, of which a fixed number are resident at a time."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch

from batchnav.errors import ArgumentError, CheckpointError, ConfigError, NoEpisodesError
from batchnav.runtime.checks import check_int
from batchnav.runtime.kernels.arrays import is_dense
from batchnav.scene.appearance import appearance_fields, with_finish
from batchnav.scene.material_sampling import MaterialLibrary
from batchnav.scene.resident import ResidentSceneBank, SceneSize, places_of, rooms_of
from batchnav.scene.scene import Scene
from batchnav.sim.simulator import Simulator

log = logging.getLogger(__name__)
SPARE = 8
"""Slots per spare slot. A spare slot holds a scene that is being loaded, or one that its last agents still use."""

GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
"""Multiples of it, modulo 1, are spread evenly: so are the sizes of slots that follow each other."""

READERS = 4
"""Largest number of scenes that are read at a time."""


class SceneStream:
    """Streams scenes into the bank of one environment.

    A slot is the memory for one scene in the bank. Agents are divided into groups with one slot each; further slots
    are spare. Threads read the next scenes while the simulation runs, and one thread copies them into spare slots.
    `move`, called between rollouts, assigns the scene that was requested first to the next group in turn. Each agent of
    the group moves there when its episode ends. A slot that its last agent has left receives the next scene; slots
    receive scenes in the order in which their groups left them.

    The sizes of slots follow those of the scenes: of K slots for n scenes in the order of their size, slot k is for
    scenes k n / K to (k + 1) n / K, and has room for all that are smaller. Memory is allocated once, and every scene
    that is due fits. A slot receives the scene that was loaded least often among its own, in a random order for each
    number of loads: all scenes are loaded equally often, up to a few loads.

    The schedule depends on the seed alone and not on loading times: `move` waits for a scene that is due. Runs are
    therefore reproducible and resume exactly. A scene in which the task finds no episode is left out, with a warning.
    If all scenes of a slot are left out, it receives smaller ones; if those are too, it stays empty.

    Args:
        names: names of the scenes.
        load: returns a scene by name; called in several other threads.
        sizes: size of each scene (`SceneSize.of`); or one size for all slots, which fits every scene
            (`SceneSize.largest`): then each slot may receive any of them.
        resident_scenes: number of slots, at least 2; one in eight of them, rounded up, is spare.
        seed: seed of the order of scenes.
    """

    @torch.inference_mode(False)
    def __init__(
        self,
        names: Sequence[str],
        load: Callable[[str], Scene],
        sizes: SceneSize | Sequence[SceneSize],
        resident_scenes: int,
        seed: int = 0,
    ):
        resident_scenes = check_int("resident_scenes", resident_scenes, 0, 2**31 - 1)
        self.names, self.resident_scenes = tuple(names), resident_scenes
        self._load, self._sizes, self._seed = load, sizes, seed
        if not isinstance(sizes, SceneSize) and len(sizes) != len(self.names):
            raise ArgumentError(f"sizes: found {len(sizes)} for {len(self.names)} scenes, expected one for each")
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="scenes: files")
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="scenes")  # in order: a bank numbers categories
        self._loads: deque[tuple[int, Future]] = deque()  # slots that are being loaded, oldest first
        self._loaded = [0] * len(self.names)  # how often each scene was requested
        self._turn = 0  # the group that moves next
        self._leaving = deque[int]()  # slots that their groups left, which agents may still use, oldest first
        self._left_out = set[int]()  # scenes without episodes
        self._in_slot = [-1] * resident_scenes  # index of the scene in each slot
        self._by_size = list(range(len(self.names)))  # indices of the scenes, the largest first
        self._places = [(0, len(self.names))] * resident_scenes  # each slot's part of `_by_size`
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
        fields = appearance_fields(appearance)
        slots = self._fitted(fields if material_library is None else with_finish(fields))
        self.bank = ResidentSceneBank(slots, device, appearance, material_library, goal_categories)
        for slot in range(self.resident_scenes):
            self._request(slot)
        for _ in self._slot_of:
            self._loads.popleft()[1].result()
        return self.bank

    def _fitted(self, fields: frozenset[str]) -> list[SceneSize]:
        """Size of each slot in a bank with these fields of `Appearance`; chooses the scenes that it may receive."""
        if isinstance(self._sizes, SceneSize):
            return [self._sizes] * self.resident_scenes
        self._by_size, rooms = rooms_of([size.with_appearance(fields) for size in self._sizes])
        places = places_of(len(self.names), self.resident_scenes)
        spread = np.arange(self.resident_scenes) * GOLDEN % 1.0
        self._places = [places[k] for k in spread.argsort().argsort()]
        return [rooms[first] for first, _ in self._places]

    def begin(self, sim: Simulator) -> None:
        """Assign each agent to the slot of its group; it moves there with its next episode.

        NoEpisodesError where no scene has episodes.
        """
        while lacking := sim.scenes_without_episodes(self._slot_of):
            self._leave_out(sim, lacking)
            for slot in lacking:
                if self._request(slot):
                    _, load = self._loads.pop()
                elif self._loads:
                    self._slot_of[self._slot_of.index(slot)], load = self._loads.popleft()
                else:
                    raise self._no_episodes(sim)
                load.result()
        self._send_all(sim)

    def _send_all(self, sim: Simulator) -> None:
        self._send(sim, range(len(self._slot_of)))

    def _leave_out(self, sim: Simulator, slots: Sequence[int]) -> None:
        """Warn of scenes without episodes in these slots, once. NoEpisodesError where no other scenes are left."""
        known = {self.names[scene] for scene in self._left_out}
        self._left_out.update(self._in_slot[slot] for slot in slots)
        if new := sorted({self.names[self._in_slot[slot]] for slot in slots} - known):
            log.warning("left out of training: %s", sim.no_episodes(new))
        if len(self._left_out) == len(self.names):
            raise self._no_episodes(sim)

    def _no_episodes(self, sim: Simulator) -> NoEpisodesError:
        return sim.no_episodes(sorted({self.names[scene] for scene in self._left_out}))

    def move(self, sim: Simulator) -> dict[str, float]:
        """Move at most one group to a new scene, and request scenes for free slots (synchronises with the device).

        Returns "scenes_loaded", 1 or 0, and "scene_stall", the seconds that were spent waiting for a scene.
        MeshError or NavMeshError where a scene cannot be loaded. NoEpisodesError where no scene that fits a spare slot
        has episodes.
        """
        sim.settle()
        # Counted before a group moves: its agents stay in their slot until their episodes end.
        occupied = torch.bincount(sim.bodies.scene, minlength=self.bank.num_scenes).tolist()
        free, loaded, stall = list[int](), 0, 0.0
        while self._leaving and not occupied[self._leaving[0]]:
            free.append(self._leaving.popleft())
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
                self._leaving.append(self._slot_of[self._turn])
                self._slot_of[self._turn] = slot
                self._send(sim, {0, self._turn})
                self._turn = (self._turn + 1) % len(self._slot_of)
        for slot in free:
            self._request(slot)
        if not (self._loads or self._leaving):
            raise self._no_episodes(sim)
        return {"scenes_loaded": loaded, "scene_stall": stall}

    def _request(self, slot: int) -> bool:
        """Request the next scene for a slot. False where all that fit are left out: then the slot is not used."""
        scene = self._next(slot)
        if scene is not None:
            self._in_slot[slot] = scene
            self._loaded[scene] += 1
            self._submit(slot)
        return scene is not None

    def _next(self, slot: int) -> int | None:
        """Index of the scene that is due in a slot; None where all that fit are left out."""
        first, end = self._places[slot]
        for places in (slice(first, end), slice(end, None)):
            if scenes := [scene for scene in self._by_size[places] if scene not in self._left_out]:
                break
        else:
            return None
        fewest = min(self._loaded[scene] for scene in scenes)
        rank = np.random.default_rng((self._seed, fewest)).permutation(len(self.names)).argsort()
        due, here = [scene for scene in scenes if self._loaded[scene] == fewest], {*self._in_slot}
        return min(due, key=lambda scene: (scene in here, rank[scene]))

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
            "loaded": self._loaded, "turn": [self._turn], "in_slot": self._in_slot, "slot_of": self._slot_of,
            "loads": [slot for slot, _ in self._loads], "leaving": self._leaving, "left_out": sorted(self._left_out),
        }  # fmt: skip
        return {
            f"stream_{name}": torch.tensor(list(value), dtype=torch.int64, device="cpu")
            for name, value in lists.items()
        }

    def load_state_dict(self, state: Mapping[str, torch.Tensor], sim: Simulator) -> None:
        """Continue from a result of `state_dict`, with its scenes. CheckpointError for a state of another stream."""
        found = self._checked(state)
        for _, load in self._loads:
            load.result()
        self._loads.clear()
        if sim.device.type == "cuda":
            torch.cuda.synchronize(sim.device)  # kernels under way read the scenes that are replaced below
        self._loaded, (self._turn,) = found["loaded"], found["turn"]
        self._in_slot, self._slot_of = found["in_slot"], found["slot_of"]
        self._leaving, self._left_out = deque(found["leaving"]), set(found["left_out"])
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
            "loaded": (scenes, 2**62), "turn": (1, groups), "in_slot": (slots, scenes), "slot_of": (groups, slots),
            "loads": (None, slots), "leaving": (None, slots), "left_out": (None, scenes),
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
        used = [*found["slot_of"], *found["loads"], *found["leaving"]]
        if len(set(used)) != len(used):
            raise CheckpointError(
                f"environment state 'stream_slot_of', 'stream_loads', 'stream_leaving': found {used}, "
                "expected each slot at most once"
            )
        for slot, scene in enumerate(found["in_slot"]):
            if scene not in self._by_size[self._places[slot][0] :]:
                raise CheckpointError(
                    f"environment state 'stream_in_slot': found scene {self.names[scene]!r} in slot {slot}, "
                    "expected one that fits"
                )
        if waiting := {*found["loads"]} & {int(slot) for slot in state["scene"].unique()}:
            raise CheckpointError(
                f"environment state 'scene': found slot {min(waiting)}, expected a slot with a loaded scene"
            )
        return found

    def close(self) -> None:
        """Stop the loading threads."""
        self._loader.shutdown(cancel_futures=True)
        self._readers.shutdown(cancel_futures=True)
