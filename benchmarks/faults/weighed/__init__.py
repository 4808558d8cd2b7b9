"""Trainings in every framework beside one plain loop: which losses move the weights, and by how much."""
