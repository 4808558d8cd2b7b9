"""Mutation testing: whether the tests notice small changes of the core.

    python -m benchmarks.mutants [room ...]    prints how many mutants were killed; records them

A mutant is the code with one small change, by the operators of mutmut. Those that no test can notice are explained in
equivalent.json.
"""
