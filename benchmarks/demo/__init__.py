"""The demo: what pruning saves, and what it costs in accuracy, on real images.

    python -m benchmarks.demo                      a table, and the loss curves as prunedata-demo.png
    python -m benchmarks.demo --framework NAME     a table: the same training on a stream, beside map-style

``make demo`` runs them. docs/pictures/demo-cifar10.png is the picture of ``--data`` CIFAR-10, with ``--picture``.
"""
