"""The reference trainer: one network, data and optimiser in three modes, ``sync``, ``async`` and ``mixed``."""
