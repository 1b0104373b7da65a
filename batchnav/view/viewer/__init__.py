"""The interactive viewer."""
