"""Floor plans."""
