"""Benchmarks of the machine: `batchnav bench`. Each module has `Options` and a function `main` that takes them."""
