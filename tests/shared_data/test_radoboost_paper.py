"""The authors' protocol gives the authors' errors on the authors' tables."""

import statistics

import pytest

from benchmarks.datasets import SHARED
from benchmarks.paper_protocol import WAYS, folds_of, paper_sets
from benchmarks.paper_tables import PROGRAM


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data sets are not beside this checkout")
@pytest.mark.more
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
