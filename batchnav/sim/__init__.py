"""The batched PointGoal simulator: episodes, walking, reward and metrics, in kernels."""
