"""Navmeshes: Habitat's `.navmesh` files, baking, and batched queries on CPU and CUDA with Detour's results."""
