"""Training of the occupancy predictor: recorded maps, batches, losses, the training loop and its measures."""
