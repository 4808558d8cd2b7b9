"""Parts for adapters of streams: the mask of an epoch in a file, and an index of shards."""
