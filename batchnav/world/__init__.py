"""People and standing objects: state, walking, avoidance of each other, and where robots meet them."""
