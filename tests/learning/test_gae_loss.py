"""Advantages and the loss, against tables worked by hand."""

import doctest
import sys

import numpy as np
import pytest
import torch

from batchnav.learning import gae, ppo_loss

EXACT = 1e-6  # a handful of float32 operations on numbers near 1


def column(*values):
    return torch.tensor(values)[:, None]


def test_gae_by_hand():
    """gamma = 0.5, lambda = 0.5, an episode's end after step 2.

    t   r   V   V'  done   delta = r + V'/2 - V     A = delta + (1 - done) * A' / 4
    1   1   2   4   no     1 + 2 - 2 =  1           1    - 2.75 / 4  = 0.3125
    2   2   4   0   yes    2 + 0 - 4 = -2           -2
    3   0   1   6   no     0 + 3 - 1 =  2           2
    and for t = 1, A' = -2, so A = 1 - 2/4 = 0.5
    """
    advantage, returns = gae(
        column(1.0, 2.0, 0.0), column(2.0, 4.0, 1.0), column(4.0, 0.0, 6.0), column(False, True, False), 0.5, 0.5
    )
    assert advantage[:, 0].tolist() == [0.5, -2.0, 2.0]
    assert returns[:, 0].tolist() == [2.5, 2.0, 3.0]


def test_gae_bootstraps_where_an_episode_was_cut_off():
    """The same with V(final observation) = 8 after step 2: delta = 2 + 4 - 4 = 2; nothing comes from step 3."""
    advantage, _ = gae(
        column(1.0, 2.0, 0.0), column(2.0, 4.0, 1.0), column(4.0, 8.0, 6.0), column(False, True, False), 0.5, 0.5
    )
    assert advantage[:, 0].tolist() == [1.5, 2.0, 2.0]


def test_gae_is_the_sum_of_discounted_deltas():
    """A_t = sum over l of (gamma * lambda)^l * delta_{t + l}, up to the episode's end: in float64, term by term."""
    rng = np.random.default_rng(0)
    T, N, gamma, lam = 11, 5, 0.97, 0.9
    reward, value, next_value = (rng.normal(size=(T, N)) for _ in range(3))
    done = rng.random((T, N)) < 0.25
    expected = np.zeros((T, N))
    for n in range(N):
        for t in range(T):
            for k in range(t, T):
                expected[t, n] += (gamma * lam) ** (k - t) * (reward[k, n] + gamma * next_value[k, n] - value[k, n])
                if done[k, n]:
                    break
    tensors = [torch.from_numpy(a) for a in (reward, value, next_value, done)]
    advantage, returns = gae(*tensors, gamma, lam)
    np.testing.assert_allclose(advantage.numpy(), expected, atol=1e-12)
    np.testing.assert_allclose(returns.numpy(), expected + value, atol=1e-12)


def test_lambda_one_gives_discounted_returns():
    reward, value = torch.rand(6, 2), torch.rand(6, 2)
    following = torch.cat([value[1:], torch.zeros(1, 2)])
    done = torch.zeros(6, 2, dtype=torch.bool)
    done[-1] = True
    _, returns = gae(reward, value, following, done, 0.9, 1.0)
    expected = sum(0.9**t * reward[t] for t in range(6))
    torch.testing.assert_close(returns[0], expected, atol=EXACT, rtol=EXACT)


def hand_loss(log_prob):
    """Ratios 1.5, 1.5, 0.5, 0.5 with advantages 1, -1, 1, -1 and a clip of 0.2."""
    return ppo_loss(
        log_prob,
        torch.zeros(4),
        torch.tensor([1.0, -1.0, 1.0, -1.0]),
        torch.tensor([1.0, 2.0, 3.0, 4.0]),
        torch.tensor([1.0, 1.0, 1.0, 1.0]),
        torch.tensor([0.5, 0.5, 0.7, 0.7]),
        clip=0.2,
        value_coef=0.5,
        entropy_coef=0.01,
    )


def test_loss_by_hand():
    """min(r A, clip(r) A) = 1.2, -1.5, 0.5, -0.8: mean -0.15. Values: 0.5 * (0 + 1 + 4 + 9) / 4 = 1.75."""
    ratio = torch.tensor([1.5, 1.5, 0.5, 0.5])
    loss, stats = hand_loss(ratio.log())
    assert stats["policy_loss"].item() == pytest.approx(0.15, abs=EXACT)
    assert stats["value_loss"].item() == pytest.approx(1.75, abs=EXACT)
    assert stats["entropy"].item() == pytest.approx(0.6, abs=EXACT)
    assert loss.item() == pytest.approx(0.15 + 0.5 * 1.75 - 0.01 * 0.6, abs=EXACT)
    assert stats["approx_kl"].item() == pytest.approx((ratio - 1 - ratio.log()).mean().item(), abs=EXACT)
    assert stats["clip_fraction"].item() == 1.0
    assert not any(value.requires_grad for value in stats.values())


def test_clipped_steps_have_no_gradient():
    """Steps 1 and 4 are clipped; the others' gradient is -r * A / 4."""
    log_prob = torch.tensor([1.5, 1.5, 0.5, 0.5]).log().requires_grad_()
    hand_loss(log_prob)[0].backward()
    torch.testing.assert_close(log_prob.grad, torch.tensor([0.0, 0.375, -0.125, 0.0]), atol=EXACT, rtol=EXACT)


def test_gradients_are_the_differences():
    torch.manual_seed(0)
    log_prob, value, entropy = (torch.randn(6, dtype=torch.float64, requires_grad=True) for _ in range(3))
    old, advantage, returns = (torch.randn(6, dtype=torch.float64) for _ in range(3))

    def loss(log_prob, value, entropy):
        options = {"clip": 0.2, "value_coef": 0.5, "entropy_coef": 0.01}
        return ppo_loss(log_prob, old, advantage, value, returns, entropy, **options)[0]

    assert torch.autograd.gradcheck(loss, (log_prob, value, entropy))


def test_the_worked_example_of_gae():
    found = doctest.testmod(sys.modules[gae.__module__])
    assert found.attempted >= 6 and not found.failed
