"""Data sets: Habitat's episode files, and the scenes that their names mean."""
