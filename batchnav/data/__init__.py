"""Scenes and episodes from files: Habitat's datasets, ProcTHOR, prepared scenes, procedural scenes, downloads.

Read `scene_ref.py` (scene ids), `resolve.py` (from a scene id to a loader) and `scenes.py` (`load_scene`) first; then
`sources/` (the mesh files of a scene) and `habitat/datasets.py` (`load_dataset`).
"""
