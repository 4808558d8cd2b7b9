"""What the library itself costs, each part beside its peer.

python -m benchmarks.overhead     prints the table in docs/results.md, "Overhead"
python -m benchmarks.overhead.dealing     prints the table in docs/distributed.md: a dealer beside plain queues

With ``--infobatch CHECKOUT`` InfoBatch is measured beside it.
"""
