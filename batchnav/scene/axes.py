"""Axes of mesh files."""

from typing import Literal

Up = Literal["auto", "x", "y", "z", "-x", "-y", "-z"]
"""The axis of a mesh file that points up; "auto" is y."""
