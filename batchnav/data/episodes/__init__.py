"""Episode files."""
