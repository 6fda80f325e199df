"""A Flower app: four sites learn one digit classifier from sums alone."""
