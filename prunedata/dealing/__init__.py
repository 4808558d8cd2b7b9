"""Dealing an epoch in batches to workers that train asynchronously, each kept sample once."""
