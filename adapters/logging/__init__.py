"""Loggers that write the figures of each finished epoch to TensorBoard or Weights & Biases."""
