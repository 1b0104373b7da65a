"""Goals of a scene in a file of the disk cache."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from batchnav.errors import MeshError
from batchnav.runtime.files import replacing
from batchnav.scene.goals import ObjectGoal, SceneGoals

_ARRAYS = ("view_points", "headings", "iou")
"""Arrays of `ObjectGoal`; the file holds those of all objects, one after another."""


def save_goals(goals: SceneGoals, path: Path) -> None:
    """Write goals; a lost file is made again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [[getattr(goal, field) for field in ("category", "object_id", "name", "position")] for goal in goals.objects]
    counts = [len(goal.iou) for goal in goals.objects]
    images = [len(goal.images) for goal in goals.objects]
    text = json.dumps({"rules": goals.rules, "objects": rows, "counts": counts, "images": images})
    arrays: dict[str, Any] = {
        name: np.concatenate([getattr(goal, name) for goal in goals.objects]) for name in _ARRAYS if rows
    }
    if rows:
        arrays["images"] = np.concatenate([goal.images for goal in goals.objects])
    arrays["objects"] = np.frombuffer(text.encode(), np.uint8)
    packed: Any = io.BytesIO()
    np.savez(packed, **arrays)
    with replacing(path, MeshError, durable=False) as part:
        part.write_bytes(packed.getvalue())


def load_goals(path: Path) -> SceneGoals | None:
    """The goals in a file; None where there is no file or it is damaged."""
    try:
        with np.load(path, allow_pickle=False) as file:
            stored = json.loads(file["objects"].tobytes())
            ends = np.cumsum(stored["counts"])[:-1]
            columns = [np.split(file[name], ends) for name in _ARRAYS if len(stored["objects"])]
            if columns:
                columns.append(np.split(file["images"], np.cumsum(stored["images"])[:-1]))
        objects = [
            ObjectGoal(category, object_id, name, tuple(position), *arrays)
            for (category, object_id, name, position), *arrays in zip(stored["objects"], *columns, strict=True)
        ]
        return SceneGoals(stored["rules"], tuple(objects))
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
        return None
