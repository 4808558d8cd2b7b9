"""A run: its epochs, the losses that they record, and what follows for each sample."""
