"""Kernels for CPU and CUDA: compilation, caching, launching, CUDA graphs and random numbers."""
