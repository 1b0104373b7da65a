"""Pieces of furniture: one file per kind, each with the ranges of its sizes."""
