"""PointGoal navigation in more scenes than fit in the device's memory."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch

from batchnav.envs.pointnav import PointNavEnv
from batchnav.errors import CheckpointError, ConfigError
from batchnav.scene.scene import Scene
from batchnav.scene.slots import Capacity, SlotBank

SPARE = 8
"""One slot in so many is spare: scenes are loaded into it, or its last agents are still to leave."""


class StreamedPointNavEnv(PointNavEnv):
    """A `PointNavEnv` whose scenes take turns in a fixed number of slots.

    Agents are divided into groups, each in one slot, and some slots are spare. A thread loads the next scene into a
    spare slot while the simulation runs. `move_scenes`, to be called between two rollouts, hands the scene that was
    asked for first to the next group in turn: each of its agents goes there at its next episode's end. The slot that
    the last agent has left takes the next scene.

    What happens at which call depends on the run alone, never on how long a scene takes to load: a call waits for a
    scene that is due and not there yet. So a seed gives the same run each time, and a resumed run goes on as it was.
    Scenes come in an order that is drawn anew, from the seed, once all have had their turn.

    Args:
        names: the scenes, as `load` knows them.
        load: gives a scene by name; called in a thread of its own.
        capacity: room for any of the scenes (`Capacity.for_all`).
        slots: scenes in memory at a time, at least 2; an eighth of them, and one at least, are spare.
        num_envs, device, seed, options: as of `PointNavEnv`.

    ConfigError for slots that do not fit the scenes and agents.
    """

    def __init__(
        self,
        names: Sequence[str],
        load: Callable[[str], Scene],
        capacity: Capacity,
        slots: int,
        num_envs: int,
        device: str | torch.device = "auto",
        seed: int = 0,
        **options,
    ):
        groups = slots - -(-slots // SPARE)
        if not 2 <= slots < len(names) or groups > num_envs:
            raise ConfigError(
                f"slots: found {slots} for {len(names)} scenes and {num_envs} agents, expected 2 or more, "
                f"fewer than the scenes, and no more than one slot in use for an agent"
            )
        self.scene_names, self._load, self._order_seed = tuple(names), load, seed
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="scenes")
        self._loads: deque[tuple[int, Future]] = deque()  # slots that are being filled, in order
        super().__init__(SlotBank(capacity, slots, device), num_envs, seed=seed, **options)
        self._taken = 0  # scenes of the order, so far
        self._turn = 0  # the group that moves next
        self._in_slot = [-1] * slots  # which scene
        self._slot_of = list(range(groups))  # by group
        for slot in range(slots):
            self._request(slot)
        for _ in range(groups):
            self._loads.popleft()[1].result()
        self._send(range(groups))

    def move_scenes(self) -> dict[str, float]:
        """Let at most one group move to a new scene, and have the slots filled that are free (waits for the device).

        Returns "scenes_loaded", 1 or 0, and "scene_stall", the seconds that were spent waiting for a scene.
        EpisodeError where a scene has no episode to offer; MeshError or NavMeshError where one cannot be loaded.
        """
        self.sim.check_episodes()
        # Before any group moves: whom this call sends away is still on the way.
        occupied = torch.bincount(self.sim.state.scene, minlength=self.bank.num_scenes).tolist()
        busy = {*self._slot_of, *(slot for slot, _ in self._loads)}
        free = [slot for slot, agents in enumerate(occupied) if not agents and slot not in busy]
        loaded, stall = 0, 0.0
        if self._loads:
            slot, load = self._loads.popleft()
            start = time.perf_counter()
            load.result()
            loaded, stall = 1, time.perf_counter() - start
            self._slot_of[self._turn] = slot
            self._send([self._turn])
            self._turn = (self._turn + 1) % len(self._slot_of)
        for slot in free:
            self._request(slot)
        return {"scenes_loaded": loaded, "scene_stall": stall}

    def _request(self, slot: int) -> None:
        """Have the order's next scene loaded into a slot."""
        cycle, place = divmod(self._taken, len(self.scene_names))
        self._in_slot[slot] = int(
            np.random.default_rng((self._order_seed, cycle)).permutation(len(self.scene_names))[place]
        )
        self._taken += 1
        self._submit(slot)

    def _submit(self, slot: int) -> None:
        name = self.scene_names[self._in_slot[slot]]
        self._loads.append((slot, self._loader.submit(lambda: self.bank.put(slot, self._load(name)))))

    def _send(self, groups: Sequence[int]) -> None:
        """Let the agents of groups draw their next episodes from their slots' scenes."""
        bounds = [g * self.num_envs // len(self._slot_of) for g in range(len(self._slot_of) + 1)]
        self.sim.send([range(bounds[g], bounds[g + 1]) for g in groups], [self._slot_of[g] for g in groups])

    def state_dict(self) -> dict[str, torch.Tensor]:
        """All that the next step depends on, the scenes' places among it, as tensors on the CPU."""
        lists = {
            "progress": [self._taken, self._turn], "in_slot": self._in_slot, "slot_of": self._slot_of,
            "loads": [slot for slot, _ in self._loads],
        }  # fmt: skip
        return super().state_dict() | {f"stream_{name}": torch.tensor(value) for name, value in lists.items()}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Continue from `state_dict`'s result, with its scenes. CheckpointError where it is not of this shape."""
        for name, size in (("in_slot", len(self._in_slot)), ("slot_of", len(self._slot_of))):
            found = state.get(f"stream_{name}")
            if found is None or len(found) != size:
                what = "nothing" if found is None else f"{len(found)} entries"
                raise CheckpointError(f"environment state 'stream_{name}': found {what}, expected {size} entries")
        for _, load in self._loads:
            load.result()
        self._loads.clear()
        if self.device.type == "cuda":
            torch.cuda.synchronize()  # nothing may read the scenes that are replaced now
        self._taken, self._turn = state["stream_progress"].tolist()
        self._in_slot, self._slot_of = state["stream_in_slot"].tolist(), state["stream_slot_of"].tolist()
        pending = [int(slot) for slot in state["stream_loads"]]
        here = [slot for slot in range(len(self._in_slot)) if slot not in pending]
        for slot in (*here, *pending):
            self._submit(slot)
        for _ in here:
            self._loads.popleft()[1].result()
        self._send(range(len(self._slot_of)))
        super().load_state_dict(state)

    def close_extras(self, **kwargs) -> None:
        """End the thread that loads scenes."""
        self._loader.shutdown(cancel_futures=True)
