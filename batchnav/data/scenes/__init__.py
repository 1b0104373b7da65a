"""Scenes from files and from seeds: `load_scene` and `load_scenes` (`load.py`), `load_dataset` (`datasets.py`)."""
