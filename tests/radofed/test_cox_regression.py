"""Cox's regression agrees with a general minimiser of the partial likelihood, written out event time by event time."""

import numpy as np
import pytest
from scipy import optimize

from dpcore.errors import DataError
from radofed.simulation.cox import cox_regression

pytestmark = pytest.mark.more


def test_the_partial_likelihood_is_at_its_maximum_with_ties_and_over_several_blocks():
    random = np.random.default_rng(1)
    rows = 5_000
    x = random.normal(size=(rows, 3))
    times = np.ceil(random.exponential(size=rows) / np.exp(x @ [0.5, -0.3, 0.0]) * 10.0)
    happened = random.random(rows) < 0.7

    def loss(theta):
        found = 5e-4 * theta @ theta
        for time in np.unique(times[happened]):
            tied = (times == time) & happened
            found += tied.sum() * np.log(np.exp(x[times >= time] @ theta).sum()) - (x[tied] @ theta).sum()
        return found

    found = optimize.minimize(loss, np.zeros(3), method="BFGS", options={"gtol": 1e-5})
    assert cox_regression(x, times, happened) == pytest.approx(found.x, abs=1e-5)


def test_rows_without_events_are_refused():
    with pytest.raises(DataError, match="no row has the event"):
        cox_regression(np.ones((3, 1)), np.arange(3.0), np.zeros(3, dtype=bool))
