"""Table 1 for the ten networks: what is timed, and what is made of it."""

import pytest

pytest.importorskip("torch")

import torch

from benchmarks.pages.ten_networks import RUN, measure, row, table


def facts(regular, pruned, network="wrn22"):
    return {
        "network": network, "samples": 160, "batch_size": 16, "kept": 128,
        "regular": regular, "pruned": pruned, "overhead": [0.001] * len(regular),
    }  # fmt: skip


def test_a_network_is_timed_in_turns():
    torch.set_num_threads(1)
    found = measure("lenet", None, seconds=0.0, long=0.0)
    assert (found["samples"], found["kept"]) == (160, 128)
    assert len(found["regular"]) == len(found["pruned"]) == len(found["overhead"]) == 3
    assert min(found["regular"] + found["pruned"] + found["overhead"]) > 0


def test_what_an_epoch_saves_is_put_to_the_papers_run():
    assert len(RUN.pruned_epochs) == 142
    found = row(facts([10.0, 10.0, 20.0], [8.0, 9.0, 15.0]))
    assert found["predicted_percent"] == pytest.approx(0.2 * 71)
    assert (found["lowest_percent"], found["epoch_percent"], found["highest_percent"]) == pytest.approx((10, 20, 25))
    assert found["measured_percent"] == pytest.approx(0.2 * 71)
    assert (found["regular_seconds"], found["pruned_seconds"]) == (10.0, 9.0)
    assert found["paper_percent"] == 14.29


def test_networks_stand_in_the_papers_order():
    lines = table([facts([1.0], [0.8], "wrn10"), facts([1.0], [0.8], "lenet")]).splitlines()
    assert ["lenet" in lines[2], "wrn10" in lines[3]] == [True, True]
