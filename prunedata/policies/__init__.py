"""Which samples are pruned."""
