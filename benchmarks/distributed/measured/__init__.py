"""What was measured here of the three modes: recorded runs, and their tables beside the study's."""
