"""For ``prunedata watch``: what its trainers share, loops of the user's own, and trainers that have no ``wrap``."""
