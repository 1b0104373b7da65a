"""Habitat's data sets: scene data sets, annotations, URDF files."""
