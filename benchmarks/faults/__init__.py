"""Attacks on runs: kills, power cuts, failing system calls, interrupts, other writers. Nothing may be lost or wrong.

python -m benchmarks.faults                 prints for each attack: tried, survived, lost, silently wrong
python -m benchmarks.faults table --page    the table of docs/reliability.md, from what is recorded

The exit status is 1 if anything was lost or wrong. Each search begins anew with another seed, which it prints.
"""
