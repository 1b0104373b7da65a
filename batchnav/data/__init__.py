"""Data sets: episode files, scenes in Habitat's layouts and configs, ProcTHOR, downloads, prepared scenes.

Read `source.py` (what a scene is made of), then `scenes.py` (what a scene id means) and `datasets.py` (`load_dataset`).
"""
