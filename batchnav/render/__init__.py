"""Depth renderers: ray casting on the CPU and the GPU, and the brute-force reference that specifies them."""
