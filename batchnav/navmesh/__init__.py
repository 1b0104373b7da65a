"""Navmeshes: Habitat's `.navmesh` files, baking, and every query as Detour answers it, batched on CPU and CUDA."""
