"""The program ``prunedata``."""
