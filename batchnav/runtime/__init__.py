"""Lowest layer of the package: devices, kernels, CUDA graphs, random numbers, distributed processes, files, console."""
