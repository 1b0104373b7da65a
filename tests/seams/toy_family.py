"""A family of procedural scenes from outside the package: floors that grow with the seed, one registration."""

from toy_source import floor

from batchnav.procedural import FAMILIES, SceneFamily

FAMILIES["growing"] = SceneFamily(
    "growing", "growing floors", lambda seed, surface: floor(5.0 + seed, 6.0), {}, random_materials=False
)
