"""Prepared scenes: one file each, mapped into memory."""
