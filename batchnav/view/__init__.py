"""Pictures: sensor images, top-down maps, navmesh figures, videos, and the interactive viewer."""
