"""What the world and the learner stand on: devices, kernels, launches, graphs, random numbers, files."""
