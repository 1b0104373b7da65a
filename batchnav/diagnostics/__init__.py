"""What this machine can do, and how much memory a run needs."""
