"""The authors' protocol gives the authors' errors, and its draws have their distribution."""

from math import comb

import numpy as np

from benchmarks.paper_protocol import draw_fixed_support


def test_a_rado_of_fixed_support_sums_that_many_rows_each_equally_often():
    # Row i is 1 in coordinate i, so a rado shows its signature.
    rados = draw_fixed_support(np.eye(6), 6000, 2, np.random.RandomState(4))
    assert set(np.unique(rados)) == {0.0, 1.0}
    assert np.all(rados.sum(axis=1) == 2)
    _signatures, counts = np.unique(rados, axis=0, return_counts=True)
    assert len(counts) == comb(6, 2)
    # 400 expected of each, with a standard deviation of 19.
    assert counts.min() > 310
    assert counts.max() < 490
