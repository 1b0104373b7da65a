"""Environments of other libraries as ours, and ours as theirs."""
