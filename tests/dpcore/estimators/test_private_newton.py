"""Noisy moments and whitened gradients: the limit without noise, and the accuracy with noise."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import check_estimator

from dpcore.accounting.gaussian import gaussian_mu
from dpcore.errors import ConfigurationError, DataError, OracleRefusedError, PlanError
from dpcore.estimators import private_newton
from dpcore.estimators.moments_discriminant import MomentsDiscriminant
from dpcore.estimators.oracle import GradientEstimate
from dpcore.estimators.private_newton import CURVATURE, MOST_COORDINATES, PrivateNewton, roomy_norm
from dpcore.estimators.whitened_rounds import Seen, Whitening, check_counted, root
from dpcore.queries.gradient import THETA_BITS, GradientQuery
from dpcore.queries.moments import MomentsQuery, edge_multiplier
from dpcore.rados.distribution import Moments
from dpcore.records.clipping import Clip
from dpcore.records.encoding import store
from dpcore.records.records import Records
from dpcore.records.schema import BooleanFeature, Label, RealFeature, Schema
from dpcore.records.weight import Weight
from wire.query import MAX_QUERY_BYTES

SHARE = 1000
"""Of noise, which is not drawn here."""


@pytest.mark.more
@pytest.mark.parametrize("estimator", [PrivateNewton()], ids=str)
def test_scikit_learn_accepts_the_estimator(estimator):
    weights = "classes are named as the label names them, and weights differ by a factor of 1000 at most"
    check_estimator(estimator, on_skip=None, expected_failed_checks={"check_class_weight_classifiers": weights})


class World:
    """Rows in memory that answer with Gaussian noise; mu: of all queries in total, inf for no noise."""

    def __init__(self, rows, labels, mu=np.inf, seed=0, refused_from=None):
        self.rows, self.labels, self.mu = rows, labels, mu
        self.random = np.random.default_rng(seed)
        self.asked = []
        self.refused_from = refused_from
        reals = tuple(RealFeature(name=f"x{j}", lower=-1.0, upper=1.0) for j in range(rows.shape[1] - 1))
        self.schema = Schema(name="world", label=Label(column="y", positive=("1",)), features=reals)

    def _charge(self, part, what):
        if self.refused_from is not None and len(self.asked) >= self.refused_from:
            raise OracleRefusedError("the budget is spent", spent="two answers")
        self.asked.append((part, what))
        return self.mu * np.sqrt(float(part))

    def moments(self, *, part, norm_bound):
        mu = self._charge(part, norm_bound)
        (m, d), bound = self.rows.shape, float(norm_bound)
        assert np.linalg.norm(self.rows, axis=1).max() <= bound
        # Products off the diagonal weigh sqrt(2), edges R / sqrt(2); see moments_squared.
        sigma = np.sqrt(2) * 1.25 * bound**2 / mu
        deviations = np.where(np.eye(d, dtype=bool), sigma, sigma / np.sqrt(2))
        deviations[-1, -1] = 0.0
        noise = np.triu(self.random.normal(size=(d, d)) * deviations)
        products = self.rows.T @ self.rows + noise + np.triu(noise, 1).T
        edge_noise = sigma * np.sqrt(2) / bound
        return Moments(
            edge_sum=self.rows.T @ self.labels + edge_noise * self.random.normal(size=d),
            product_sum=(products + products.T) / 2,
            rows=m,
            bias=True,
            norm_bound=bound,
            edge_noise=edge_noise,
            product_noise=deviations,
        )

    def gradient(self, theta, *, clip, part, loss="logistic", basis=None):
        mu = self._charge(part, (tuple(theta), clip, basis))
        assert loss == "logistic"
        z = (self.rows * self.labels[:, np.newaxis]) @ basis.matrix.T
        weights = np.minimum(1 / (1 + np.exp(z @ theta)), float(clip) / np.linalg.norm(z, axis=1))
        sigma = 2 * float(clip) / mu
        total = -(weights @ z) + sigma * self.random.normal(size=len(theta))
        return GradientEstimate(mean=total / len(z), deviation=sigma / len(z), rows=len(z))


def make_table(m, seed, *, d=6, noise=0.3):
    """Rows in [-1, 1] of very unequal spread and correlated, the bias last; labels by a logistic model."""
    random = np.random.default_rng(seed)
    rows = random.normal(size=(m, d)) @ random.normal(size=(d, d)) * np.geomspace(1, 0.05, d)
    rows = np.column_stack([np.clip(rows / np.quantile(np.abs(rows), 0.99), -1, 1), np.ones(m)])
    score = rows @ (random.normal(size=d + 1) / rows.std(axis=0).clip(0.1))
    labels = np.where(score - np.median(score) + noise * score.std() * random.logistic(size=m) > 0, 1, -1)
    return rows, labels


@pytest.fixture(scope="module")
def table():
    return make_table(4000, 1)


def error(theta, rows, labels):
    return float(np.mean(np.where(rows @ theta > 0, 1, -1) != labels))


def test_without_noise_it_reaches_the_minimiser_of_the_clipped_loss(table):
    """The minimiser is found by another method, from the loss: the integral of the capped weight over the margin."""
    rows, labels = table
    world = World(rows, labels)
    theta = PrivateNewton(rounds=60).fit_queries(world).theta_
    _, (_, clip, basis) = world.asked[-1]
    z = (rows * labels[:, np.newaxis]) @ basis.matrix.T
    cap = np.minimum(float(clip) / np.linalg.norm(z, axis=1), 1 - 1e-9)
    bend = np.log(1 / cap - 1)

    def loss(phi):
        margins = z @ phi
        inside = np.logaddexp(0, -np.maximum(margins, bend)) + cap * np.maximum(bend - margins, 0)
        return inside.mean(), -(np.minimum(cap, 1 / (1 + np.exp(margins))) @ z) / len(z)

    wanted = minimize(loss, np.zeros(z.shape[1]), jac=True, options={"gtol": 1e-8}).x
    assert (cap < 0.5).any()
    assert theta == pytest.approx(basis.matrix.T @ wanted, rel=0.02, abs=0.02 * np.linalg.norm(wanted))
    # Without clipping the minimiser is different.
    unclipped = LogisticRegression(C=1e6, max_iter=1000).fit(rows[:, :-1], labels)
    assert np.abs(theta[:-1] - unclipped.coef_[0]).max() > 0.1 * np.abs(theta[:-1]).max()


def test_eight_noisy_rounds_are_near_the_non_private_result_and_nearer_with_less_noise():
    """At epsilon 1 and delta 1e-6, over five draws; the moments alone are worse."""
    rows, labels = make_table(8000, 3)
    test_rows, test_labels = rows[4000:], labels[4000:]
    train = (rows[:4000], labels[:4000])
    free = LogisticRegression(C=1e4, max_iter=2000).fit(train[0][:, :-1], train[1])
    best = error(np.append(free.coef_[0], free.intercept_), test_rows, test_labels)

    def mean_error(epsilon, learner):
        worlds = [World(*train, mu=gaussian_mu(epsilon, 1e-6), seed=seed) for seed in range(5)]
        return np.mean([error(learner(world), test_rows, test_labels) for world in worlds])

    def newton(world):
        return PrivateNewton().fit_queries(world).theta_

    def moments(world):
        return MomentsDiscriminant().fit_moments(world.moments(part=Fraction(1), norm_bound=Fraction(3))).theta_

    ours = mean_error(1.0, newton)
    assert ours <= best + 0.015
    assert ours <= mean_error(1.0, moments)
    assert mean_error(0.02, newton) > ours + 0.03


def test_queries_fit_one_budget_and_use_one_basis(table):
    world = World(*table, mu=0.3)
    fitted = PrivateNewton(rounds=5, moments_part=0.3).fit_queries(world)
    parts = [part for part, _ in world.asked]
    assert parts == [Fraction(3, 10)] + [Fraction(7, 40)] * 4
    assert sum(parts) == 1
    # R^2 = 2/3 of six real features and the bias.
    assert world.asked[0][1] == Fraction(224, 100)
    assert len({(clip, basis) for _, (_, clip, basis) in world.asked[1:]}) == 1
    assert fitted.rounds_done_ == 5
    assert fitted.warning_ is None


def test_the_first_gradient_is_at_the_minimiser_of_the_expansion_with_clip_a_quarter_of_the_length(table):
    """Without noise whitened records have mean square d, and twice the mean edge minimises the loss's expansion."""
    rows, labels = table
    world = World(rows, labels)
    PrivateNewton().fit_queries(world)
    _, (phi, clip, basis) = world.asked[1]
    assert np.array(phi) == pytest.approx(2 * basis.matrix @ (rows.T @ labels) / len(rows))
    lengths = np.linalg.norm(rows @ basis.matrix.T, axis=1)
    assert float(clip) == pytest.approx(0.25 * np.sqrt(np.mean(lengths**2)), rel=0.01)


def test_noise_is_counted_in_units_of_steps(table, monkeypatch):
    """Targets are phi - g / kappa, so their noise is the gradient's over kappa: `root` receives both."""
    seen = []

    def remembering(releases):
        seen.append(releases[-1])
        return root(releases)

    monkeypatch.setattr(private_newton, "root", remembering)
    world = World(*table, mu=0.3)
    PrivateNewton().fit_queries(world)
    part, (phi, clip, _) = world.asked[3]
    sigma = 2 * float(clip) / (0.3 * np.sqrt(float(part))) / len(table[0])
    assert np.array_equal(seen[2].phi, phi)
    assert seen[2].noise == pytest.approx(sigma / CURVATURE)


def test_the_integer_queries_give_the_same_classifier(table):
    """The queries' own sums instead of real arithmetic: the same classifier except for rounding."""
    rows, labels = table
    records = Records(store(rows), labels.astype(np.int8), np.ones(len(rows), dtype=np.bool_))

    class Integers(World):
        def moments(self, *, part, norm_bound):
            query = MomentsQuery(Clip(norm_bound, bias=True), edge_multiplier(norm_bound, 12), SHARE)
            real = super().moments(part=part, norm_bound=norm_bound)
            found = query.moments(query.sums(records, 12), 12, rows=len(rows), parties=1)
            return Moments(**{**vars(real), "edge_sum": found.edge_sum, "product_sum": found.product_sum})

        def gradient(self, theta, *, clip, part, loss="logistic", basis=None):
            self._charge(part, theta)
            integers = tuple(round(float(value) * 2**THETA_BITS) for value in theta)
            query = GradientQuery(loss, integers, clip, SHARE, basis)
            total = query.decode(query.sums(records, 12), 12)
            return GradientEstimate(mean=total / len(rows), deviation=0.0, rows=len(rows))

    exact, integer = (PrivateNewton().fit_queries(world).theta_ for world in (World(*table), Integers(*table)))
    assert integer == pytest.approx(exact, abs=0.02 * np.linalg.norm(exact))


def test_a_refusal_of_the_first_query_is_raised(table):
    with pytest.raises(OracleRefusedError):
        PrivateNewton().fit_queries(World(*table, refused_from=0))


def test_a_refusal_after_the_moments_fits_to_the_moments(table):
    fitted = PrivateNewton(norm_bound=Fraction(3)).fit_queries(World(*table, mu=0.3, refused_from=1))
    wanted = MomentsDiscriminant().fit_moments(
        World(*table, mu=0.3).moments(part=Fraction(1, 4), norm_bound=Fraction(3))
    )
    assert np.array_equal(fitted.theta_, wanted.theta_)
    assert fitted.rounds_done_ == 1
    assert "the budget is spent" in fitted.warning_


def test_a_query_that_cannot_be_sent_after_the_moments_keeps_their_result(table):
    """As one whose basis is too large, which depends on the moments."""
    world = World(*table)

    def gradient(*_given, **_options):
        raise PlanError("the query has 600000 bytes")

    world.gradient = gradient
    fitted = PrivateNewton().fit_queries(world)
    assert fitted.rounds_done_ == 1
    assert fitted.warning_ == "received 1 of 8 releases: the query has 600000 bytes"


def test_more_coordinates_than_any_query_can_have_are_refused_before_anything_is_asked():
    # Of an entry the number takes a byte at least, besides all that a query has.
    assert MOST_COORDINATES**2 < MAX_QUERY_BYTES < (MOST_COORDINATES + 25) ** 2
    world = World(np.ones((1, MOST_COORDINATES + 1)), np.ones(1))
    with pytest.raises(ConfigurationError, match="701 coordinates"):
        PrivateNewton().fit_queries(world)
    assert world.asked == []


@pytest.mark.parametrize("answered", [2, 5])
def test_a_later_refusal_keeps_the_last_step(table, answered):
    whole = World(*table, mu=0.3)
    PrivateNewton().fit_queries(whole)
    fitted = PrivateNewton().fit_queries(World(*table, mu=0.3, refused_from=answered))
    _, (next_phi, _, basis) = whole.asked[answered]
    assert fitted.theta_ == pytest.approx(basis.matrix.T @ np.array(next_phi), rel=1e-12)
    assert fitted.rounds_done_ == answered
    assert f"{answered} of 8 releases" in fitted.warning_
    # A later fit without a refusal clears the warning.
    assert fitted.fit_queries(World(*table)).warning_ is None


def test_the_same_answers_give_the_same_classifier(table):
    first, second = (PrivateNewton().fit_queries(World(*table, mu=0.2, seed=4)) for _ in range(2))
    assert np.array_equal(first.theta_, second.theta_)
    assert not np.array_equal(first.theta_, clone(first).fit_queries(World(*table, mu=0.2, seed=5)).theta_)


def test_rows_and_an_oracle_of_the_same_rows_give_the_same_classifier(table):
    """`fit` scales columns to [-1, 1], which these rows reach on both sides, and maps the slopes back."""
    rows, labels = table
    rows = np.vstack([rows, np.append(np.ones(6), 1.0), np.append(-np.ones(6), 1.0)])
    labels = np.append(labels, [1, -1])
    asked = PrivateNewton(norm_bound=Fraction(3)).fit_queries(World(rows, labels))
    scales, shift = np.array([1.0, 2, 5, 0.1, 1, 30]), 3.0
    fitted = PrivateNewton().fit(rows[:, :-1] * scales + shift, np.where(labels > 0, "yes", "no"))
    assert fitted.coef_[0] * scales == pytest.approx(asked.theta_[:-1], rel=1e-6)
    assert fitted.intercept_ + fitted.coef_[0] @ np.full(6, shift) == pytest.approx(asked.theta_[-1], rel=1e-6)
    assert fitted.classes_.tolist() == ["no", "yes"]


@pytest.mark.parametrize(
    "options",
    [
        {"rounds": 1},
        {"rounds": 2.5},
        {"moments_part": 0.0},
        {"moments_part": 1.0},
        {"clip": 0.0},
        {"clip": np.nan},
        {"shrinkage": -1.0},
        {"shrinkage": np.inf},
    ],
)
def test_parameters_out_of_range_are_refused_before_any_query(table, options):
    world = World(*table)
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        PrivateNewton(**options).fit_queries(world)
    assert not world.asked


def exact_moments(products, m, noise):
    d = len(products)
    return Moments(
        np.zeros(d), products, m, bias=False, norm_bound=2.0, edge_noise=noise, product_noise=noise * np.ones((d, d))
    )


def test_whitening_gives_every_direction_the_spread_one():
    random = np.random.default_rng(2)
    root_of = random.normal(size=(5, 5)) * np.array([1.0, 0.5, 0.3, 0.2, 0.1])
    spread = root_of @ root_of.T
    found = Whitening.of(exact_moments(1000 * spread, 1000, 0.0), 0.8)
    p = found.basis.matrix
    assert p @ spread @ p.T == pytest.approx(np.eye(5), abs=0.02)
    assert found.size == pytest.approx(np.sqrt(5), rel=1e-3)


def test_whitening_does_not_stretch_directions_lost_in_noise():
    """A negative eigenvalue is noise: its direction is scaled by what the noise allows, and counts as no length."""
    products = np.diag([900.0, 400.0, -5.0])
    found = Whitening.of(exact_moments(products, 1000, 20.0), 0.8)
    assert np.diag(found.basis.matrix)[:2] == pytest.approx([np.sqrt(1000 / 900), np.sqrt(1000 / 400)], rel=0.02)
    assert 2 < found.basis.matrix[2, 2] < np.sqrt(1000 / 20) * 2
    assert found.size == pytest.approx(np.sqrt(2), rel=0.01)
    # Without noise there is a limit too.
    flat = Whitening.of(exact_moments(np.diag([900.0, 400.0, 0.0]), 1000, 0.0), 0.8)
    assert flat.basis.matrix.max() < 2000


@pytest.mark.parametrize("noise", [4.0, 12.0])
def test_cleaned_whitening_gives_more_even_spreads(noise):
    """The true second moments of z are nearer to one in all directions, and its length is known better."""
    d, m = 60, 1000
    random = np.random.default_rng(5)
    rotation = np.linalg.qr(random.normal(size=(d, d)))[0]
    true = m * (rotation * np.geomspace(1.0, 0.02, d)) @ rotation.T
    above = np.triu(random.normal(scale=noise, size=(d, d)))
    noisy = np.triu(true) + above
    moments = exact_moments(noisy + np.triu(noisy, 1).T, m, noise)

    def uneven(found):
        spreads = np.linalg.eigvalsh(found.basis.matrix @ (true / m) @ found.basis.matrix.T)
        return spreads.std(), abs(found.size / np.sqrt(spreads.sum()) - 1.0)

    plain, cleaned = uneven(Whitening.of(moments, 0.15)), uneven(Whitening.cleaned(moments, 0.03))
    assert cleaned[0] < 0.8 * plain[0]
    assert cleaned[1] < 0.5 * plain[1]


def test_the_norm_leaves_room_for_real_features_alone():
    label, real = Label(column="y", positive=("1",)), RealFeature(name="a", lower=0.0, upper=9.0)
    flags = (BooleanFeature(name="f", true=("1",), false=("0",)),)
    assert roomy_norm(Schema(name="s", label=label, features=(real, *flags))) == Fraction(164, 100)
    assert roomy_norm(Schema(name="s", label=label, features=(real,), bias=False)) == Fraction(82, 100)


def field(curvature, at, where, noise=0.0, sample=None):
    """A release at `where` of a linear gradient kappa (I + D) (phi - at), with noise of that deviation in steps."""
    gradient = CURVATURE * curvature @ (where - at)
    extra = 0.0 if sample is None else noise * sample
    return Seen(where, where - gradient / CURVATURE + extra, noise)


def test_root_of_an_isotropic_field_is_found_at_once():
    at = np.array([1.0, -2.0, 0.5])
    assert root([field(np.eye(3), at, np.zeros(3))]) == pytest.approx(at)


@pytest.mark.parametrize("steepness", [0.3, 3.0])
def test_root_estimates_the_curvature_along_past_steps(steepness):
    """Along the first coordinate curvature is not kappa; one more release there, and a fifth of the error is left.

    Not less, because the field need not be linear: the estimate discounts the observed curvature by 1/11 for a step of
    any length.
    """
    curvature, at = np.diag([steepness, 1.0, 1.0]), np.array([2.0, 0.0, 0.0])
    seen = [field(curvature, at, np.zeros(3))]
    first = root(seen)
    assert abs(first[0] - at[0]) > 1
    seen.append(field(curvature, at, first))
    assert np.linalg.norm(root(seen) - at) < np.linalg.norm(first - at) / 5


def test_root_takes_curvature_to_be_symmetric():
    """Steps along the first coordinate determine the second entry of its column, and so that of the second column."""
    curvature = np.array([[1.0, 0.4], [0.4, 1.0]])
    at, start = np.array([1.0, -1.0]), np.array([3.0, 0.0])
    seen = [field(curvature, at, start), field(curvature, at, np.zeros(2))]
    assert root(seen) == pytest.approx(at, abs=0.12)
    assert np.abs(root(seen[-1:]) - at).max() > 0.3


def test_root_is_the_mean_of_all_releases_if_noise_dominates():
    random, at = np.random.default_rng(5), np.array([0.5, 0.2, -0.3, 0.1])
    seen = [field(np.eye(4), at, at + 1e-3 * random.normal(size=4), 0.2, random.normal(size=4)) for _ in range(6)]
    assert root(seen) == pytest.approx(np.mean([one.target for one in seen], axis=0), abs=2e-3)
    # Half the noise has four times the weight.
    louder = Seen(seen[0].phi, seen[0].target, 0.4)
    weights = np.array([0.25, 1, 1, 1, 1, 1])
    wanted = np.average([one.target for one in seen], axis=0, weights=weights)
    assert root([louder, *seen[1:]]) == pytest.approx(wanted, abs=2e-3)


def test_root_trusts_a_far_release_less():
    """The field is not linear: far releases differ. With little noise the near release is followed."""
    at = np.zeros(3)
    far = Seen(np.full(3, 8.0), np.full(3, 4.0), 0.05)
    near = field(np.eye(3), at, np.full(3, 0.1), 0.05)
    assert np.abs(root([far, near])).max() < 0.1
    assert np.abs(np.mean([far.target, near.target], axis=0)).max() > 1


@pytest.mark.parametrize(("total", "refused"), [(0.0, True), (150.0, True), (5_000.0, False)])
def test_rows_whose_weights_are_hidden_by_noise_are_refused_after_one_answer(total, refused):
    """It asked seven more, and the model was noise."""
    features = (RealFeature(name="age", lower=0.0, upper=1.0),)
    weight = Weight(column="w", upper=2.0)
    schema = Schema(name="s", label=Label(column="y", positive=("1",)), features=features, weight=weight)
    noise = np.full((2, 2), 50.0)
    moments = Moments(np.zeros(2), np.array([[total, 0.0], [0.0, total]]), 8_000, True, 2.0, 20.0, noise)
    if not refused:
        check_counted(schema, moments)
        return
    with pytest.raises(DataError, match=r"the rows' weights 'w' add up to .* nothing can be learned"):
        check_counted(schema, moments)
    check_counted(replace(schema, weight=None), moments)
