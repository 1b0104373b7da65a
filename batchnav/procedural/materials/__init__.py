"""Colours and textures of procedural scenes."""
