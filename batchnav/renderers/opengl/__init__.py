"""Rasterisation by OpenGL 4.5, all views in one texture array."""

from batchnav.renderers.opengl.renderer import OpenGLRenderer

__all__ = ["OpenGLRenderer"]
