"""The folder that PYTHONPATH names, so that Python looks for trainers before it runs a program."""
