"""Training of the occupancy predictor."""
