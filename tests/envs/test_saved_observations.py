"""States to resume from leave out observations that the environment computes again; runs continue bit for bit."""

import io

import pytest
import torch
from networks import policy_config

from batchnav.data.scenes.load import load_all
from batchnav.envs.nav import NavEnv
from batchnav.envs.stream import SceneStream
from batchnav.envs.wrapper import Wrapper
from batchnav.learning import PPO, PPOConfig
from batchnav.policy import ActorCritic
from batchnav.procedural import make_material_library
from batchnav.scene.material_sampling import PERIOD
from batchnav.scene.resident import SceneSize
from batchnav.sim.bodies import STOP

N, STEPS = 4, 4
SMALL = {"height": 16, "width": 16}
POLICY = policy_config(base_width=4, visual_size=8, hidden_size=8, layers=1, embedding_size=4)
IMAGENAV = {"task": "imagenav", "sensors": ("rgb", "depth", "normals"), "rgb_noise": "gaussian", "max_steps": 9}
MAPPED = {"sensors": ("depth", "waypoint"), "max_steps": 9, "depth_noise": 1.0}
DISTURBED = {
    "sensors": ("depth", "waypoint"), "max_steps": 9, "drift": (0.0, 0.1), "turn_drift_deg_per_m": (0.0, 1.0),
    "latency": (0, 2), "localisation": True,
}  # fmt: skip


@pytest.fixture(scope="module")
def library():
    return make_material_library()


@pytest.fixture(scope="module")
def houses():
    return load_all(("house:7", "house:17"))


class Darker(Wrapper):
    """Halves the brightness of every image."""

    def step(self, actions):
        observation, *rest = self.env.step(actions)
        return {**observation, "rgb": observation["rgb"] // 2}, *rest


def make(scenes, seed=0, device="cpu", **options):
    return NavEnv(scenes, N, device, seed, **SMALL, **options)


def learner_in(env, seed=0):
    """A learner whose stop action is rare."""
    torch.manual_seed(seed)
    policy = ActorCritic(env.single_observation_space, env.single_action_space, POLICY)
    with torch.no_grad():
        policy.actor.bias[STOP] = -3.0
    return PPO(policy, env, PPOConfig(num_envs=N, rollout_steps=STEPS, optimizer="adamw"), seed)


def saved(learner):
    """The state as a file keeps it."""
    file = io.BytesIO()
    torch.save(learner.state_dict(), file)
    return torch.load(io.BytesIO(file.getvalue()), weights_only=True)


def update(learner, count):
    for _ in range(count):
        learner.update(0.0)


def continues(make_env, updates):
    """Train, save, continue in another environment; assert that nothing differs. Returns the state."""
    whole, resumed = learner_in(make_env(0)), learner_in(make_env(5), seed=5)
    update(whole, updates)
    state = saved(whole)
    update(resumed, 2)
    resumed.load_state_dict(state)
    for name, rows in whole.rollout.obs.items():
        assert torch.equal(resumed.rollout.obs[name][-1], rows[-1]), name
    for learner in (whole, resumed):
        update(learner, 3)
    torch.testing.assert_close(saved(resumed), saved(whole), rtol=0.0, atol=0.0)
    for name, rows in whole.rollout.obs.items():
        assert torch.equal(resumed.rollout.obs[name], rows), name
    return state


def images_in(state):
    """Names of the tensors that hold as many numbers as N images, or more."""
    tensors = {**state["own"]["obs"], **state["own"]["env"]}
    return {name for name, value in tensors.items() if value.numel() >= N * SMALL["height"] * SMALL["width"]}


@pytest.mark.parametrize(("options", "stored"), [(IMAGENAV, set()), (MAPPED, {"waypoint"})])
def test_images_are_not_saved(houses, options, stored):
    state = continues(lambda seed: make(houses, seed, **options), 4)
    assert set(state["own"]["obs"]) == stored and not {name for name in images_in(state) if not name.startswith("map_")}


def test_runs_with_drift_and_latency_continue(houses):
    state = continues(lambda seed: make(houses, seed, **DISTURBED), 4)
    assert set(state["own"]["obs"]) == {"waypoint"} and "late_depth" in state["own"]["env"]


@pytest.mark.parametrize("streamed", [False, True])
def test_images_of_goals_with_former_materials_are_rendered_again(houses, library, streamed):
    """Episodes outlast changes of the materials. Goal images continue to show those of the episode's start."""

    def make_env(seed):
        options = {**IMAGENAV, "material_library": library, "max_steps": 2 * PERIOD * STEPS}
        if not streamed:
            return make(houses, seed, **options)
        scenes = {scene.name: scene for scene in (*houses, houses[0]._replace(name="again"))}
        capacity = SceneSize.largest(map(SceneSize.of, houses))
        return make(SceneStream(list(scenes), scenes.__getitem__, capacity, 2, seed), seed, **options)

    state = continues(make_env, PERIOD + 4)
    assert not state["own"]["obs"] and not images_in(state)
    randomisations = state["own"]["env"]["imagegoal_materials"]
    assert len(randomisations.unique()) > 1
    env = make_env(1)
    env.load_state_dict(state["own"]["env"])
    former = env.observe()["imagegoal"].clone()
    env.load_state_dict({**state["own"]["env"], "imagegoal_materials": torch.full_like(randomisations, PERIOD + 4)})
    assert not torch.equal(env.observe()["imagegoal"], former)


def test_an_image_that_a_wrapper_changes_is_saved(houses):
    state = continues(lambda seed: Darker(make(houses, seed, **IMAGENAV)), 4)
    assert set(state["own"]["obs"]) == {"rgb"}


def test_a_state_that_holds_all_observations_is_loaded_as_it_is(houses):
    learner, resumed = (learner_in(make(houses, **IMAGENAV)) for _ in range(2))
    update(learner, 2)
    state = saved(learner)
    state["own"]["obs"] = {name: torch.full_like(rows[-1], 3) for name, rows in learner.rollout.obs.items()}
    resumed.load_state_dict(state)
    assert all((rows[-1] == 3).all() for rows in resumed.rollout.obs.values())


@pytest.mark.parametrize("options", [MAPPED, DISTURBED])
def test_observing_again_changes_nothing(houses, options):
    """Two environments act alike, though one of them observes again before every step."""
    env, plain = (make(houses, **options) for _ in range(2))
    env.reset()
    plain.reset()
    moves = torch.randint(1, 4, (20, N), generator=torch.Generator().manual_seed(0))
    for move in moves:
        found, expected = env.step(move)[0], plain.step(move)[0]
        assert all(torch.equal(found[name], value) for name, value in expected.items())
        again = env.observe_again()
        assert set(again) == {"depth", "pointgoal"}
        assert all(torch.equal(value, expected[name]) for name, value in again.items())


@pytest.mark.cuda
def test_cuda_renders_images_again(houses, library):
    options = {**IMAGENAV, "material_library": library, "max_steps": 2 * PERIOD}
    env, other = (make(houses, seed, "cuda", **options) for seed in (0, 5))
    stored = {spec.name: torch.zeros(N, *spec.shape, dtype=env.storage[spec.name], device="cuda") for spec in env.specs}
    env.observe_into(stored)
    env.reset()
    other.reset()
    moves = torch.randint(1, 4, (PERIOD + 4, N), generator=torch.Generator().manual_seed(0)).cuda()
    for move in moves:
        env.between_rollouts()
        env.step(move)
    other.load_state_dict(env.state_dict())
    again = other.observe_again()
    assert set(again) == {"rgb", "depth", "normals", "imagegoal"}
    for name, value in again.items():
        torch.testing.assert_close(value, stored[name], rtol=0.0, atol=0.0, msg=name)
