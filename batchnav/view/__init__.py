"""Pictures: top-down maps, depth mosaics, videos, curves, reports."""
