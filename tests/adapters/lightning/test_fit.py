"""Lightning's own Trainer: epochs of the wanted length, every one validated, the rate where its schedule says."""

import numpy as np
import pytest

from tests.adapters.lightning.helpers import QUIET, Net, flat, loader_of, pruner_of, trainer_of, validation

pytestmark = QUIET


def kept_by(pruner):
    """Note the mask of each epoch as it begins."""
    masks, begin = {}, pruner.begin_epoch

    def noted():
        epoch = begin()
        masks[epoch.number] = epoch.keep
        return epoch

    pruner.begin_epoch = noted
    return masks


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("lengths", [[10, 6, 8, 12, 5, 9], [6, 10, 8, 12, 9, 5], [12, 6, 12, 6, 6, 12]], ids=str)
def test_epochs_have_the_samples_that_are_kept(lengths, workers):
    pruner, net = pruner_of(lengths), Net()
    masks = kept_by(pruner)
    trainer_of(pruner).fit(net, loader_of(pruner, num_workers=workers), validation())
    assert net.lengths == lengths
    for epoch, batches in net.epochs.items():
        assert sorted(flat(batches)) == np.flatnonzero(masks[epoch]).tolist()
    assert [record["observed"] for record in pruner.history] == [4 * length for length in lengths]
    assert net.validated == list(range(6))
    assert net.total == sum(lengths) == len(net.rates)
    assert net.rate == pytest.approx(0)
    assert not np.array_equal(masks[1], masks[4])
