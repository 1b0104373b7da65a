"""Memory prediction of a run, compared with the run's tensors."""

import dataclasses

import pytest
import torch
from networks import policy_config

from batchnav.data.config import ScenesConfig
from batchnav.data.scenes.load import load_scene, map_scenes
from batchnav.diagnostics.doctor import predict_memory
from batchnav.envs.config import NavConfig
from batchnav.envs.nav import NavEnv, PointNavEnv
from batchnav.envs.observations import needed_appearance
from batchnav.envs.stream import SceneStream
from batchnav.learning import PPO, PPOConfig
from batchnav.policy import ActorCritic
from batchnav.policy.encoder import ENCODERS, SimpleCNN
from batchnav.policy.memory import state_tensors
from batchnav.policy.pretrained import TimmEncoder
from batchnav.policy.transformer import CausalTransformer
from batchnav.procedural import make_material_library
from batchnav.runtime.device import resolve_device
from batchnav.scene.bank import SceneBank
from batchnav.scene.resident import SceneSize
from batchnav.sensors.camera import MAIN, CameraConfig
from batchnav.tasks import TASKS
from batchnav.training.config import TrainingConfig

RUN = TrainingConfig(
    env=NavConfig(camera=CameraConfig(height=32, width=32)),
    scenes=ScenesConfig(houses=3, first_house=3),
    policy=policy_config(base_width=8, visual_size=32, hidden_size=32),
    ppo=PPOConfig(num_envs=32, rollout_steps=16),
)


def of_env(**changes):
    """RUN with changed settings of its environment."""
    return dataclasses.replace(RUN, env=dataclasses.replace(RUN.env, **changes))


def tensors_of(part):
    """Tensors of an object, one for each storage."""
    values = part if isinstance(part, tuple) else vars(part).values()
    found = [value for value in values if isinstance(value, torch.Tensor)]
    found += [v for value in values if isinstance(value, dict) for v in value.values() if isinstance(v, torch.Tensor)]
    return {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in found}


def learner_of(run, env):
    policy = ActorCritic(env.single_observation_space, env.single_action_space, run.policy)
    return PPO(policy, env, run.ppo)


@pytest.mark.parametrize("task", ["flee", "explore"])
def test_another_tasks_tensors_are_counted(task):
    run = of_env(task=TASKS[task].Config(max_steps=50))
    found = predict_memory(run, map_scenes(SceneSize.of, run.scenes.names), torch.device("cpu"))
    scenes = [load_scene(name) for name in run.scenes.names]
    env = NavEnv(scenes, 32, "cpu", task=task, config=run.env)
    sim, mine = env.sim, env.task
    parts = (
        sim.bodies,
        sim.queue,
        sim.sampling,
        mine.state,
        mine.transition,
        mine.next_episode,
        mine.metric_tensors,
        tuple(mine.own),
    )
    kept = {key: size for part in parts for key, size in tensors_of(part).items()}
    kept |= tensors_of(tuple(mine.metrics.values())) | tensors_of((mine.reward,))
    assert found["simulator"] == sum(kept.values()) + env.bank.search_scratch(sim.chunks).data.nbytes


@pytest.mark.parametrize(
    ("resident", "sensors", "randomize"),
    [
        (0, ("depth",), False), (2, ("depth",), False), (0, ("rgb",), False), (2, ("depth", "rgb"), False),
        (2, ("rgb",), True),
    ],
)  # fmt: skip
def test_every_tensor_that_stays_is_counted(resident, sensors, randomize):
    policy = dataclasses.replace(RUN.policy, normalized=("rgb",))
    scenes = dataclasses.replace(RUN.scenes, resident_scenes=resident, randomize_materials=randomize)
    run = dataclasses.replace(of_env(sensors=sensors), scenes=scenes, policy=policy)
    capacities, cpu = map_scenes(SceneSize.of, run.scenes.names), torch.device("cpu")
    if resident:
        stream = SceneStream(run.scenes.names, load_scene, capacities, resident)
        material_library = make_material_library() if randomize else None
        env = PointNavEnv(stream, 32, "cpu", config=run.env, material_library=material_library)
    else:
        env = PointNavEnv([load_scene(name) for name in run.scenes.names], 32, "cpu", config=run.env)
    learner, found = learner_of(run, env), predict_memory(run, capacities, cpu)
    learner.update(0.0)
    sim, bank = env.sim, env.bank
    # Textures that scenes share count for each scene, unless the scenes are streamed.
    fields = needed_appearance(run.env)
    banks = [bank] if resident else [SceneBank.pack([scene], "cpu", fields) for scene in bank.scenes]
    parts = (part for one in banks for part in (one.bvh, one.navmesh, one.appearance or ()))
    scenes = sum(sum(tensors_of(part).values()) for part in parts)
    assert found["scenes"] == pytest.approx(scenes, rel=1e-4)  # a row of links for each scene
    parts = (
        sim.bodies,
        sim.queue,
        sim.sampling,
        env.task.state,
        env.task.transition,
        env.task.next_episode,
        env.task.metric_tensors,
    )
    simulator = sum(sum(tensors_of(part).values()) for part in parts)
    simulator += env.task.reward.nbytes + env.task.observations["pointgoal"].nbytes
    assert found["simulator"] == simulator + bank.search_scratch(sim.chunks).data.nbytes
    seen = sum(tensor.nbytes for tensor in env._own.values())
    metres = env.frame.renderers[MAIN, 1].depth.nbytes
    assert found["images"] == metres * (2 if "rgb" in sensors else 1) + seen  # plus triangles
    assert found["rollout"] == sum(tensors_of(learner.rollout).values()) + learner.state.nbytes
    moments = sum(
        state[name].nbytes for state in learner.optimizer.state.values() for name in ("exp_avg", "exp_avg_sq")
    )
    gradients = sum(2 * parameter.nbytes for parameter in learner.policy.parameters())
    assert found["weights and optimiser"] == moments + gradients


@pytest.mark.parametrize("frozen", [True, False])
def test_features_of_a_pretrained_encoder_are_counted(frozen):
    policy = dataclasses.replace(
        RUN.policy, encoder="timm:test_resnet", timm=TimmEncoder.Config("", frozen, goals=("rgb",))
    )  # the weights are not read
    run = dataclasses.replace(of_env(sensors=("rgb", "depth")), policy=policy)
    found = predict_memory(run, map_scenes(SceneSize.of, ["house:3"]), torch.device("cpu"))
    env = PointNavEnv([load_scene("house:3")], 32, "cpu", config=run.env)
    own = dataclasses.replace(policy, timm=TimmEncoder.Config("random", frozen, goals=("rgb",)))
    learner = PPO(ActorCritic(env.single_observation_space, env.single_action_space, own), env, run.ppo)
    assert found["rollout"] == sum(tensors_of(learner.rollout).values()) + learner.state.nbytes
    sizes = [(parameter.nbytes, parameter.requires_grad) for parameter in learner.policy.parameters()]
    assert found["weights and optimiser"] == sum(4 * size if learns else size for size, learns in sizes)
    kept = tensors_of(next(iter(learner._features._kept.values()))) if frozen else {}
    assert ("encoding" in found) == frozen and found.get("encoding", 0) >= sum(kept.values())


def test_what_every_camera_sees_is_counted():
    """A camera with sensors that read triangles has a triangle image; a camera without sensors has no image."""
    cameras = {"left": CameraConfig(height=16, width=24), "back": CameraConfig(height=32, width=32)}
    run = of_env(cameras=cameras, sensors=("depth", "normals", "left_depth"))
    env = PointNavEnv([load_scene("house:3")], 32, "cpu", config=run.env)
    env.reset()
    seen = sum(tensor.nbytes for tensor in env._own.values())
    drawn = sum(tensors_of(renderer)[renderer.depth.data_ptr()] for renderer in env.frame.renderers.values())
    main = env.frame.renderers[MAIN, 1]
    found = predict_memory(run, map_scenes(SceneSize.of, ["house:3"]), torch.device("cpu"))
    assert found["images"] == drawn + main._triangle.nbytes + seen


def test_learning_grows_with_the_frames_of_a_minibatch():
    capacities, cpu = map_scenes(SceneSize.of, RUN.scenes.names[:1]), torch.device("cpu")
    one = predict_memory(RUN, capacities, cpu)["learning"]
    half = dataclasses.replace(RUN, ppo=dataclasses.replace(RUN.ppo, minibatches=4))
    assert predict_memory(half, capacities, cpu)["learning"] == pytest.approx(one / 2, rel=1e-6)


def test_a_states_nested_tensors_are_counted():
    """The keys and values of a transformer: those of the next step, and of the rollout's first step."""
    run = dataclasses.replace(
        RUN,
        policy=dataclasses.replace(RUN.policy, memory="transformer", transformer=CausalTransformer.Config(window=24)),
    )
    env = PointNavEnv([load_scene("house:3")], 32, "cpu", config=run.env)
    learner = learner_of(run, env)
    found = predict_memory(run, map_scenes(SceneSize.of, ["house:3"]), torch.device("cpu"))
    states = [*state_tensors(learner.state), *state_tensors(learner.rollout.state0)]
    assert found["rollout"] == sum(tensors_of(learner.rollout).values()) + sum(tensor.nbytes for tensor in states)


def test_learning_with_a_transformer_counts_its_window_once_a_sequence():
    """Longer sequences share the stored keys and values; they count by sequence, not by step."""
    policy = dataclasses.replace(RUN.policy, memory="transformer", transformer=CausalTransformer.Config(window=256))
    capacities, cpu = map_scenes(SceneSize.of, RUN.scenes.names[:1]), torch.device("cpu")
    short, long = (
        predict_memory(
            dataclasses.replace(RUN, policy=policy, ppo=dataclasses.replace(RUN.ppo, num_envs=n, rollout_steps=steps)),
            capacities,
            cpu,
        )["learning"]
        for n, steps in ((64, 4), (8, 32))  # equal numbers of frames
    )
    assert long < 0.5 * short


class InParts(SimpleCNN):
    """Encoder that keeps more tensors for more images."""

    section = "simple_cnn"

    def forward(self, image):
        return torch.cat([super(InParts, self).forward(part) for part in image.split(50)])


def test_an_encoder_that_keeps_more_tensors_of_more_frames(monkeypatch):
    monkeypatch.setitem(ENCODERS, "in_parts", InParts)
    capacities, cpu = map_scenes(SceneSize.of, RUN.scenes.names[:1]), torch.device("cpu")
    found = [
        predict_memory(dataclasses.replace(RUN, policy=dataclasses.replace(RUN.policy, encoder=name)), capacities, cpu)
        for name in ("simple_cnn", "in_parts")
    ]
    whole, parts = (prediction["learning"] for prediction in found)
    assert 0.5 * whole < parts < 1.5 * whole


@pytest.mark.cuda
@pytest.mark.parametrize("graphs", [False, True])
def test_the_prediction_holds_within_fifteen_percent(graphs):
    run = TrainingConfig(scenes=ScenesConfig(houses=4), ppo=PPOConfig(num_envs=1024, minibatches=2))
    device, names = resolve_device("cuda"), run.scenes.names
    predicted = predict_memory(run, map_scenes(SceneSize.of, names), device)
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    env = PointNavEnv([load_scene(name) for name in names], 1024, device, config=run.env)
    policy = ActorCritic(env.single_observation_space, env.single_action_space, run.policy)
    learner = PPO(policy, env, run.ppo, graphs=graphs)
    for _ in range(4):
        learner.update(0.0).read()
    measured = torch.cuda.max_memory_allocated() - before
    assert sum(predicted.values()) == pytest.approx(measured, rel=0.15), f"measured {measured:,}, predicted {predicted}"
