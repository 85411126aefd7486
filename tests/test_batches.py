"""Buckets waste little."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from vsdn.batches import bucket_lengths


@given(lengths=st.lists(st.integers(1, 60), min_size=1, max_size=40), count=st.integers(1, 4))
@settings(deadline=None)
def test_buckets_are_the_cheapest(lengths, count):
    lengths = np.array(lengths)
    ends = bucket_lengths(lengths, count)
    assert len(ends) <= count
    cost = lambda ends: np.sum(np.asarray(ends)[np.searchsorted(ends, lengths)])
    sizes = np.unique(lengths)
    if len(sizes) <= 8:  # few enough to try all
        subsets = (sizes[[bool(number >> i & 1) for i in range(len(sizes))]] for number in range(2 ** len(sizes)))
        best = min(cost(s) for s in subsets if 1 <= len(s) <= count and s[-1] == sizes[-1])
        assert cost(ends) == best
    assert ends[-1] == lengths.max()
