"""``prunedata watch``: a program runs as Python runs it, and what trains in it is watched."""
