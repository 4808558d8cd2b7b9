"""The demo, the benchmarks and the networks they train: run from a checkout, never shipped."""
