"""What is mutated, and by which tests a mutant should be killed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["ROOMS", "Tested"]


@dataclass(frozen=True)
class Tested:
    """Files of one room, and their tests; paths from the root of the repository.

    Attributes
    ----------
    files : sequence of str
        What is mutated.
    tests : sequence of str
        Tested first: what specifies the files.
    more : sequence of str
        Tested with what survives that: what uses the files.
    """

    files: Sequence[str]
    tests: Sequence[str]
    more: Sequence[str] = ()


RUNS = ("tests/run/test_pruner.py", "tests/run/test_run.py")

ROOMS: Mapping[str, Sequence[Tested]] = {
    "schedule": [
        Tested(["prunedata/plan/schedule.py"], ["tests/plan/test_schedule.py"], ["tests/plan", *RUNS]),
    ],
    "cost": [
        Tested(["prunedata/plan/cost.py"], ["tests/plan/test_cost.py"], ["tests/plan", *RUNS]),
        Tested(["prunedata/plan/savings.py"], ["tests/plan/test_cost.py"], ["tests/findings"]),
    ],
    "counts": [
        Tested(
            ["prunedata/counting/counts.py"],
            ["tests/counting/test_counts.py", "tests/counting/test_joining.py"],
            ["tests/run/test_lengthened.py", *RUNS],
        ),
        Tested(
            ["prunedata/counting/sample_arrays.py"],
            ["tests/counting/test_sample_arrays.py"],
            ["tests/policies", *RUNS],
        ),
    ],
    "selection": [
        Tested(
            ["prunedata/policies/selection.py"],
            ["tests/policies/test_selection.py"],
            ["tests/policies", "tests/run/test_holdout.py", *RUNS],
        ),
        Tested(
            ["prunedata/policies/protocol.py"],
            ["tests/policies/test_protocol.py"],
            ["tests/policies", "tests/testing/test_check_policy.py", "tests/counting/test_sample_arrays.py", *RUNS],
        ),
        Tested(
            ["prunedata/policies/rules.py"],
            ["tests/policies/test_rules.py", "tests/policies/test_policy.py"],
            ["tests/policies", "tests/counting/test_sample_arrays.py", "tests/findings", *RUNS],
        ),
    ],
    "order": [
        Tested(
            ["prunedata/run/order.py"],
            ["tests/run/test_order.py"],
            RUNS,
        ),
        Tested(
            ["prunedata/run/epoch.py"],
            ["tests/policies/test_select.py", "tests/run/test_errors.py", *RUNS],
            ["tests/policies", "tests/run/test_by_weight.py"],
        ),
    ],
    "store": [
        Tested(
            ["prunedata/store/pointer.py", "prunedata/store/state.py"],
            ["tests/store/test_pointer.py"],
            [
                "tests/store/test_strangers.py", "tests/store/test_damage.py", "tests/store/test_history.py",
                "tests/findings", "tests/run/test_errors.py", *RUNS,
            ],
        ),
        Tested(
            ["prunedata/store/run_store.py", "prunedata/store/slots.py"],
            ["tests/store/test_run_store.py", "tests/store/test_store.py"],
            [
                "tests/store/test_strangers.py", "tests/store/test_damage.py", "tests/store/test_one_writer.py",
                "tests/store/test_history.py", "tests/store/test_system.py",
            ],
        ),
        Tested(
            ["prunedata/store/durable.py", "prunedata/store/lock.py"],
            ["tests/store/test_places.py"],
            ["tests/store/test_one_writer.py", "tests/store/test_store.py"],
        ),
    ],
}  # fmt: skip
