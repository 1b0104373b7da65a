"""Playing episodes: agents to compare with, what counts, and intervals."""
