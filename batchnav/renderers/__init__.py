"""Renderers: ray casting on CPU and GPU, OpenGL, and the brute-force reference that specifies their results."""
