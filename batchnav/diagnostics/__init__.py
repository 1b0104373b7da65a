"""Diagnostics: capabilities of the machine, and the memory that a training run needs."""
