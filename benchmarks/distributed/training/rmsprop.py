"""RMSProp as TensorFlow 1 has it, which the study trains with, on a flat vector of weights.

It differs from today's in two things: ``epsilon`` is inside the square root, and the average of squared gradients
starts at 1 instead of 0. With the study's ``epsilon`` of 1 both matter.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["RMSProp"]

Vector = npt.NDArray[np.float32]


@dataclass
class RMSProp:
    """The optimiser of one vector of weights, shape (n,), float32; the defaults are the study's.

    A step is ``average = decay * average + (1 - decay) * g**2`` and ``weights -= learning_rate * g / sqrt(average +
    epsilon)``, where ``g`` is the gradient with ``weight_decay * weights`` added.
    """

    weights: Vector
    learning_rate: float = 0.1
    decay: float = 0.9
    epsilon: float = 1.0
    weight_decay: float = 1e-4

    def __post_init__(self) -> None:
        self.weights = np.array(self.weights, dtype=np.float32)
        self.average = np.ones_like(self.weights)

    def step(self, gradient: Vector) -> None:
        """Apply one gradient."""
        if gradient.shape != self.weights.shape:
            raise ValueError(f"Expected a gradient of shape {self.weights.shape}. Got {gradient.shape}.")
        whole = gradient + np.float32(self.weight_decay) * self.weights
        self.average += np.float32(1 - self.decay) * (whole * whole - self.average)
        self.weights = self.weights - np.float32(self.learning_rate) * whole / np.sqrt(
            self.average + np.float32(self.epsilon)
        )
