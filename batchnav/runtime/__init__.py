"""Base layer of all packages: devices, kernels, CUDA graphs, random numbers, distributed processes, files, console."""
