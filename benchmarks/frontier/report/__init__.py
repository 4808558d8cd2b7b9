"""What is read off the runs: tables, the summary and the picture."""
