"""Losses that are no numbers are neither suspect nor clean: they become the mean of the others."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from prunedata.adapters.torch.losses import finite

ODD = st.sampled_from([float("nan"), float("inf"), float("-inf")])
LOSSES = st.lists(st.floats(width=32, min_value=-100, max_value=100) | ODD, min_size=1)


@given(LOSSES)
def test_they_become_the_mean_of_the_others(given):
    losses = torch.tensor(given)
    fine = torch.isfinite(losses)
    found = finite(losses)
    assert torch.isfinite(found).all()
    assert torch.equal(found[fine], losses[fine])
    mean = losses[fine].mean() if fine.any() else torch.tensor(0.0)
    torch.testing.assert_close(found[~fine], mean.expand(int((~fine).sum())))
