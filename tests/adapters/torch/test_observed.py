"""What is said when batches are left out, observed twice or not at all, and how a loop goes on from there."""

import copy
from itertools import islice

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from prunedata import Schedule
from prunedata.adapters.torch import wrap
from prunedata.errors import LossError, PrunedataError, SkippedSamples
from prunedata.policies import Random
from tests.adapters.helpers.torch import BATCH, Items, loader_of, losses_of, make_pruner, pruned
from tests.common.programs import WORKERS


def loop(loader, pruner, *, stop=None, first=0, observing=True):
    """A loop that leaves every epoch from ``first`` on after ``stop`` batches."""
    for epoch in pruner.epochs():
        for _, index in islice(loader, stop if epoch.number >= first else None):
            if observing:
                loader.observe(losses_of(index, epoch.number))


def test_of_two_loaders_the_one_whose_batch_waits_takes_losses_with_their_ids():
    pruner, first = pruned()
    second = wrap(loader_of(), pruner)
    pruner.begin_epoch()
    for _, index in first:
        losses = losses_of(index, 0).requires_grad_()
        pruner.observe(losses, index).backward()
        assert torch.equal(losses.grad, torch.full_like(losses, 1 / len(index)))
    next(iter(first)), next(iter(second))
    with pytest.raises(LossError, match="2 wrapped loaders that wait for losses"):
        pruner.observe(losses, index)


class TestWhatIsNotObserved:
    def test_a_batch_observed_twice_is_told(self):
        pruner, loader = pruned()
        pruner.begin_epoch()
        _, index = next(iter(loader))
        loader.observe(losses_of(index, 0))
        with pytest.raises(LossError, match=r"waits for its losses. Got none: observe each batch once"):
            loader.observe(losses_of(index, 0))

    def test_several_losses_of_a_sample_are_refused_with_their_number(self):
        pruner, loader = pruned()
        pruner.begin_epoch()
        _, index = next(iter(loader))
        with pytest.raises(LossError, match=f"{len(index)} ids and {3 * len(index)} losses.* mean"):
            pruner.observe(losses_of(index, 0).repeat(3))

    def test_a_data_set_that_has_grown_is_refused_in_its_next_epoch(self):
        items = Items()
        pruner = make_pruner()
        loader = wrap(DataLoader(items, batch_size=BATCH), pruner)
        pruner.begin_epoch()
        for _, index in loader:
            loader.observe(losses_of(index, 0))
        pruner.end_epoch()
        pruner.begin_epoch()
        items.samples = 2 * pruner.samples
        with pytest.raises(PrunedataError, match=f"{items.samples} in epoch 1"):
            next(iter(loader))

    def test_of_several_evaluations_of_a_batch_the_first_is_recorded(self):
        pruner, loader = pruned()
        pruner.begin_epoch()
        weights = torch.nn.Parameter(torch.zeros(3))
        optimizer = torch.optim.LBFGS([weights], max_iter=5)
        batches, evaluations = len(loader), []
        for _, index in loader:

            def closure(index=index):
                optimizer.zero_grad()
                losses = losses_of(index, 0) + (weights - 1).square().sum()
                evaluations.append(loader.awaits_losses)
                if not loader.awaits_losses:
                    with pytest.raises(LossError, match="LBFGS"):
                        pruner.observe(losses)
                mean = pruner.observe(losses) if loader.awaits_losses else losses.mean()
                mean.backward()
                return mean

            optimizer.step(closure)
        pruner.end_epoch()
        assert evaluations.count(True) == batches < len(evaluations)
        assert pruner.visits.tolist() == [1] * pruner.samples

    def test_a_loop_that_leaves_a_bad_batch_out_goes_on(self):
        pruner, loader = pruned()
        pruner.begin_epoch()
        for number, (_, index) in enumerate(loader):
            losses = losses_of(index, 0)
            if number == 0:
                with pytest.raises(LossError, match="finite"):
                    loader.observe(losses.new_full(losses.shape, torch.nan))
            else:
                loader.observe(losses)
        with pytest.raises(SkippedSamples, match="Got 8 that were not"):
            pruner.end_epoch()

    @pytest.mark.parametrize("skips", [1, 13])
    def test_a_loop_that_is_mended_and_run_again_gets_what_is_missing(self, skips):
        pruner, loader = pruned()
        pruner.begin_epoch()
        for number, (_, index) in enumerate(loader):
            if number >= skips:
                loader.observe(losses_of(index, 0), index)
        with pytest.raises(SkippedSamples):
            pruner.end_epoch()
        seen = []
        for epoch in pruner.epochs():
            for _, index in loader:
                loader.observe(losses_of(index, epoch.number))
                seen += index.tolist() if epoch.number == 0 else []
        told = make_pruner()
        assert sorted(seen) == sorted(np.concatenate(list(told.begin_epoch().batches(BATCH)))[: skips * BATCH])
        assert [record["observed"] for record in pruner.history] == [103, 73, 103, 73, 103]

    def test_a_batch_left_out_is_skipped_beside_what_drop_last_cuts(self):
        pruner, loader = pruned(drop_last=True, with_ids=True)
        for epoch in pruner.epochs():
            for number, (ids, _) in enumerate(loader):
                if number in (3, 5):
                    pruner.skip(len(ids))
                else:
                    loader.observe(losses_of(ids, epoch.number), ids)
        assert [record["observed"] for record in pruner.history] == [80, 56, 80, 56, 80]

    @pytest.mark.parametrize(
        ("run", "options", "found"),
        [
            ({}, {"observing": False}, "103 of them were delivered"),
            ({}, {"stop": 3}, "79 of them"),
            ({"policy": Random()}, {"stop": 5}, "did not deliver 63 "),
            ({"policy": Random()}, {"stop": 5, "observing": False}, "did not deliver 63 "),
        ],
        ids=["never observes", "left early", "left early, Random", "never observed, Random"],
    )
    def test_a_loop_that(self, run, options, found):
        pruner = make_pruner(**run)
        with pytest.raises(SkippedSamples, match=found):
            loop(wrap(loader_of(), pruner), pruner, **options)

    def test_a_frozen_length(self):
        """Lightning, HF Trainer and Keras all run as many batches as the first epoch had."""
        pruner = make_pruner(schedule=Schedule(4, window=4, start=1, block=2, pruned_per_block=1))
        loader = wrap(loader_of(), pruner)
        frozen = -(-73 // BATCH)
        with pytest.raises(SkippedSamples, match=r"of epoch 2 .* Got 23 that were not.* did not deliver 23"):
            loop(loader, pruner, stop=frozen, first=1)
        assert pruner.next_epoch == 2


class TestTwoIteratorsOfOneLoader:
    """As zip(loader, loader) makes them: both give every sample."""

    def both(self, loader, pruner, batches=None):
        pruner.begin_epoch()
        for pairs in zip(loader if batches is None else batches, loader if batches is None else batches, strict=True):
            for ids, (_, index) in pairs:
                loader.observe(losses_of(index, 0), ids)

    @WORKERS
    @pytest.mark.parametrize(
        "options",
        [{}, {"shuffle": None, "sampler": list(range(103))}, {"batch_size": 200}],
        ids=["ours", "a user's", "one batch"],
    )
    def test_is_told_at_the_next_batch(self, workers, options):
        pruner = make_pruner()
        loader = wrap(DataLoader(Items(), **{"batch_size": BATCH, "shuffle": True, "num_workers": workers, **options}),
                       pruner, with_ids=True)  # fmt: skip
        with pytest.raises(PrunedataError, match=r"one iterator at a time .* zip\(loader, loader\)"):
            self.both(loader, pruner)

    def test_is_told_without_ids_and_of_a_copy(self):
        pruner, loader = pruned()
        pruner.begin_epoch()
        with pytest.raises(PrunedataError, match="one iterator at a time"):
            for _ in zip(loader, copy.copy(loader), strict=True):
                pass

    def test_is_told_to_who_iterates_its_batch_sampler(self):
        """As accelerate does."""
        pruner, loader = pruned(with_ids=True)
        with pytest.raises(PrunedataError, match="one iterator at a time"):
            self.both(loader, pruner, DataLoader(loader.dataset, batch_sampler=loader.batch_sampler,
                                                 collate_fn=loader.collate_fn))  # fmt: skip
