"""Prepared scenes."""
