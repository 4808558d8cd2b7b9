"""What losses are counted into: arrays with a number for each sample, and what becomes of these over processes."""
