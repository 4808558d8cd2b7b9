"""Live loggers: what each epoch of a run comes to, for TensorBoard and for Weights & Biases."""
