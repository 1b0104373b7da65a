"""Sensors: visibility and what the bank knows of surfaces, as the tensors that agents observe."""
