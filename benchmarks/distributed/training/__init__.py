"""The reference trainer: one network, data and optimiser in the modes ``sync``, ``async``, ``mixed`` and ``local``."""
