"""The attacks: one file for each way in which a run is disturbed."""
