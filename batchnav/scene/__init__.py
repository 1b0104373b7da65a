"""Mesh files, procedural houses, the trees that rays search, and the bank that holds K scenes on a device."""
