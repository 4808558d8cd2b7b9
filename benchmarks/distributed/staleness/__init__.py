"""Does pruning survive staleness? Training with gradients of old weights, with pruning and without."""
