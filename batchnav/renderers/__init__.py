"""Renderers: ray casting on the CPU and the GPU, OpenGL, and the brute-force reference that specifies them."""
