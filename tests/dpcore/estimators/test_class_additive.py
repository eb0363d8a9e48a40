"""Additive models of several classes: bends that no line follows, what is refused, and what noise does."""

from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
import pytest

from dpcore.errors import ConfigurationError, OracleRefusedError
from dpcore.estimators.additive import PrivateAdditive
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


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"increasing": "x0"}, "increasing and decreasing are of two classes, and 'kind' is a label of 50 classes"),
        (
            {"pairs": True},
            "with 66 pairs there are 91 terms, and a model of 50 classes has at most 40; ",
        ),
    ],
)
def test_what_is_of_two_classes_is_refused_before_anything_is_asked(options, sentence):
    class Silent:
        schema, rows, epsilon, delta = SCHEMA, 10**6, Fraction(1), Fraction(1, 10**6)

    with pytest.raises(ConfigurationError, match=sentence):
        PrivateAdditive(**options).fit_queries(Silent())
