"""Progress bars and status lines."""
