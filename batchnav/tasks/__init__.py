"""Tasks: what agents are to do, one file each."""
