"""Occupancy maps that agents make from depth, and shortest paths on them."""
