"""CartPole, the smallest environment: `plain.py` is to be read first."""
