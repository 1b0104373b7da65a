"""Training of the occupancy predictor: recorded maps, batches, losses, training loop and validation measures."""
