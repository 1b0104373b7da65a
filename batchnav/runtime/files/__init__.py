"""Files written whole or not at all, bundled files, and the cache."""
