"""The authors' protocol gives the authors' errors, and its draws have their distribution."""

import statistics
from math import comb

import numpy as np
import pytest

from benchmarks.datasets import SHARED
from benchmarks.paper_protocol import WAYS, draw_fixed_support, folds_of, paper_sets
from benchmarks.paper_tables import PROGRAM


@pytest.mark.more
@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data sets are not beside this checkout")
@pytest.mark.parametrize(
    "name",
    [
        "fertility",
        pytest.param("banknote", marks=pytest.mark.slow),
        pytest.param("ionosphere", marks=pytest.mark.slow),
        pytest.param("abalone", marks=pytest.mark.slow),
        pytest.param("wine_white", marks=pytest.mark.slow),
    ],
)
def test_errors_are_within_one_standard_deviation_of_the_authors(name):
    data = next(one for one in paper_sets(everything=False) if one.name == name)
    references = [one for one in PROGRAM if one.name == name]
    assert len(references) == 2
    folds = folds_of(data, 0)
    for reference in references:
        error = statistics.fmean(WAYS[reference.way](fold) for fold in folds)
        assert abs(error - reference.mean) <= reference.deviation


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
