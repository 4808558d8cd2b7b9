"""``prunedata watch``: a program runs as Python would run it, and its trainings are watched."""
