"""What the library itself costs, each part beside its peer.

python -m benchmarks.overhead     prints the table in docs/results.md, "Overhead"

With ``--infobatch CHECKOUT`` InfoBatch is measured beside it.
"""
