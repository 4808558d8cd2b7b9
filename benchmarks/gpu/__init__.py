"""On a GPU: checks, costs and the evidence of deep networks, by one command within a budget of seconds.

    python -m benchmarks.gpu --seconds 500 --data CIFAR10 --labels NPZ     goes on where it was stopped
    python -m benchmarks.gpu --device cpu                                  the same at a tiny size, and keeps nothing
    python -m benchmarks.gpu table --page docs/evidence/deep.md

What comes first decides most: the tests marked ``cuda``, whether losses on the device are recorded exactly, what
``observe`` costs, how near the trainer comes to the card, the paper's ten networks, and the arms of ResNet-18.
"""
