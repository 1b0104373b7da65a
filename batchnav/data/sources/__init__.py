"""Scenes before they are loaded: mesh files with their places, navmesh files, annotations."""
