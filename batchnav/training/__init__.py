"""Training a navigation agent: configuration, loop, validation, run folder, signals."""
