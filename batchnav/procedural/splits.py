"""Disjoint seeds of training, validation and test scenes, the same for every scene family."""

SPLITS = {"train": range(100_000), "val": range(100_000, 110_000), "test": range(110_000, 120_000)}
