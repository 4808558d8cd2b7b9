"""The demo: what pruning gives where labels are wrong, and what it saves, on real images.

    python -m benchmarks.demo                      a table and prunedata-demo.png: accuracy where labels are wrong
    python -m benchmarks.demo --saving             a table and prunedata-demo.png: time saved by the paper's rule
    python -m benchmarks.demo --framework NAME     a table: the same training on a stream, beside map-style

``make demo`` runs them. docs/pictures/demo-cifar10.png is the picture of ``--saving --data`` CIFAR-10.
"""
