"""Habitat's data sets: folder layouts, scene data set configs, URDF files."""
