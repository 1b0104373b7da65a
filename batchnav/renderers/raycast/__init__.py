"""Ray casting through each scene's BVH."""

from batchnav.renderers.raycast.renderer import RaycastRenderer

__all__ = ["RaycastRenderer"]
