"""A run: what it knows of each sample, its epochs, and what they were fed."""
