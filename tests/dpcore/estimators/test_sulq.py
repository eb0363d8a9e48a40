"""k-means and principal components over an oracle: what is asked, what it costs, and what is found."""

from fractions import Fraction

import numpy as np
import pytest

from dpcore.errors import ConfigurationError, OracleRefusedError, SchemaError, ShapeError
from dpcore.estimators.oracle import RowOracle
from dpcore.estimators.sulq import KMeans, PrincipalComponents, cells_of, coordinates_of
from dpcore.predicates.disjoint import batch_sensitivity
from dpcore.predicates.evaluation import sums
from tests.dpcore.estimators.oracle_world import category, divided, flag, real, records, schema_of

PLANE = schema_of(real("a"), real("b"))
CENTRES = np.array([[-0.6, -0.5], [0.5, -0.4], [0.1, 0.6]])


def clouds(rows, seed, spread=0.12):
    random = np.random.default_rng(seed)
    cluster = random.choice(3, rows, p=[0.5, 0.3, 0.2])
    points = np.clip(CENTRES[cluster] + random.normal(0, spread, (rows, 2)), -1, 1)
    return np.column_stack([points, np.ones(rows)]), random.choice([-1, 1], rows), cluster


def matched(found):
    """Distances to the true centres in the best order."""
    return np.linalg.norm(found[:, np.newaxis] - CENTRES, axis=2).min(axis=0)


@pytest.mark.parametrize(("epsilon", "delta", "most"), [(None, 0, 0.05), (1, 0, 0.1), (1, Fraction(1, 10**6), 0.1)])
def test_centres_of_clouds_are_found_within_a_budget(epsilon, delta, most):
    x, labels, cluster = clouds(20_000, 1)
    oracle = divided(PLANE, x, labels, epsilon=epsilon, delta=delta)
    learner = KMeans(clusters=3, rounds=6).fit_queries(oracle)
    assert matched(learner.centres_).max() < most
    assert np.sort(learner.shares_) == pytest.approx([0.2, 0.3, 0.5], abs=0.03)
    assert sum(part for _, part in oracle.releases) == 1
    # Clusters agree with the clouds, up to their names.
    table = np.histogram2d(learner.predict(x), cluster, bins=3)[0]
    assert table.max(axis=0).sum() > 0.97 * len(x)


def test_a_round_without_noise_is_a_step_of_lloyd():
    x, labels, _ = clouds(3000, 2)
    start = np.array([[-0.5, 0.0], [0.5, 0.0], [0.0, 0.5]])
    learner = KMeans(clusters=3, rounds=1, centres=start).fit_queries(divided(PLANE, x, labels))
    nearest = np.square(x[:, np.newaxis, :2] - start).sum(axis=2).argmin(axis=1)
    expected = np.array([x[nearest == place, :2].mean(axis=0) for place in range(3)])
    assert learner.centres_ == pytest.approx(expected, abs=2e-3)
    assert learner.shares_ == pytest.approx(np.bincount(nearest) / 3000)


def test_cells_are_a_partition_that_costs_two_for_each_coordinate_and_their_counts():
    schema = schema_of(real("a"), flag("f"), category("job", "abc"))
    names = coordinates_of(schema)
    random = np.random.default_rng(3)
    cells = cells_of(random.uniform(-1, 1, (6, len(names))), names)
    x = np.column_stack(
        [
            random.uniform(-1, 1, 500),
            random.choice([-1.0, 1.0], 500),
            np.eye(3)[random.integers(0, 3, 500)],
            np.ones(500),
        ]
    )
    table = records(x, np.ones(500))
    assert sums(cells, schema, table, 0).sum() == 500
    learner, oracle = KMeans(clusters=6, rounds=1), divided(schema, x, np.ones(500))
    learner.fit_queries(oracle)
    ((asked, _),) = oracle.releases
    found = batch_sensitivity(asked)
    assert len(asked) == 6 * (1 + len(names))
    assert (found.l1, found.l2_squared) == (2 * (1 + len(names)),) * 2


def test_an_empty_cell_keeps_its_centre_and_says_so():
    x, labels, _ = clouds(5000, 4)
    start = [[-0.6, -0.5], [0.4, 0.0], [-1.0, 1.0]]
    learner = KMeans(clusters=3, rounds=1, centres=start).fit_queries(divided(PLANE, x, labels, epsilon=1))
    assert learner.centres_[2].tolist() == [-1.0, 1.0]
    assert "1 of 3 cells" in learner.warning_


def test_refusals():
    x, labels, _ = clouds(100, 5)
    oracle = divided(PLANE, x, labels)
    for options in ({"clusters": 1}, {"clusters": 40}, {"rounds": 0}):
        with pytest.raises(ConfigurationError):
            KMeans(**options).fit_queries(oracle)
    for centres in ([[0.0, 0.0]], [[0.0, 0.0], [0.0, 2.0]]):
        with pytest.raises(ShapeError):
            KMeans(clusters=2, centres=centres).fit_queries(oracle)
    assert not oracle.releases
    with pytest.raises(OracleRefusedError):
        KMeans().fit_queries(divided(PLANE, x, labels, answers=0))
    kept = KMeans(rounds=3).fit_queries(divided(PLANE, x, labels, answers=1))
    assert kept.warning_.startswith("kept the centres of 1 of 3 rounds")


def test_components_of_rows_are_those_of_their_covariance():
    random = np.random.default_rng(6)
    x = random.normal(size=(4000, 3)) @ np.diag([0.5, 0.2, 0.05]) @ np.linalg.qr(random.normal(size=(3, 3)))[0] / 4
    edges = np.column_stack([x, np.ones(4000)]) * random.choice([-1, 1], 4000)[:, np.newaxis]
    oracle = RowOracle(edges)
    learner = PrincipalComponents(components=3).fit_queries(oracle)
    rows = oracle.edges * oracle.edges[:, -1:]
    values, vectors = np.linalg.eigh(np.cov(rows[:, :-1].T, bias=True))
    assert learner.variances_ == pytest.approx(values[::-1])
    assert np.abs((learner.components_ * vectors[:, ::-1].T).sum(axis=1)) == pytest.approx(1.0)
    assert np.var(learner.transform(rows), axis=0) == pytest.approx(values[::-1])
    assert learner.warning_ is None
    with pytest.raises(ConfigurationError):
        PrincipalComponents(components=4).fit_queries(oracle)


def test_moments_without_a_bias_have_no_mean():
    moments = RowOracle(np.eye(3)).moments()
    object.__setattr__(moments, "bias", False)
    with pytest.raises(SchemaError, match="bias"):
        PrincipalComponents().fit_moments(moments)
