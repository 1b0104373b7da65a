"""Floor plans: rooms on a grid, doors and windows."""
