"""Ray casting through each scene's tree."""

from batchnav.render.raycast.renderer import RaycastRenderer

__all__ = ["RaycastRenderer"]
