"""What the library itself costs, each part beside its peer.

python -m benchmarks.overhead     prints the table in docs/evidence/results.md, "Overhead"
python -m benchmarks.overhead.dealing     prints the table in docs/frameworks/distributed.md
python -m benchmarks.overhead.exchange    prints the table in docs/frameworks/pytorch.md

With ``--infobatch CHECKOUT`` InfoBatch is measured beside it.
"""
