"""Runs: their folder, training, results, memory, and what this machine can do."""
