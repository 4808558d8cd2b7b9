"""What the counts of a run say about its data."""
