"""Evaluation of agents on fixed episodes: metrics with 95% intervals, results files, trajectories."""
