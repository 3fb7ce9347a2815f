"""A transformer that reads a handwritten digit as a sequence of ink."""
