"""Habitat's datasets: folder layouts, scene dataset configs, URDF files."""
