"""CartPole environments of other libraries, as candidates for eval/speed_cartpole.py.

Each factory returns a label with the library's version and a `Candidate`; it raises ImportError if the library is not
installed. Random actions are sampled before the measurement, except in gymnax's scan.
"""

from __future__ import annotations

import importlib.metadata

import gymnasium
import numpy as np

from eval.cartpole.bench import ACTION_ROWS, SAMPLED, STEPS_AT_ONCE, Candidate, in_turn

Peer = tuple[str, Candidate]
"""Label with the library's version, and the call to time."""


def _version(package: str) -> str:
    """Name and version of a package."""
    return f"{package} {importlib.metadata.version(package)}"


def _rows(num_envs: int, dtype=np.int64) -> np.ndarray:
    """Random actions [ACTION_ROWS, num_envs]."""
    return np.random.default_rng(0).integers(0, 2, (ACTION_ROWS, num_envs)).astype(dtype)


def gymnasium_vector(num_envs: int) -> Peer:
    """Gymnasium's vectorised CartPole: NumPy, one process."""
    env = gymnasium.make_vec("CartPole-v1", num_envs=num_envs, vectorization_mode="vector_entry_point")
    env.reset(seed=0)
    return _version("gymnasium") + " vector CartPole", Candidate(in_turn(env.step, _rows(num_envs)))


def gymnasium_sync(num_envs: int) -> Peer:
    """Gymnasium's loop over single environments."""
    env = gymnasium.make_vec("CartPole-v1", num_envs=num_envs, vectorization_mode="sync")
    env.reset(seed=0)
    return _version("gymnasium") + " SyncVectorEnv", Candidate(in_turn(env.step, _rows(num_envs)))


def sb3_dummy(num_envs: int) -> Peer:
    """Stable-Baselines3's loop over single environments."""
    from stable_baselines3.common.vec_env import DummyVecEnv

    env = DummyVecEnv([lambda: gymnasium.make("CartPole-v1")] * num_envs)
    env.reset()
    return _version("stable_baselines3") + " DummyVecEnv", Candidate(in_turn(env.step, _rows(num_envs)))


def sb3_subproc(num_envs: int) -> Peer:
    """Stable-Baselines3 with one process per environment."""
    from stable_baselines3.common.vec_env import SubprocVecEnv

    env = SubprocVecEnv([lambda: gymnasium.make("CartPole-v1")] * num_envs, start_method="fork")
    env.reset()
    call = in_turn(env.step, _rows(num_envs))
    call.close = env.close
    return _version("stable_baselines3") + " SubprocVecEnv", Candidate(call)


def envpool_sync(num_envs: int) -> Peer:
    """EnvPool, with C++ threads."""
    import envpool

    env = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=num_envs, seed=0)
    env.reset()
    return f"envpool {envpool.__version__}", Candidate(in_turn(env.step, _rows(num_envs, np.int32)))


def gymnax_step(num_envs: int) -> Peer:
    """gymnax (JAX), one jitted step per call. Asynchronous on a GPU; `call.wait` waits for the result."""
    jax, step, state, keys = _gymnax(num_envs)
    actions = jax.random.randint(keys, (ACTION_ROWS, num_envs), 0, 2)
    advance, carry = jax.jit(step, donate_argnums=0), [(state, keys)]
    rows = [actions[k] for k in range(ACTION_ROWS)]

    def one(row):
        carry[0], out = advance(carry[0], row)
        return out

    call = in_turn(one, rows)
    call.wait = lambda: jax.block_until_ready(carry[0])
    return f"{_version('gymnax')} step, jax {jax.__version__} {jax.default_backend()}", Candidate(call)


def gymnax_scan(num_envs: int) -> Peer:
    """gymnax with STEPS_AT_ONCE steps in one `lax.scan`; actions are sampled inside, and outputs are discarded."""
    jax, step, state, keys = _gymnax(num_envs)

    def random_step(carry, _):
        state, key = carry
        key, subkey = jax.random.split(key)
        carry, _ = step((state, key), jax.random.randint(subkey, (num_envs,), 0, 2))
        return carry, None

    scan = jax.jit(lambda carry: jax.lax.scan(random_step, carry, None, STEPS_AT_ONCE)[0], donate_argnums=0)
    carry = [(state, keys)]

    def call():
        carry[0] = scan(carry[0])

    call.wait = lambda: jax.block_until_ready(carry[0])
    return f"{_version('gymnax')} scan, jax {jax.__version__} {jax.default_backend()}", Candidate(
        call, STEPS_AT_ONCE, SAMPLED
    )


def _gymnax(num_envs: int):
    """jax, a step of all environments (carry, actions) -> (carry, outputs), the initial state, and a random key."""
    import os

    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import gymnax
    import jax

    env, params = gymnax.make("CartPole-v1")
    key = jax.random.PRNGKey(0)
    _, state = jax.vmap(env.reset, in_axes=(0, None))(jax.random.split(key, num_envs), params)
    step_all = jax.vmap(env.step, in_axes=(0, 0, 0, None))

    def step(carry, actions):
        state, key = carry
        key, subkey = jax.random.split(key)
        observation, state, reward, done, *_ = step_all(jax.random.split(subkey, num_envs), state, actions, params)
        return (state, key), (observation, reward, done)

    return jax, step, state, key


CPU_PEERS = {
    "gymnasium vector": (gymnasium_vector, (1, 32, 1024, 65_536)),
    "gymnasium sync": (gymnasium_sync, (1, 8, 32)),
    "sb3 dummy": (sb3_dummy, (1, 8, 32)),
    "sb3 subproc": (sb3_subproc, (1, 2, 4, 8, 16, 32)),
    "envpool": (envpool_sync, (1, 32, 1024, 16_384)),
}
"""Libraries on the CPU: factory, and the numbers of environments to measure."""
JAX_PEERS = {"gymnax step": gymnax_step, "gymnax scan": gymnax_scan}
"""Factories of gymnax's candidates, for the GPU."""
