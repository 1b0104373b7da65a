"""Bodies that walk on navmeshes, the streams on which a step runs, and episodes drawn ahead. Names no task."""
