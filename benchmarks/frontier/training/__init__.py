"""How a run of the frontier is trained: networks, what a step makes small, and what is left out."""
