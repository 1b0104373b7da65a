"""Policies in Habitat: the agent interface of habitat-lab, and habitat-sim side by side."""
