"""Two real processes: each trains on its share of the kept samples, and both know the same of every sample."""

import io
from functools import partial
from itertools import islice, zip_longest

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

from prunedata.adapters.torch import ranks as torch_ranks
from prunedata.adapters.torch import wrap
from prunedata.counting.counts import Tally
from prunedata.errors import PrunedataError, SkippedSamples
from prunedata.policies import Random, keep_mask
from prunedata.run.order import epoch_order
from tests.adapters.helpers.ranks import WORLD, group, start
from tests.adapters.helpers.torch import BATCH, EVERY_OTHER, SAMPLES, Items, flat, losses_of, make_pruner

SEED = 5


def sampler_of(rank, kind=DistributedSampler, **options):
    return kind(Items(), num_replicas=WORLD, rank=rank, **options)


SHARES = (range(80), range(80, SAMPLES))
"""A sampler of the user's own, which deals very unevenly."""

SCENARIOS = {
    "weights": lambda rank: {"sampler": sampler_of(rank)},
    "padded": lambda rank: {"sampler": sampler_of(rank), "uneven": "pad"},
    "dropped": lambda rank: {"sampler": sampler_of(rank, drop_last=True)},
    "drop_last": lambda rank: {"sampler": sampler_of(rank), "drop_last": True},
    "both dropped": lambda rank: {"sampler": sampler_of(rank, drop_last=True), "drop_last": True},
    "in order": lambda rank: {"sampler": sampler_of(rank, shuffle=False)},
    # Not forked: gloo has threads, and a fork of a process that has some may wait for ever.
    "workers": lambda rank: {
        "sampler": sampler_of(rank),
        "num_workers": 2,
        "persistent_workers": True,
        "multiprocessing_context": "forkserver",
    },
    "stateful sampler": lambda rank: {"sampler": sampler_of(rank, StatefulDistributedSampler)},
    "uneven": lambda rank: {"sampler": list(SHARES[rank])},
    "Random": lambda rank: {"sampler": sampler_of(rank), "policy": Random()},
    "Random, dropped": lambda rank: {"sampler": sampler_of(rank, drop_last=True), "policy": Random()},
    "plain, resumed": lambda rank: {"sampler": sampler_of(rank), "stops": (5, 7, 8)},
    "stateful, resumed": lambda rank: {"sampler": sampler_of(rank), "stops": (5, 7, 8), "kind": StatefulDataLoader},
}


def build(kind=DataLoader, policy=None, uneven=None, **options):
    pruner = make_pruner(seed=SEED, **({"policy": policy} if policy else {}))
    return pruner, wrap(kind(Items(), batch_size=BATCH, **options), pruner, uneven=uneven)


def go(pruner, loader, log, stop=None):
    for epoch in pruner.epochs():
        entry = {"kept": np.flatnonzero(epoch.keep).tolist(), "length": len(loader), "batches": []}
        log.setdefault(epoch.number, entry)
        for _, index in loader:
            if pruner.policy.needs_losses:
                loader.observe(losses_of(index, epoch.number))
            log[epoch.number]["batches"].append(index.tolist())
            if stop == sum(len(each["batches"]) for each in log.values()):
                return


def scenario(stops=(), **options):
    """Train to the end, begun anew from a saved state after each number of batches in ``stops``."""
    pruner, loader = build(**options)
    log = {}
    for stop in stops:
        go(pruner, loader, log, stop)
        saved = io.BytesIO()
        torch.save((pruner.state_dict(), loader.state_dict()), saved)
        pruner, loader = build(**options)
        ours, position = torch.load(io.BytesIO(saved.getvalue()), weights_only=True)
        pruner.load_state_dict(ours)
        loader.load_state_dict(position)
    go(pruner, loader, log)
    return {
        "epochs": list(log.values()),
        "counts": pruner.counts.tolist(),
        "visits": pruner.visits.tolist(),
        "observed": [record["observed"] for record in pruner.history],
        "mean_loss": [record["mean_loss"] for record in pruner.history],
    }


def one_rank_forgets(rank):
    """Rank 1 leaves its first epoch early; say what each rank is told at its end."""
    pruner, loader = build(sampler=sampler_of(rank))
    try:
        for epoch in pruner.epochs():
            for _, index in islice(loader, 3 if rank else None):
                loader.observe(losses_of(index, epoch.number))
    except SkippedSamples as told:
        return str(told)
    return "nothing"


def all_samples_on_every_rank():
    """What a plain loader is told, which nobody splits."""
    pruner, loader = build(shuffle=True)
    try:
        for _ in pruner.epochs():
            next(iter(loader))
    except PrunedataError as told:
        return str(told)
    return "nothing"


def work(rank, folder, backend):
    with group(rank, folder, backend):
        found = {name: scenario(**options(rank)) for name, options in SCENARIOS.items()}
        found["one rank forgets"] = one_rank_forgets(rank)
        found["plain"] = all_samples_on_every_rank()
    return found


NO_GPUS = pytest.mark.skipif(torch.cuda.device_count() < WORLD, reason="NCCL needs a GPU for each of two ranks")


@pytest.fixture(scope="module", params=["gloo", pytest.param("nccl", marks=NO_GPUS)])
def ranks(request, tmp_path_factory):
    """What each rank found in each scenario."""
    return start(partial(work, backend=request.param), tmp_path_factory.mktemp("ranks"))


def each(ranks, *names):
    """The scenarios of these names, or all: for each, what every rank found."""
    return {name: [found[name] for found in ranks] for name in names or SCENARIOS}


def test_a_plain_loader_is_refused_before_its_first_batch(ranks):
    for found in ranks:
        assert "Expected a loader that splits each epoch over 2 processes" in found["plain"]
        assert "sampler=DistributedSampler(dataset)" in found["plain"]


def hits_of(batch, epoch):
    losses = losses_of(batch, epoch).double()
    return [index for index, loss in zip(batch, losses, strict=True) if loss > losses.mean()]


def test_all_ranks_derive_the_masks_that_the_merged_counts_give(ranks):
    for name, (first, second) in each(ranks).items():
        counts = np.zeros(SAMPLES, dtype=np.uint8)
        for number, (one, other) in enumerate(zip(first["epochs"], second["epochs"], strict=True)):
            pruned = 30 if EVERY_OTHER.prunes(number) else 0
            kept = np.flatnonzero(keep_mask(counts, pruned, seed=SEED, epoch=number)).tolist()
            assert one["kept"] == other["kept"] == kept, name
            if not name.startswith("Random"):
                pairs = zip_longest(one["batches"], other["batches"], fillvalue=[])
                if name == "uneven":  # each rank's batches are its own
                    batches = one["batches"] + other["batches"]
                else:
                    batches = [mine + theirs for mine, theirs in pairs]
                seen = set()
                for batch in batches:
                    new = [index for index in batch if index not in seen]  # what pads counts where it came first
                    counts[hits_of(new, number)] += 1
                    seen |= set(new)
        assert first["counts"] == second["counts"] == counts.tolist(), name
    padded = ranks[0]["padded"]["epochs"]
    assert padded[1]["kept"] != padded[3]["kept"]


def test_filtered_then_padded_or_dropped_then_dealt(ranks):
    for name, found in each(ranks, *(name for name in SCENARIOS if name != "uneven")).items():
        for number in range(EVERY_OTHER.epochs):
            shares = [rank["epochs"][number] for rank in found]
            keep = np.zeros(SAMPLES, dtype=bool)
            keep[shares[0]["kept"]] = True
            order = np.concatenate(list(epoch_order(keep, seed=SEED, epoch=number, shuffle=name != "in order")))
            total = len(order)
            if "dropped" in name:
                total -= total % WORLD
            elif name == "padded":
                total += total % WORLD
            elif name == "drop_last":
                total -= total % (WORLD * BATCH)
            for rank, share in enumerate(shares):
                ids = np.resize(order, total)[rank::WORLD].tolist()
                if name == "both dropped":
                    ids = ids[: len(ids) - len(ids) % BATCH]
                assert flat(share["batches"]) == ids, name
                assert share["length"] == len(share["batches"]) == -(-len(ids) // BATCH), name


def test_each_kept_sample_is_seen_and_padding_counts_once(ranks):
    names = ("weights", "padded", "in order", "uneven", "plain, resumed", "stateful, resumed")
    for name, found in each(ranks, *names).items():
        for rank in found:
            assert rank["observed"] == [len(epoch["kept"]) for epoch in rank["epochs"]] == [103, 73, 103, 73, 103], name
        visits = np.zeros(SAMPLES, dtype=int)
        for epoch in found[0]["epochs"]:
            visits[epoch["kept"]] += 1
        assert found[0]["visits"] == found[1]["visits"] == visits.tolist(), name
    seen = [sum(len(flat(rank["padded"]["epochs"][1]["batches"])) for rank in ranks), len(ranks[0]["padded"]["epochs"])]
    assert seen == [74, 5]  # one of 73 twice


def test_what_is_dropped_is_skipped(ranks):
    for name, observed in (("dropped", [102, 72]), ("drop_last", [96, 64]), ("both dropped", [96, 64])):
        for rank in each(ranks, name)[name]:
            assert rank["observed"][:2] == observed, name


def test_uneven_ranks_do_not_wait_for_each_other(ranks):
    for number, (one, other) in enumerate(zip(*(rank["uneven"]["epochs"] for rank in ranks), strict=True)):
        assert len(one["batches"]) > 2 * len(other["batches"]), number
        assert sorted(flat(one["batches"]) + flat(other["batches"])) == one["kept"]


def test_resumed_ranks_go_on_with_their_own_share(ranks):
    for rank in ranks:
        assert rank["plain, resumed"] == rank["stateful, resumed"] == rank["workers"] == rank["weights"]


def test_a_mean_loss_is_that_of_all_ranks(ranks):
    ids = [flat(rank["weights"]["epochs"][0]["batches"]) for rank in ranks]
    losses = losses_of(flat(ids), 0).double()
    for rank in ranks:
        assert rank["weights"]["mean_loss"][0] == pytest.approx(losses.mean().item())
        assert rank["Random"]["mean_loss"] == [None] * EVERY_OTHER.epochs


def test_all_ranks_are_told_what_one_left_out(ranks):
    """By then 24 of rank 1's 51 were seen."""
    for told in each(ranks, "one rank forgets")["one rank forgets"]:
        assert "of epoch 0 to be observed. Got 27 that were not" in told


def test_a_backend_without_or_says_the_same_by_the_largest(monkeypatch):
    """NCCL has none. Here no GPU is needed: the ranks' flags meet in this process."""
    rng, tallies = np.random.default_rng(0), [Tally(13) for _ in range(3)]
    for tally in tallies:
        tally.add(rng.permutation(13)[:6], rng.random(6) < 0.5)
    flags: list[np.ndarray] = []
    monkeypatch.setattr(torch_ranks, "_device", lambda: "cuda")
    monkeypatch.setattr(torch_ranks, "_largest", lambda mine: flags.append(mine) or np.maximum.reduce(flags))
    met = [torch_ranks._either(tally.bits()) for tally in tallies][-1]
    assert met.tolist() == np.bitwise_or.reduce([tally.bits() for tally in tallies]).tolist()
