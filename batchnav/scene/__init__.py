"""Scenes: mesh files, BVH, appearance, and SceneBank, which holds scenes on a device."""
