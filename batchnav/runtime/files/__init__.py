"""Atomic file writes, bundled files and the cache folder."""
