"""What is trained on: a file for each data set, the wrong labels, and where all of it is kept."""
