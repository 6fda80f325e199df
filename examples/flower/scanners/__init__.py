"""A Flower app: four sites with different scanners learn one digit classifier."""
