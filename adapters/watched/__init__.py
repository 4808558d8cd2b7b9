"""Trainers that ``prunedata watch`` watches, and that leave nothing out: these frameworks have no ``wrap``."""
