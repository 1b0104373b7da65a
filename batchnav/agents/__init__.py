"""Agents that act in an environment: reference agents, map planners, experts. `registry` lists them by name."""
