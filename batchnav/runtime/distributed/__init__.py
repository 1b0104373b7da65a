"""Distributed training: ranks, their start and their heartbeat."""
