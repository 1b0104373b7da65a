"""Rasterisation with OpenGL 4.5; all views share one texture array."""

from batchnav.renderers.opengl.renderer import OpenGLRenderer

__all__ = ["OpenGLRenderer"]
