"""Ray casting through each scene's tree."""

from batchnav.renderers.raycast.renderer import RaycastRenderer

__all__ = ["RaycastRenderer"]
