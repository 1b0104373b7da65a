"""Walls, floors, ceilings and their openings."""
