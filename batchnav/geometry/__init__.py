"""Scalars in, scalars out: pose, camera ray, box, triangle, polygon. The only maths of the world."""
