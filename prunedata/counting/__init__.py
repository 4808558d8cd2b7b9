"""Losses of single samples, counted: buffers, hits, arrays with a number for each sample, and merges over processes."""
