"""Persons of a real table: years of the RAND health insurance experiment, of which each person has one to five."""

from fractions import Fraction

import pytest

from benchmarks.datasets import SHARED
from parties.data.schema_draft import infer
from radofed import simulate
from radofed.planning.asked_cost import ask_cost
from radofed.planning.asked_queries import AskRequest

TABLE = SHARED / "randhie.csv.gz"
pytestmark = pytest.mark.skipif(not TABLE.is_file(), reason="the shared data sets are not beside this checkout")


@pytest.mark.slow
def test_a_poisson_regression_of_persons_explains_most_of_what_a_pooled_one_does():
    asked = {"label": "mdvis", "target": "count", "estimators": "newton", "unit": "person", "id_column": "person"}
    found = simulate(TABLE, epsilon=3, parties=4, folds=5, workers=0, **asked)
    explained = {each.learner: each.explained_mean for each in found.summaries}
    assert explained["newton"] >= 0.9 * explained["pooled"]
    assert found.asked["newton"].unit == "one person, with all rows at one party"


@pytest.mark.more
def test_a_plan_warns_at_the_epsilons_that_do_not_suffice():
    schema, _ = infer(TABLE, "mdvis", None, target="count", left_out={"person": "the ids of persons"})
    plan = {"party_rows": (1478,) * 4, "schema": schema, "estimator": "newton", "unit": "person"}
    found = {epsilon: ask_cost(AskRequest(epsilon=Fraction(epsilon), **plan)) for epsilon in (1, 2, 3)}
    assert [cost.warning is None for cost in found.values()] == [False, False, True]
    assert "too small to learn nearly as well as without privacy" in found[1].warning
    assert "an epsilon of 5" in found[1].warning
