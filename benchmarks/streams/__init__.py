"""What pruning saves on a stream, which must be read and decoded.

python -m benchmarks.streams     prints the tables in docs/evidence/results.md, "Streams"

With ``--scale SAMPLES`` it measures an index and a mask of very many samples instead.
"""
