"""Losses of small seeded runs, as recorded before the memory, the imitation loss and the learner were restructured.

On the machine that recorded them they are equal to the bit; the tolerance is for other processors' sums.
"""

import pytest
import torch
from toys import Bandit, RememberBit

from batchnav.config import from_dict
from batchnav.learning import PPO, ImitationConfig, PPOConfig
from batchnav.policy import ActorCritic
from batchnav.policy.config import PolicyConfig

ROUNDING = 1e-4
SMALL = {"se_resnet9": {"base_width": 4}, "visual_size": 8, "hidden_size": 16, "embedding_size": 6}


def next_one(obs, start):
    return (obs["observation"].argmax(-1) + 1) % 3


@pytest.mark.parametrize(
    ("env", "policy", "optimizer", "epochs", "seed", "imitation", "losses", "norms"),
    [
        (
            RememberBit, {**SMALL, "lstm": {"layers": 1}}, "adamw", 2, 5, None,
            [-0.16569793224334717, -0.2395785003900528, -0.23596039414405823],
            [0.1281248778104782, 0.17136237025260925, 0.16627037525177002],
        ),
        (
            RememberBit, {**SMALL, "memory": "none"}, "lamb", 2, 5, None,
            [-0.15842553973197937, -0.23231667280197144, -0.22871294617652893],
            [0.26723065972328186, 0.3453614115715027, 0.32219451665878296],
        ),
        (
            Bandit, {"memory": "none", "hidden_size": 8}, "adamw", 1, 0, ImitationConfig(coef=0.5),
            [-0.25189682841300964, -0.29877907037734985, -0.33419519662857056],
            [0.30414944887161255, 0.35538071393966675, 0.39088544249534607],
        ),
    ],
    ids=["lstm", "feed_forward", "imitation"],
)  # fmt: skip
def test_losses_of_a_seeded_run(env, policy, optimizer, epochs, seed, imitation, losses, norms):
    torch.manual_seed(3)
    env = env(16)
    network = ActorCritic(env.single_observation_space, env.single_action_space, from_dict(PolicyConfig, policy))
    ppo = PPOConfig(num_envs=16, rollout_steps=8, minibatches=2, optimizer=optimizer, epochs=epochs)
    learner = PPO(network, env, ppo, seed, expert=imitation and next_one, imitation=imitation)
    rows = [learner.update(0.01 + i / 3 / 2).read() for i in range(3)]
    assert [row["loss/loss"] for row in rows] == pytest.approx(losses, rel=ROUNDING)
    assert [row["loss/grad_norm"] for row in rows] == pytest.approx(norms, rel=ROUNDING)
