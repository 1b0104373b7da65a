"""Geometry as functions of scalars: poses, camera rays, boxes, triangles, polygons."""
