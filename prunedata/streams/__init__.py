"""What streams need: the mask in a file, and an index of shards."""
