"""CartPole, the smallest environment. Read `plain.py` first."""
