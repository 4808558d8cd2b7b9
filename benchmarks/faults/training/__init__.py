"""Trainings that are killed, and have to come to what they would have come to."""
