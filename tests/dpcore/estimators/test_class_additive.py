"""Additive models of several classes: bends that no line follows, what is refused, and what noise does."""

from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
import pytest

from dpcore.errors import ConfigurationError, OracleRefusedError
from dpcore.estimators.additive import PrivateAdditive
from dpcore.estimators.additive_terms import conditions_of_classes
from dpcore.estimators.oracle import ClassRowOracle
from dpcore.estimators.private_newton import PrivateNewton
from dpcore.records.feature_map import Hat, Product
from dpcore.records.features import Classes, RealFeature
from dpcore.records.schema import Schema

ROWS = 2000


def uniform(columns: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (ROWS, columns))


def oracle_of(x: np.ndarray, codes: np.ndarray) -> ClassRowOracle:
    return ClassRowOracle(np.column_stack([x, np.ones(len(x))]), codes.astype(np.int64), int(codes.max()) + 1)


def bent(seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Three classes: the middle of a column, its ends, and one where another column is high."""
    x = uniform(2, seed)
    codes = np.where(np.abs(x[:, 0]) > 0.5, 1, 0)
    return x, np.where(x[:, 1] > 0.6, 2, codes)


def error(estimator: PrivateAdditive | PrivateNewton, x: np.ndarray, codes: np.ndarray) -> float:
    return float(np.mean(estimator.predict(np.column_stack([x, np.ones(len(x))])) != codes))


@dataclass
class Noisy:
    """An oracle that adds noise to gradients, notes what it is asked, and refuses after some answers."""

    exact: ClassRowOracle
    noise: float = 0.0
    answers: int = 99
    epsilon: Fraction = Fraction(1)
    delta: Fraction = Fraction(1, 10**6)
    rows: int = 10**6
    parts: list[Fraction] = field(default_factory=list)

    def __getattr__(self, name):
        return getattr(self.exact, name)

    def _note(self, part):
        self.parts.append(part)
        if len(self.parts) > self.answers:
            raise OracleRefusedError("the budget of a party", spent="something")

    def statistic(self, predicates, **given):
        self._note(given["part"])
        return self.exact.statistic(predicates, **given)

    def class_moments(self, **given):
        self._note(given["part"])
        return self.exact.class_moments(**given)

    def class_gradient(self, theta, **given):
        self._note(given["part"])
        found = self.exact.class_gradient(theta, **given)
        drawn = np.random.default_rng(len(self.parts)).normal(scale=self.noise, size=found.mean.shape)
        return replace(found, mean=found.mean + drawn, deviation=self.noise)


def test_curves_of_each_class_follow_bends_that_no_line_follows():
    x, codes = bent()
    oracle = oracle_of(x, codes)
    fitted = PrivateAdditive().fit_queries(oracle)
    assert error(PrivateNewton().fit_queries(oracle), x, codes) > 0.25
    assert error(fitted, x, codes) < 0.08
    assert fitted.theta_.shape == (3, fitted.feature_map_.d)
    assert fitted.theta_.sum(axis=0) == pytest.approx(0.0, abs=1e-9)
    assert any(isinstance(term.function, Hat) for term in fitted.feature_map_.terms)
    assert fitted.pairs_ == []
    assert fitted.covariance_ is None
    assert fitted.warning_ is None
    assert fitted.decision_function(np.column_stack([x, np.ones(len(x))])).shape == (ROWS, 3)


@pytest.mark.more
def test_named_pairs_and_all_pairs_have_products():
    x = uniform(3)
    codes = np.where(x[:, 0] * x[:, 1] > 0, 0, np.where(x[:, 2] > 0, 1, 2))
    oracle = oracle_of(x, codes)
    for pairs, count in (("x0*x1", 1), (True, 3)):
        fitted = PrivateAdditive(pairs=pairs).fit_queries(oracle)
        assert sum(isinstance(term.function, Product) for term in fitted.feature_map_.terms) == count
        assert error(fitted, x, codes) < 0.12


def test_the_parts_of_the_budget_add_up_to_one_and_a_refusal_keeps_the_result_so_far():
    x, codes = bent()
    whole, cut = Noisy(oracle_of(x, codes)), Noisy(oracle_of(x, codes), answers=6)
    assert PrivateAdditive().fit_queries(whole).rounds_done_ == 10
    assert sum(whole.parts) == 1
    fitted = PrivateAdditive().fit_queries(cut)
    assert fitted.rounds_done_ == 6
    assert fitted.warning_.startswith("received 6 of 10 releases: ")
    assert error(fitted, x, codes) < 0.12


@pytest.mark.more
def test_weights_shrink_more_with_noise_and_those_of_a_rare_class_most():
    x, codes = bent()
    codes = np.where((codes == 2) & (np.arange(ROWS) % 10 > 0), 0, codes)
    quiet, loud = (PrivateAdditive(rounds=6).fit_queries(Noisy(oracle_of(x, codes), noise)) for noise in (1e-4, 0.02))
    assert np.isfinite(loud.theta_).all()
    assert error(loud, x, codes) < 0.25
    lengths = np.linalg.norm(loud.theta_[:, :-1], axis=1) / np.linalg.norm(quiet.theta_[:, :-1], axis=1)
    assert lengths.argmin() == 2


def test_too_little_budget_for_each_class_is_straight():
    x, codes = bent()
    oracle = Noisy(oracle_of(x, codes), rows=400)
    fitted = PrivateAdditive().fit_queries(oracle)
    assert fitted.feature_map_ is None
    assert "the model is straight" in fitted.warning_
    assert fitted.theta_.shape == (3, 3)


SCHEMA = Schema(
    name="many",
    label=Classes(column="kind", values=tuple(map(str, range(50)))),
    features=tuple(RealFeature(name=f"x{n}", lower=0.0, upper=1.0) for n in range(12)),
)


def test_pairs_that_do_not_fit_are_refused_before_anything_is_asked():
    class Silent:
        schema, rows, epsilon, delta = SCHEMA, 10**6, Fraction(1), Fraction(1, 10**6)

    with pytest.raises(ConfigurationError, match="with 66 pairs there are 91 terms, and a model of 50 classes has"):
        PrivateAdditive(pairs=True).fit_queries(Silent())


GRID = np.linspace(-1.0, 1.0, 401)
ROUNDING = 1e-8


def steps(fitted: PrivateAdditive, column: int = 0, other: float = 0.2) -> np.ndarray:
    """Of each class against the one before, how its log odds move along a column."""
    rows = np.column_stack([np.full((len(GRID), 2), other), np.ones(len(GRID))])
    rows[:, column] = GRID
    return np.diff(np.diff(fitted.decision_function(rows), axis=1), axis=0)


def graded(seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Four grades that rise with one column, by a curve, and fall with the other."""
    x = uniform(2, seed)
    level = 3.0 * np.tanh(3.0 * x[:, 0]) - x[:, 1] + 0.8 * np.random.default_rng(seed).logistic(size=len(x))
    return x, np.digitize(level, [-2.0, 0.0, 2.0])


def test_log_odds_of_later_classes_rise_and_fall_as_told():
    x, codes = bent()
    for noise in (1e-4, 0.02):
        free = PrivateAdditive().fit_queries(Noisy(oracle_of(x, codes), noise))
        told = PrivateAdditive(increasing="x0", decreasing=["x1"]).fit_queries(Noisy(oracle_of(x, codes), noise))
        assert steps(free).min() < -1e-3
        assert steps(told).min() >= -ROUNDING
        assert steps(told, 1).max() <= ROUNDING
        assert told.theta_.sum(axis=0) == pytest.approx(0.0, abs=1e-9)


def test_the_chance_of_a_class_or_a_later_one_never_falls():
    x, codes = bent(2)
    told = PrivateAdditive(increasing="x0").fit_queries(Noisy(oracle_of(x, codes), 0.01))
    scores = told.decision_function(np.column_stack([GRID, np.full(len(GRID), 0.9), np.ones(len(GRID))]))
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    later = np.cumsum(chances[:, ::-1], axis=1)[:, :-1]
    assert np.diff(later, axis=0).min() >= -ROUNDING
    # A score by itself may fall: of the middle class it says nothing.
    assert np.diff(scores, axis=0).min() < -1e-6


@pytest.mark.more
def test_where_grades_rise_the_order_costs_nothing():
    x, codes = graded()
    new, true = graded(7)
    free, told = (
        PrivateAdditive(**options).fit_queries(Noisy(oracle_of(x, codes), 0.02))
        for options in ({}, {"increasing": "x0", "decreasing": "x1"})
    )
    assert error(told, new, true) <= error(free, new, true) + 0.01
    quiet = PrivateAdditive(increasing="x0", decreasing="x1").fit_queries(oracle_of(x, codes))
    assert error(quiet, new, true) <= error(PrivateAdditive().fit_queries(oracle_of(x, codes)), new, true) + 0.01


def test_of_two_classes_it_is_the_direction_of_the_score():
    rows = np.array([[1.0, 0.0, -1.0], [0.0, 2.0, 1.0]])
    weights = np.array([0.5, -1.0, 2.0])
    of_both = conditions_of_classes(rows, 2) @ np.concatenate([-weights / 2.0, weights / 2.0])
    assert of_both == pytest.approx(rows @ weights)


def test_a_straight_model_keeps_the_order_of_classes():
    x, codes = bent()
    told = PrivateAdditive(increasing="x1").fit_queries(Noisy(oracle_of(x, (codes + 1) % 3), rows=400))
    assert told.feature_map_ is None
    assert np.diff(told.theta_[:, 1]).min() >= -1e-12
    free = PrivateAdditive().fit_queries(Noisy(oracle_of(x, (codes + 1) % 3), rows=400))
    assert np.diff(free.theta_[:, 1]).min() < -0.1
