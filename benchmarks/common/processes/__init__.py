"""Processes that benchmarks start: Ray, and ranks of a gloo group."""
