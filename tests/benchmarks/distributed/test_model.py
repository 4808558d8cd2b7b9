"""The model of the study's cluster: it gives the study's tables, and behaves as a cluster does."""

import json
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.distributed.cluster import STUDY, Configuration, Linked
from benchmarks.distributed.pruned import NODES, PruningCost, markdown_savings, saving
from benchmarks.distributed.tables import ROWS, markdown_tables, objects
from tests.common.programs import ROOT, run_module

PRINTED = [
    (1, "1 Node", 124.18),
    (1, "7 Nodes (4 Workers + 3 PS)", 396.62),
    (1, "4 Nodes (4 Workers + 3 PS)", 374.73),
    (1, "4 Nodes (4 Workers + 1 PS)", 292.22),
    (2, "1 Node", 124.18),
    (2, "2 Nodes (2 Workers + 1 PS)", 195.60),
    (2, "4 Nodes (4 Workers + 3 PS)", 383.09),
    (2, "8 Nodes (8 Workers + 7 PS)", 809.10),
]
COUNTS = st.integers(1, 40)


def test_the_command_prints_every_row_of_the_study_within_ten_percent(tmp_path):
    told = run_module("benchmarks.distributed", "model", "--json", cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    rows = json.loads(told.stdout)
    assert [(row["table"], row["configuration"], row["study"]) for row in rows] == PRINTED
    for row in rows:
        assert set(row) == {"table", "configuration", "study", "model"}
        assert row["model"] == pytest.approx(row["study"], rel=0.10), row


def test_the_rows_follow_from_the_constants():
    slower = objects(replace(STUDY, device_seconds=2 * STUDY.device_seconds))
    assert all(row["model"] < 0.75 * same["model"] for row, same in zip(slower, objects(), strict=True))


def test_a_server_that_is_always_busy_is_the_limit():
    """So slow a link that workers do nothing but wait: the bytes of a step, one worker after the other."""
    slow = replace(STUDY, bandwidth=1e6, contention=0.0)
    rate = slow.images_per_second(Configuration(8, 1))
    assert rate == pytest.approx(128 / (2 * slow.gradient_bytes / slow.bandwidth), rel=1e-3)


@given(workers=COUNTS, servers=COUNTS)
def test_more_servers_and_nodes_of_their_own_never_harm(workers, servers):
    own = STUDY.images_per_second(Configuration(workers, servers, "dedicated"))
    assert own <= workers * STUDY.batch / STUDY.compute_seconds
    assert own <= STUDY.images_per_second(Configuration(workers, servers + 1, "dedicated")) * (1 + 1e-9)
    assert own <= STUDY.images_per_second(Configuration(workers + 1, servers, "dedicated")) * (1 + 1e-9)
    if servers <= workers:
        assert STUDY.images_per_second(Configuration(workers, servers)) < own


@given(workers=COUNTS, servers=COUNTS)
def test_links_alone_cost_no_more_than_their_bytes_and_no_less_than_one_after_the_other(workers, servers):
    links = Linked(**asdict(STUDY))
    own = Configuration(workers, servers, "dedicated")
    way = links.gradient_bytes / links.bandwidth
    busiest = way * max(1.0, workers / servers)
    step = links.step_seconds(own)
    assert links.compute_seconds + 2 * way <= step * (1 + 1e-9)
    assert max(links.compute_seconds, way * workers / servers) <= step * (1 + 1e-9)
    assert step <= (links.compute_seconds + 2 * (way + busiest)) * (1 + 1e-9)
    if servers <= workers:  # a worker needs no link to the server on its node
        assert links.step_seconds(Configuration(workers, servers)) <= step * (1 + 1e-9)
    assert links.step_seconds(Configuration(1, 1)) == links.compute_seconds


@pytest.mark.parametrize("given", [(0, 0), (2, 0), (1, -1), (2, 3)])
def test_configurations_that_make_no_sense_are_refused(given):
    with pytest.raises(ValueError, match="Expected"):
        Configuration(*given)


def test_efficiency_is_over_the_nodes_used():
    assert [row.configuration.nodes for row in ROWS] == [1, 7, 4, 4, 1, 2, 4, 8]


def test_pruning_costs_nothing_where_it_costs_nothing():
    free = PruningCost(0, 0, 0, 0)
    regular, pruned, spent = saving(STUDY, 1, free, samples=128_000, prune=0.25)
    assert pruned == pytest.approx(0.75 * regular)
    assert spent == pytest.approx(0)


def test_workers_wait_at_the_end_of_a_pruned_epoch():
    regular, pruned, _ = saving(STUDY, 8, PruningCost(0, 0, 0, 0), samples=128 * 8, prune=0.5)
    assert pruned == pytest.approx(regular)  # half of the workers have nothing to do


def test_a_dealer_deals_no_more_than_it_can():
    slow = PruningCost(round_trips=0, dealing=1.0, sample=0, commit=0)
    _, pruned, _ = saving(STUDY, 64, slow, samples=128 * 640, prune=0)
    assert pruned == pytest.approx(640.0)


@pytest.mark.docs
def test_the_page_shows_what_the_command_prints():
    page = (ROOT / "docs" / "frameworks" / "scale.md").read_text(encoding="utf-8")
    assert markdown_tables() in page, "put what python -m benchmarks.distributed model prints into it"
    assert markdown_savings() in page
    assert NODES == (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
