"""Compiling, launching and recording kernels, and the random numbers that they use."""
