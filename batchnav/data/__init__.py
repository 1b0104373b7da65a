"""Scenes and episodes from files: Habitat's datasets, ProcTHOR, prepared scenes, procedural scenes, downloads.

Read `scenes/ids.py` (scene ids) and `scenes/load.py` (`load_scene`) first; then `scenes/source.py` (the mesh files of a
scene), `scenes/datasets.py` (`load_dataset`) and `formats/` (episode files).
"""
