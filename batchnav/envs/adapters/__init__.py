"""Adapters: batchnav environments for other libraries, and environments of other libraries for batchnav's learner."""
