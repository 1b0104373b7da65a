"""Environments: `gymnasium.vector.VectorEnv`s on torch tensors."""
