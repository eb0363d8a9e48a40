"""A simulation of times to an event: drafted from the table, asked of parties, beside Cox's regression."""

import numpy as np
import pytest

from dpcore.errors import ConfigurationError, DataError
from radofed.simulation.entry import simulate

pytestmark = pytest.mark.more

ROWS = 3_000


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    random = np.random.default_rng(4)
    age, smoker = random.uniform(30.0, 90.0, ROWS), random.integers(0, 2, ROWS)
    times = random.exponential(12.0 / np.exp(0.04 * (age - 60.0) + 0.5 * smoker))
    last = random.uniform(0.1, 30.0, ROWS)
    lines = [
        f"{a:.1f},{'yes' if s else 'no'},{max(min(t, e), 0.01):.3f},{int(t <= e)}"
        for a, s, t, e in zip(age, smoker, times, last, strict=True)
    ]
    path = tmp_path_factory.mktemp("times") / "people.csv"
    path.write_text("\n".join(["age,smoker,years,died", *lines]) + "\n")
    return path


def test_hazards_order_the_test_rows_nearly_as_cox_on_the_pooled_rows(table):
    found = simulate(
        table,
        label="years",
        event="died",
        target="event",
        estimators="hazards",
        epsilon="3",
        parties=3,
        folds=3,
        workers=0,
    )
    figures = {each.learner: each.figures() for each in found.summaries}
    pooled, own = (figures[name]["concordance_mean"] for name in ("pooled", "hazards"))
    assert pooled > 0.65
    assert own > pooled - 0.02
    assert figures["majority"]["concordance_mean"] == 0.5
    assert found.asked["hazards"].epsilon_if_others_collude <= 3


def test_what_does_not_fit_is_refused(table):
    options = {"label": "years", "parties": 2, "epsilon": "1", "workers": 0}
    with pytest.raises(ConfigurationError, match="second column"):
        simulate(table, target="event", estimators="hazards", **options)
    with pytest.raises(DataError, match="deaths"):
        simulate(table, target="event", event="deaths", estimators="hazards", **options)
    with pytest.raises(ConfigurationError, match="choose hazards"):
        simulate(table, target="event", event="died", estimators="newton", **options)
    with pytest.raises(ConfigurationError, match="learns a time to an event"):
        simulate(table, target="number", estimators="hazards", **options)
