"""Additive models: bent, jumping and crossed data without noise, what noise and refusals do, and the budget."""

import re
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import combinations, islice
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dpcore.accounting.gaussian import gaussian_mu
from dpcore.errors import ConfigurationError, OracleRefusedError
from dpcore.estimators import additive_pairs
from dpcore.estimators.additive import PrivateAdditive
from dpcore.estimators.additive_pairs import PAIRS_INFORMATION, PlannedPairs, Sizes, choice_squared, named_pairs
from dpcore.estimators.additive_terms import FALLING, RISING, directions_of
from dpcore.estimators.oracle import RowOracle
from dpcore.estimators.private_histograms import Histogram, histograms
from dpcore.estimators.private_newton import PrivateNewton
from dpcore.numbers.fixed_point import ONE
from dpcore.predicates.disjoint import batch_sensitivity
from dpcore.records.clipping import Basis
from dpcore.records.feature_map import Hat, PointMass, Product
from dpcore.records.schema import BooleanFeature, Label, RealFeature, Schema
from dpcore.statistics.accuracy import Estimates

ROWS = 4000


def edges(x, labels):
    y = np.where(labels, 1.0, -1.0)[:, None]
    return np.column_stack([x, np.ones(len(x))]) * y


def uniform(columns: int, seed: int = 1):
    return np.random.default_rng(seed).uniform(-1, 1, (ROWS, columns))


def error(estimator, oracle) -> float:
    x = oracle.edges * oracle.edges[:, -1:]
    return float(np.mean(np.where(estimator.decision_function(x) > 0, 1, -1) != oracle.edges[:, -1]))


def many_columns(columns: int) -> Schema:
    features = tuple(RealFeature(name=f"x{n}", lower=0.0, upper=1.0) for n in range(columns))
    return Schema(name="many", label=Label(column="y", positive=("1",)), features=features)


@dataclass
class Recorded:
    """An oracle that notes what it is asked, adds noise to gradients, and refuses after some answers."""

    rows_oracle: RowOracle
    answers: int = 99
    noise: float = 0.0
    asked: list[tuple[str, Fraction]] = field(default_factory=list)
    clips: list[Fraction] = field(default_factory=list)
    edge_weights: list[Fraction] = field(default_factory=list)
    bases: list[Basis] = field(default_factory=list)

    def __getattr__(self, name):
        return getattr(self.rows_oracle, name)

    def _note(self, kind, part):
        self.asked.append((kind, part))
        if len(self.asked) > self.answers:
            raise OracleRefusedError("the budget of a party", spent="something")

    def statistic(self, predicates, **given):
        self._note("statistic", given["part"])
        return self.rows_oracle.statistic(predicates, **given)

    def moments(self, **given):
        self._note("moments", given["part"])
        if "edge_weight" in given:
            self.edge_weights.append(given["edge_weight"] / given["norm_bound"])
        return self.rows_oracle.moments(**given)

    def gradient(self, theta, **given):
        self._note("gradient", given["part"])
        self.clips.append(given["clip"])
        self.bases.append(given["basis"])
        found = self.rows_oracle.gradient(theta, **given)
        drawn = np.random.default_rng(len(self.asked)).normal(scale=self.noise, size=len(found.mean))
        return type(found)(mean=found.mean + drawn, deviation=self.noise, rows=found.rows)


def test_it_follows_a_bend_that_no_line_follows():
    x = uniform(3)
    oracle = RowOracle(edges(x, np.abs(x[:, 0]) > 0.5))
    assert error(PrivateNewton().fit_queries(oracle), oracle) > 0.4
    assert error(PrivateAdditive(pairs=False).fit_queries(oracle), oracle) < 0.08


@pytest.mark.more
def test_a_pair_follows_a_slope_that_depends_on_another_column():
    x = uniform(3)
    oracle = RowOracle(edges(x, x[:, 0] * x[:, 1] > 0))
    assert error(PrivateAdditive(pairs=False).fit_queries(oracle), oracle) > 0.4
    assert error(PrivateAdditive().fit_queries(oracle), oracle) < 0.1


def test_a_column_that_is_zero_in_nine_rows_of_ten_has_its_point_mass():
    x = uniform(2)
    x[:, 0] = np.where(np.random.default_rng(2).random(ROWS) < 0.9, 0.0, np.abs(x[:, 0]))
    oracle = RowOracle(edges(x, (x[:, 0] > 0) & (x[:, 0] < 0.6)))
    fitted = PrivateAdditive(pairs=False).fit_queries(oracle)
    points = [term.function for term in fitted.feature_map_.terms if isinstance(term.function, PointMass)]
    # The oracle scales the column, so that 0 is its lower bound.
    assert [(point.coordinate, point.at) for point in points] == [(0, -(1 << 30))]
    hats = [term.function for term in fitted.feature_map_.terms if isinstance(term.function, Hat)]
    assert len({hat.peak for hat in hats if hat.coordinate == 0}) == 4
    assert error(fitted, oracle) < 0.02


def test_columns_whose_bounds_are_too_wide_for_their_knots_are_named():
    """Far from zero, where cells are not divided."""
    x = uniform(2)
    # RowOracle takes the ends as bounds.
    x[2:, 1], x[:2, 1] = 0.3 + 1e-4 * x[2:, 1], (-1.0, 1.0)
    fitted = PrivateAdditive(pairs=False, rounds=3).fit_queries(RowOracle(edges(x, x[:, 0] > 0)))
    assert "most values of 'x1' are in one cell" in fitted.warning_
    assert "give narrower bounds" in fitted.warning_


def test_where_noise_rules_a_line_stays_a_line():
    x = uniform(4)
    noisy = Recorded(RowOracle(edges(x, x[:, 0] + 0.5 * np.random.default_rng(3).logistic(size=ROWS) > 0)), noise=0.02)
    fitted = PrivateAdditive(pairs=False).fit_queries(noisy)
    slopes = [size for name, size in fitted.groups_.items() if name == "x0, slope"]
    bends = [size for name, size in fitted.groups_.items() if name.endswith("bends")]
    assert min(slopes) > 20 * max(bends)
    assert error(fitted, noisy) < error(PrivateNewton().fit_queries(noisy), noisy) + 0.01


def test_where_nothing_bends_later_gradients_are_about_the_columns_alone():
    x = uniform(4)
    straight = Recorded(
        RowOracle(edges(x, x[:, 0] + 0.5 * np.random.default_rng(3).logistic(size=ROWS) > 0)), noise=0.01
    )
    bent = Recorded(RowOracle(edges(x, np.abs(x[:, 0]) > 0.5)), noise=0.01)
    fitted = PrivateAdditive(pairs=False).fit_queries(straight)
    # Four columns and the bias; at first with four hats each.
    assert fitted.directions_[0] == 21
    assert max(fitted.directions_[2:]) < 10
    # The queries say so: the norm that bounds a record's share, and a basis whose rank is that of the directions.
    clips = [float(clip) for clip in straight.clips]
    assert clips[-1] < 0.75 * clips[0]
    assert np.linalg.matrix_rank(straight.bases[-1].matrix, tol=0.01) == fitted.directions_[-1]
    assert len(fitted.theta_) == 21
    curved = PrivateAdditive(pairs=False).fit_queries(bent)
    assert curved.directions_[-1] > 5
    assert error(curved, bent) < 0.1


class Little(Recorded):
    """As few rows and as small a budget as a federation may have."""

    epsilon, delta = Fraction(1, 20), Fraction(1, 10**6)


def test_with_too_little_information_it_is_the_straight_model_and_says_so():
    made = edges(uniform(3), uniform(3)[:, 0] > 0)
    oracle, straight = Little(RowOracle(made), noise=0.01), Little(RowOracle(made), noise=0.01)
    fitted = PrivateAdditive().fit_queries(oracle)
    newton = PrivateNewton().fit_queries(straight)
    assert np.array_equal(fitted.theta_, newton.theta_)
    assert np.array_equal(fitted.covariance_, newton.covariance_)
    assert oracle.asked == straight.asked
    assert (fitted.feature_map_, fitted.groups_) == (None, {})
    assert "the model is straight: for curves with 16 terms, epsilon 0.05 is too little for 4000" in fitted.warning_
    x = oracle.edges * oracle.edges[:, -1:]
    np.testing.assert_allclose(fitted.decision_function(x), x @ fitted.theta_)
    assert PrivateAdditive(information=0.0).fit_queries(Little(RowOracle(made))).feature_map_ is not None


def test_enough_is_counted_in_coordinates_terms_rows_and_budget():
    made = edges(uniform(2), uniform(2)[:, 0] > 0)
    mu = gaussian_mu(Little.epsilon, Little.delta)
    for pairs, terms in ((False, 11), (True, 14)):
        for share, is_straight in ((0.999, False), (1.001, True)):
            least = share * mu * ROWS / np.sqrt(3 * terms)
            fitted = PrivateAdditive(pairs=pairs, information=least).fit_queries(Little(RowOracle(made)))
            assert (fitted.feature_map_ is None) == is_straight


def oracle_of(columns, rows, epsilon=Fraction(1)):
    return SimpleNamespace(schema=many_columns(columns), rows=rows, epsilon=epsilon, delta=Fraction(1, 10**6))


def planned_notes(oracle, **options):
    """What is left out, without asking: the figures of `fit_queries`."""
    model = PrivateAdditive(**options)
    sizes = Sizes(oracle, model._wanted(oracle.schema), 10, model.information, Fraction(1, 20))
    planned = sizes.planned(model.pairs, {})
    return model._too_little(sizes, planned) or planned.left_out or ""


@pytest.mark.variants(3)
@pytest.mark.parametrize(("options", "what"), [({"pairs": False}, "curves"), ({}, "curves"), ({"knots": 1}, "some")])
@pytest.mark.parametrize("columns", [2, 5, 9])
def test_what_would_be_enough_is_the_least_that_is(options, what, columns):
    rows, epsilon = (300, Fraction(1, 3)) if what == "curves" else (500 if columns == 2 else 1000, Fraction(1))
    said = planned_notes(oracle_of(columns, rows, epsilon), **options)
    enough, larger = re.search(rf"would be {what} from ([\d,]+) rows on, or from epsilon ([\d.]+) on", said).groups()
    least = int(enough.replace(",", ""))
    whether = [f"would be {what}" in planned_notes(oracle_of(columns, each, epsilon), **options)
               for each in (least - 1, least)]  # fmt: skip
    assert whether == [True, False]
    # Of two digits, rounded up.
    whether = [f"would be {what}" in planned_notes(oracle_of(columns, rows, each * Fraction(larger)), **options)
               for each in (Fraction(9, 10), 1)]  # fmt: skip
    assert whether == [True, False]


def test_fewer_knots_are_advised_where_they_are_enough():
    said = planned_notes(oracle_of(5, 702))
    assert "or with 2 knots" in said
    assert "is straight" not in planned_notes(oracle_of(5, 702), knots=2)
    assert "is straight" in planned_notes(oracle_of(5, 702), knots=3)
    assert "knot" not in planned_notes(oracle_of(5, 300))
    assert planned_notes(oracle_of(5, 300), information=float("inf")).endswith("lower information")


@pytest.mark.more
def test_products_of_all_pairs_need_more_information_than_curves():
    made = edges(uniform(2), uniform(2)[:, 0] > 0)
    # Two columns, the bias and four hats for each; with the product, two ramps and it.
    needed = PAIRS_INFORMATION * np.sqrt(3 * 14) / (gaussian_mu(Little.epsilon, Little.delta) * ROWS)
    for share, terms in ((0.999, 14), (1.001, 11)):
        fitted = PrivateAdditive(information=share / needed).fit_queries(Little(RowOracle(made)))
        assert len(fitted.feature_map_.terms) + 1 == terms
    few = PrivateAdditive(information=1.001 / needed)
    assert len(few.set_params(pairs=True).fit_queries(Little(RowOracle(made))).feature_map_.terms) == 13
    assert len(few.set_params(pairs=None).fit_queries(RowOracle(made)).feature_map_.terms) == 13


@pytest.mark.more
def test_errors_of_the_weights_fall_with_the_rows_and_rise_with_the_noise():
    def covariance(rows, noise):
        x = uniform(2)[:rows]
        # Labels that the columns do not decide: otherwise the weights are still on their way after all rounds.
        scores = x[:, 0] + x[:, 1] ** 2 + 0.5 * np.random.default_rng(5).logistic(size=rows)
        oracle = Recorded(RowOracle(edges(x, scores > 0.3)), noise=noise)
        return PrivateAdditive(pairs=False).fit_queries(oracle).covariance_

    few, many, noisy = covariance(ROWS // 4, 0.0), covariance(ROWS, 0.0), covariance(ROWS, 0.01)
    np.testing.assert_allclose(np.trace(few), 4 * np.trace(many), rtol=0.25)
    assert np.trace(noisy) > 1.5 * np.trace(many)
    assert np.linalg.eigvalsh(noisy).min() > 0
    with pytest.raises(ConfigurationError, match="from 0 on"):
        PrivateAdditive(information=float("nan")).fit_queries(RowOracle(edges(uniform(2), uniform(2)[:, 0] > 0)))


@pytest.mark.parametrize("estimator", [PrivateNewton(), PrivateAdditive(pairs=False)])
def test_scores_are_larger_than_log_odds(estimator):
    """As pages and guides say: the loss clips the weights of records."""
    x, random = uniform(3), np.random.default_rng(5)
    log_odds = 2.0 * x[:, 0] - x[:, 1]
    oracle = RowOracle(edges(x, random.random(ROWS) < 1 / (1 + np.exp(-log_odds))))
    scores = estimator.fit_queries(oracle).decision_function(oracle.edges * oracle.edges[:, -1:])
    assert np.polyfit(log_odds, scores, 1)[0] > 1.3


def test_pairs_that_are_named_have_products_and_no_others():
    x = uniform(4)
    x[:, 3] = np.where(x[:, 3] > 0, 1.0, -1.0)
    oracle = RowOracle(edges(x, x[:, 0] * x[:, 3] + 0.5 * x[:, 1] * x[:, 2] > 0))
    fitted = PrivateAdditive(pairs="x3*x0, x1 * x2").fit_queries(oracle)
    functions = [term.function for term in fitted.feature_map_.terms]
    products = [
        {functions[place].coordinate for place in (function.first, function.second)}
        for function in functions
        if isinstance(function, Product)
    ]
    assert products == [{0, 3}, {1, 2}]
    assert [each.coordinate for each in functions if isinstance(each, Hat) and each.right is None] == [0, 1, 2]
    assert error(fitted, oracle) < 0.15
    # Without the flag's product half of the rows are as good as guessed.
    assert error(PrivateAdditive(pairs="x1*x2").fit_queries(oracle), oracle) > 0.3


def test_pairs_have_the_order_in_which_they_are_named():
    x = uniform(4)
    x[:, 0] = np.where(x[:, 0] > 0, 1.0, -1.0)
    oracle = RowOracle(edges(x, x[:, 0] * x[:, 3] + 0.5 * x[:, 1] * x[:, 2] > 0))
    for named in ("x3*x0, x0*x1, x2*x1", [("x3", "x0"), ("x0", "x1"), ["x2", "x1"]]):
        assert PrivateAdditive(rounds=3, pairs=named).fit_queries(oracle).pairs_ == ["x3*x0", "x0*x1", "x2*x1"]


def test_names_with_commas_and_stars_are_given_in_lists():
    names = ("age, years", "dose*2", "1")
    flag = BooleanFeature(name=names[1], true=["1"], false=["0"])
    numbers = [RealFeature(name=name, lower=0.0, upper=1.0) for name in (names[0], names[2])]
    features = (numbers[0], flag, numbers[1])
    schema = Schema(name="marks", label=Label(column="y", positive=("1",)), features=features)
    assert named_pairs(schema, [(names[2], names[1]), names[:2]], ()) == ((2, 1), (0, 1))
    assert directions_of(schema, [names[0]], [names[1], "1"]) == {0: RISING, 1: FALLING, 2: FALLING}
    with pytest.raises(ConfigurationError, match=r"give names that contain , or \* in a list; did you mean 'dose\*2'"):
        named_pairs(schema, "1*dose*2", ())
    with pytest.raises(ConfigurationError, match="give names that contain , in a list; known: 'age, years', "):
        directions_of(schema, "age, years", "")


class Noisy(Recorded):
    """An oracle whose budget is known, and that adds noise of its size to statistics and to gradients."""

    epsilon, delta = Fraction(1), Fraction(1, 10**6)
    batches: list[list]

    def _deviation(self, squared_sensitivity, part):
        return np.sqrt(squared_sensitivity / part) / (gaussian_mu(self.epsilon, self.delta) * self.rows)

    def statistic(self, predicates, **given):
        found = super().statistic(predicates, **given)
        self.batches = [*getattr(self, "batches", []), predicates]
        deviation = self._deviation(batch_sensitivity(predicates).l2_squared, float(given["part"]))
        drawn = np.random.default_rng(7).normal(scale=deviation, size=len(predicates))
        return replace(found, values=found.values + drawn, deviation=deviation)

    def gradient(self, theta, **given):
        self.noise = self._deviation(4 * float(given["clip"]) ** 2, float(given["part"]))
        return super().gradient(theta, **given)


def crossed(columns=20, rows=12_000, seed=1):
    x = np.random.default_rng(seed).uniform(-1, 1, (rows, columns))
    return edges(x, x[:, 0] * x[:, 1] > 0)


@pytest.mark.more
def test_pairs_that_do_not_all_fit_are_chosen_at_a_stated_cost():
    oracle = Noisy(RowOracle(crossed()))
    fitted = PrivateAdditive().fit_queries(oracle)
    assert fitted.pairs_ == ["x0*x1"]
    assert sum(isinstance(term.function, Product) for term in fitted.feature_map_.terms) == 1
    assert error(fitted, oracle) < 0.1
    assert error(PrivateAdditive(pairs=False).fit_queries(Noisy(oracle.rows_oracle)), oracle) > 0.4
    # One of the ten answers is the choice, and it is in place of a gradient.
    assert [kind for kind, _ in oracle.asked] == ["statistic", "statistic", "moments", *["gradient"] * 7]
    assert [part for _, part in oracle.asked[:3]] == [Fraction(3, 100), Fraction(1, 20), Fraction(1, 4)]
    # Less noise on the moments' products, more on their edges, of which only the first weights are made.
    assert oracle.edge_weights == [Fraction(1, 3)]
    assert sum(part for _, part in oracle.asked) == 1
    assert (fitted.rounds_done_, fitted.warning_) == (10, None)
    # The label, each column, each with the label, and each pair without and with it: none exclude another.
    assert len(oracle.batches[1]) == 20 * 20 + 20 + 1
    assert batch_sensitivity(oracle.batches[1]).l2_squared == (20 + 1) ** 2 // 2


@pytest.mark.more
def test_nothing_is_asked_about_pairs_that_the_budget_does_not_afford():
    made = RowOracle(crossed(rows=5000))
    oracle, without = Noisy(made), Noisy(made)
    fitted = PrivateAdditive().fit_queries(oracle)
    other = PrivateAdditive(pairs=False).fit_queries(without)
    assert oracle.asked == without.asked
    assert np.array_equal(fitted.theta_, other.theta_)
    assert fitted.pairs_ == []
    assert "190 pairs do not fit into 256 terms, and epsilon 1 is too little to choose" in fitted.warning_
    assert other.warning_ is None
    demanded = Noisy(RowOracle(crossed(columns=22, rows=10_000)))
    assert PrivateAdditive(pairs=True).fit_queries(demanded).pairs_ == ["x0*x1"]
    assert sum(part for _, part in demanded.asked) == 1


def test_the_choice_is_afforded_for_terms_and_for_noise():
    """By other figures of the two rules: information in terms, and the least score above the noise."""

    mu = gaussian_mu(Noisy.epsilon, Noisy.delta)

    def most(rows, information, part):
        oracle = SimpleNamespace(schema=many_columns(20), rows=round(rows), epsilon=Noisy.epsilon, delta=Noisy.delta)
        found = Sizes(oracle, 4, 10, information, part).planned(None, ()).most
        # 21 coordinates, 80 knots, a pair's own term, and the ramps of all columns.
        afforded = int((mu * round(rows) / (2.4 * information)) ** 2 / 21) - 121
        assert found in (0, 175 if afforded > 135 else afforded)
        return found

    hidden = np.sqrt(2 * np.log(380)) * 2 * np.sqrt(220) / (mu * np.sqrt(0.025) * 0.25)
    assert most(1.01 * hidden, 15.0, Fraction(1, 40)) == 129
    assert most(0.98 * hidden, 15.0, Fraction(1, 40)) == 0
    # With half the information, noise may hide scores twice as large, and the same terms need half the rows.
    assert most(0.51 * hidden, 7.5, Fraction(1, 40)) > 100
    assert most(0.49 * hidden, 7.5, Fraction(1, 40)) == 0
    assert most(1.1 * hidden, 15.0, Fraction(1, 40)) == 175
    # With a larger part the terms decide.
    assert most(2.4 * 15 * np.sqrt(21 * 135) / mu, 15.0, Fraction(1, 2)) in (13, 14)
    assert most(2.4 * 15 * np.sqrt(21 * 115) / mu, 15.0, Fraction(1, 2)) == 0


@pytest.mark.more
def test_scores_see_interactions_only():
    """Not strong effects of single columns, skewed columns, or correlated ones where the label depends on neither."""
    random = np.random.default_rng(4)
    common = random.uniform(-1, 1, (20_000, 1))
    x = random.uniform(-1, 1, (20_000, 22))
    x[:, 2:5] = 0.3 * x[:, 2:5] + 0.7 * common
    x[:, 5] = np.where(random.random(20_000) < 0.8, -1.0, x[:, 5])
    x[:, 6] = 0.5
    label = (x[:, 0] + 0.3 * x[:, 5] > 0.6) ^ (random.random(20_000) < 0.1)
    fitted = PrivateAdditive(pairs=True).fit_queries(Noisy(RowOracle(edges(x, label))))
    assert fitted.pairs_ == []
    assert fitted.warning_ == "the model has no products: none of 231 pairs has a score above the noise"


def test_scores_are_those_of_the_definition():
    random = np.random.default_rng(4)
    x = random.uniform(-1, 1, (2000, 4)) ** 3
    x[:, 1] = np.where(random.random(2000) < 0.7, -1.0, x[:, 1])
    x[:, 3] = x[:, 2] + 0.1 * x[:, 0]
    oracle = Noisy(RowOracle(edges(x, x[:, 0] * x[:, 1] - x[:, 2] > 0.4)))
    schema, coordinates = oracle.schema, oracle.rows_oracle._coordinates
    found = dict(enumerate(histograms(oracle.rows_oracle, schema.features, part=Fraction(1), cells=32)))
    cuts = [additive_pairs._cut(found[at])[0] for at in range(4)]
    # The cut of a column whose greatest share is one value has that value on one side.
    assert cuts[1] == 1 - ONE
    batch = additive_pairs._predicates([(f"x{at}", cut) for at, cut in enumerate(cuts)])
    scores, deviations = additive_pairs._scores(oracle.rows_oracle.statistic(batch), 4)
    signs = np.where(np.rint(coordinates[:, :4] * ONE) >= cuts, 1.0, -1.0)
    y = oracle.edges[:, -1]
    centred = signs - signs.mean(axis=0)
    expected = [((y - y.mean()) * centred[:, a] * centred[:, b]).mean() for a, b in combinations(range(4), 2)]
    np.testing.assert_allclose(scores, expected, atol=1e-12)
    np.testing.assert_allclose(deviations, 2000**-0.5)
    # Their errors are those that are stated: with noise on the means, of which each is twice as uncertain as a share.
    drawn = [
        additive_pairs._scores(replace(answer, values=answer.values + random.normal(scale=0.001, size=21)), 4)[0]
        for answer in [oracle.rows_oracle.statistic(batch)] * 3000
    ]
    stated = additive_pairs._scores(replace(oracle.rows_oracle.statistic(batch), deviation=0.001), 4)[1]
    np.testing.assert_allclose(np.std(drawn, axis=0), np.sqrt(stated**2 - 1 / 2000), rtol=0.08)


@pytest.mark.more
def test_so_many_columns_are_compared_as_a_query_may_be_about():
    """Those that histograms divide most evenly."""
    features = range(120)
    even = Histogram(np.array([-1.0, 0.0, 1.0]), np.array([0.5, 0.5]), {})
    uneven = Histogram(np.array([-1.0, 1.0]), np.array([0.1]), {-ONE: 0.9})
    found = {at: uneven if at < 30 else even for at in features}
    batches = []

    class Counted:
        def statistic(self, predicates, *, part):
            batches.append(predicates)
            values = np.full(len(predicates), 0.5)
            return Estimates(values, 1000, 0.95, 0.0, 0.0, 0.0, 0.0)

    choice = additive_pairs.choose(Counted(), {at: f"x{at}" for at in features}, found, part=Fraction(1), most=3)
    assert len(batches[0]) == 9901
    assert choice_squared(120) == choice_squared(99) == 5000
    assert {node.form.weights[0][0] for node in batches[0][1:100]} == {f"x{at}" for at in [*range(9), *range(30, 120)]}
    assert (choice.kept, choice.above, choice.scored) == ((), 0, 99 * 98 // 2)


@pytest.mark.more
def test_the_best_pairs_are_kept_where_not_all_above_the_noise_fit():
    x = np.random.default_rng(2).uniform(-1, 1, (20_000, 20))
    label = 3 * x[:, 0] * x[:, 1] + 2 * x[:, 2] * x[:, 3] + x[:, 4] * x[:, 5] > 0
    oracle = RowOracle(edges(x, label))
    found = dict(enumerate(histograms(oracle, oracle.schema.features, part=Fraction(1), cells=32)))
    names = {at: f"x{at}" for at in range(20)}
    choice = additive_pairs.choose(oracle, names, found, part=Fraction(1), most=2)
    assert (choice.kept, choice.above) == (((0, 1), (2, 3)), 3)
    assert choice.left_out == "of 3 pairs with a score above the noise, the best 2 have a product"


def test_a_few_pairs_of_columns_without_a_direction_need_no_choice():
    sizes = Sizes(SimpleNamespace(schema=many_columns(60), rows=0), 4, 10, 15.0, Fraction(1, 20))
    assert sizes.planned(None, range(2, 60)) == PlannedPairs(((0, 1),))
    assert sizes.planned(True, range(2, 60)) == PlannedPairs(((0, 1),))
    assert sizes.planned(None, range(1, 60)) == PlannedPairs()
    assert sizes.planned(None, range(10, 60)).most == 45 == len(list(combinations(range(10), 2)))


def test_all_parts_add_up_to_the_budget():
    oracle = Recorded(RowOracle(edges(uniform(2), uniform(2)[:, 0] > 0)))
    fitted = PrivateAdditive(rounds=6).fit_queries(oracle)
    assert [kind for kind, _ in oracle.asked] == ["statistic", "moments", *["gradient"] * 4]
    assert [part for _, part in oracle.asked[:2]] == [Fraction(3, 100), Fraction(1, 4)]
    assert sum(part for _, part in oracle.asked) == 1
    assert (fitted.rounds_done_, fitted.warning_) == (6, None)


def test_a_refusal_keeps_what_was_learned():
    x = uniform(3)
    made = edges(x, np.abs(x[:, 0]) > 0.5)
    fitted = PrivateAdditive().fit_queries(Recorded(RowOracle(made), answers=4))
    assert fitted.rounds_done_ == 4
    assert "received 4 of 10 releases" in fitted.warning_
    assert error(fitted, RowOracle(made)) < 0.25
    after_moments = PrivateAdditive().fit_queries(Recorded(RowOracle(made), answers=2))
    assert (after_moments.rounds_done_, after_moments.groups_) == (2, {})
    for answers in (0, 1):
        with pytest.raises(OracleRefusedError):
            PrivateAdditive().fit_queries(Recorded(RowOracle(made), answers=answers))


def test_columns_that_have_no_shape():
    """A constant column, and one of two values, which is no real feature."""
    x = uniform(3)
    x[:, 1], x[:, 2] = 0.7, np.where(x[:, 2] > 0, 1.0, -1.0)
    oracle = RowOracle(edges(x, x[:, 0] + x[:, 2] > 0))
    fitted = PrivateAdditive().fit_queries(oracle)
    assert np.isfinite(fitted.theta_).all()
    assert error(fitted, oracle) < 0.05
    assert not any(isinstance(term.function, Product) for term in fitted.feature_map_.terms[:3])
    flags = np.where(uniform(2) > 0, 1.0, -1.0)
    without = Recorded(RowOracle(edges(flags, flags[:, 0] > 0)))
    assert error(PrivateAdditive().fit_queries(without), without) == 0.0
    # No histogram is asked, and its part goes to the gradients.
    assert {kind for kind, _ in without.asked} == {"moments", "gradient"}
    assert sum(part for _, part in without.asked) == 1


@pytest.mark.parametrize("columns", [2, 5])
def test_pairs_without_effect_have_bands_that_are_as_wide_as_the_noise(columns):
    """A single pair's variance, or that of all, is found to be 0: that is no proof that it is."""
    x = uniform(columns)
    oracle = Recorded(RowOracle(edges(x, x[:, 0] + np.sin(3 * x[:, 1]) > 0)), noise=0.001)
    fitted = PrivateAdditive(pairs=True, knots=1).fit_queries(oracle)
    pairs = [place for place, term in enumerate(fitted.feature_map_.terms) if isinstance(term.function, Product)]
    assert max(abs(fitted.theta_[pairs])) < 0.01
    # Shrunk, they would have 0 with one pair, and 0.23 with ten.
    assert np.sqrt(np.diag(fitted.covariance_)[pairs]).min() > 0.5


def test_every_point_mass_is_a_group_of_its_own():
    x = uniform(2)
    x[:1000, 0], x[1000:2200, 0] = -1.0, 1.0
    fitted = PrivateAdditive(pairs=True).fit_queries(RowOracle(edges(x, (x[:, 0] == 1.0) | (x[:, 1] > 0.3))))
    assert {"x0, point mass", "x0, point mass 2"} <= set(fitted.groups_)
    assert fitted.covariance_ is not None


@pytest.mark.more
def test_a_number_beside_many_other_coordinates_has_more_knots():
    """A fifth with eight others for each number, a sixth with 16, at most eight."""

    def hats(numbers: int, flags: int, **options) -> list[int]:
        x = np.hstack([uniform(numbers), np.where(uniform(flags, 2) > 0, 1.0, -1.0)])
        fitted = PrivateAdditive(rounds=3, pairs=False, **options).fit_queries(RowOracle(edges(x, x[:, 0] > 0)))
        functions = [term.function for term in fitted.feature_map_.terms]
        return [
            sum(isinstance(each, Hat) and each.coordinate == number for each in functions) for number in range(numbers)
        ]

    assert hats(1, 7) == [4]
    assert hats(1, 16) == [6]
    assert hats(2, 16) == [5, 5]
    assert hats(1, 48) == [8]
    assert hats(1, 16, knots=3) == [3]


@pytest.mark.slow
def test_many_columns_have_fewer_terms_each():
    """So that its basis fits a query, and few rows are not spread over many terms."""

    def sizes(columns, **options):
        schema = many_columns(columns)
        settings = PrivateAdditive(**options)
        planned = Sizes(
            SimpleNamespace(schema=schema, rows=0), settings._wanted(schema), 10, 15.0, Fraction(1, 20)
        ).planned(settings.pairs, {})
        return settings._knots(schema, planned.given), len(planned.given), planned.most

    assert [sizes(columns) for columns in (8, 16, 30, 60, 90)] == [
        (4, 28, 0),
        (4, 120, 0),
        (4, 0, 135),
        (3, 0, 25),
        (1, 0, 0),
    ]
    assert sizes(300) == (0, 0, 0)
    assert [sizes(columns, pairs=True) for columns in (20, 90, 250)] == [(1, 190, 0), (1, 0, 25), (0, 0, 1)]
    assert sizes(4, pairs=False) == (4, 0, 0)
    assert sizes(60, pairs="x0*x1, x3*x2") == (3, 2, 0)
    x = uniform(60)
    fitted = PrivateAdditive(rounds=3).fit_queries(RowOracle(edges(x, x[:, 0] > 0)))
    assert len(fitted.theta_) == 60 * 4 + 1
    assert "to choose among them takes 4 rounds or more" in fitted.warning_


@pytest.mark.more
def test_coordinates_that_leave_no_room_for_curves_have_a_straight_model():
    """Before anything is asked for curves: a basis of more coordinates might fit no query."""
    x = np.random.default_rng(0).uniform(-1, 1, (20, 300))
    oracle = Recorded(RowOracle(edges(x, x[:, 0] > 0)))
    fitted = PrivateAdditive(rounds=3).fit_queries(oracle)
    assert [kind for kind, _ in oracle.asked] == ["moments", "gradient", "gradient"]
    assert fitted.feature_map_ is None
    assert fitted.warning_ == (
        "the model is straight: there are 301 coordinates, and a model of curves has at most 256"
    )


def test_too_many_pairs_are_refused_before_anything_is_asked():
    x = np.random.default_rng(0).uniform(-1, 1, (10, 30))
    oracle = Recorded(RowOracle(edges(x, x[:, 0] > 0)))
    every = ", ".join(f"x{a}*x{b}" for a, b in combinations(range(30), 2))
    with pytest.raises(ConfigurationError, match=r"31 coordinates and 435 pairs are 496 terms.* name fewer pairs"):
        PrivateAdditive(pairs=every).fit_queries(oracle)
    with pytest.raises(ConfigurationError, match=r"435 pairs do not all fit: .* give at least 4"):
        PrivateAdditive(pairs=True, rounds=3).fit_queries(oracle)
    wide = Recorded(RowOracle(edges(np.random.default_rng(0).uniform(-1, 1, (10, 300)), x[:, 0] > 0)))
    with pytest.raises(ConfigurationError, match="301 coordinates leave no room for pairs"):
        PrivateAdditive(pairs=True).fit_queries(wide)
    assert oracle.asked == wide.asked == []


@pytest.mark.more
def test_point_masses_without_room_go_to_their_cells():
    x = np.random.default_rng(0).uniform(-1, 1, (200, 30))
    x[:50, :] = -1.0
    oracle = RowOracle(edges(x, x[:, 0] > 0))
    names = [each.name for each in oracle.schema.features]
    wanted = ", ".join(f"{a}*{b}" for a, b in islice(combinations(names, 2), 190))
    fitted = PrivateAdditive(rounds=3, pairs=wanted).fit_queries(oracle)
    # 31 coordinates, 190 pairs and the ramps of the columns in them leave room for five of the 30 point masses.
    assert len(fitted.theta_) == 256
    assert sum(isinstance(term.function, PointMass) for term in fitted.feature_map_.terms) == 5


def test_a_point_mass_that_is_left_out_is_in_its_cell():
    edge = -ONE
    before = Histogram(np.array([-1.0, 0.0, 1.0]), np.array([0.25, 0.25]), {edge: 0.3, 0: 0.125, ONE: 0.075})
    after = before.with_points({edge})
    assert (after.points, after.shares.tolist()) == ({edge: 0.3}, [0.25, 0.45])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"knots": 33}, "knots is 33"),
        ({"knots": 1.5}, "knots is 1.5"),
        ({"pairs": 1.5}, "pairs is 1.5"),
        ({"pairs": "some"}, "pairs names 'some': write pairs of two different real or boolean features"),
        ({"pairs": "x0*x9"}, "pairs names 'x0\\*x9'"),
        ({"pairs": "x0*x0"}, "pairs names 'x0\\*x0'"),
        ({"pairs": "x0*x1*x0"}, "pairs names"),
        ({"pairs": "x0*x1, x1*x0"}, "'x1\\*x0' is given twice"),
        ({"pairs": "x0*x1", "increasing": "x1"}, "has a feature with a direction"),
        ({"rounds": 2}, "give at least 3"),
        ({"rounds": True}, "rounds is True"),
        ({"knots": True}, "knots is True"),
        ({"pairs_part": 0.0}, "pairs_part is 0.0"),
        ({"pairs_part": True}, "pairs_part is True: give a number"),
        ({"knots_part": "0.1"}, "knots_part is '0.1': give a number"),
        ({"moments_part": None}, "moments_part is None: give a number"),
        (
            {"knots_part": 0.3, "moments_part": 0.3, "pairs_part": 0.4},
            "give a smaller pairs_part, .* set pairs to false",
        ),
        ({"information": "much"}, "information is 'much': give a number"),
        ({"information": 10**400}, "information is 10+: give a number"),
        ({"clip": 1e300}, "clip is 1e\\+300: give a positive number, at most 1024"),
        ({"clip": "0.3"}, "clip is '0.3': give a number"),
        ({"shrinkage": True}, "shrinkage is True: give a number"),
        ({"shrinkage": 1025}, "shrinkage is 1025"),
        ({"increasing": ["x0", 1]}, r"increasing is \['x0', 1\]: give names"),
        ({"pairs": ["x0", "x1"]}, "pairs is .*: give true, false, names such as age\\*dose, a list of pairs"),
        ({"pairs": [("x0", "x7")]}, "pairs names 'x0\\*x7': .* known: 'x0', 'x1'"),
        ({"pairs": "x0*X1"}, "did you mean 'x1'"),
        ({"pairs": [("x0", "x1"), ["x1", "x0"]]}, "'x1\\*x0' is given twice"),
        ({"decreasing": None}, "decreasing is None: give names"),
        ({"knots_part": 0.0}, "knots_part is 0.0"),
        ({"moments_part": 1.0}, "moments_part is 1.0"),
        (
            {"knots_part": 0.5, "moments_part": 0.5},
            "knots_part and moments_part leave nothing for gradients: lower one",
        ),
        ({"clip": float("nan")}, "clip is nan"),
        ({"shrinkage": 0.0}, "shrinkage is 0.0"),
    ],
)
def test_parameters_out_of_range(options, sentence):
    oracle = Recorded(RowOracle(edges(uniform(2), uniform(2)[:, 0] > 0)))
    with pytest.raises(ConfigurationError, match=sentence):
        PrivateAdditive(**options).fit_queries(oracle)
    assert oracle.asked == []


@pytest.mark.parametrize(("columns", "curves", "products"), [(5, 792, 2386), (10, 1501, 5194), (20, 2919, 7823)])
def test_the_rows_that_the_guide_names_are_the_least(columns, curves, products):
    """docs/asking.md: at epsilon 1."""

    def said(rows):
        return planned_notes(oracle_of(columns, rows))

    assert "is straight" in said(curves - 1)
    assert "is straight" not in said(curves)
    assert "has no products" in said(products - 1)
    assert said(products) == ""
    text = (Path(__file__).parents[3] / "docs" / "asking.md").read_text(encoding="utf-8")
    assert all(f"{rows:,}" in text for rows in (curves, products))
