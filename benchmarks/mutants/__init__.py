"""Mutation testing: whether the tests notice small changes of the core."""
