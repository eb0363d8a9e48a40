"""Evaluations against exact results on the rows, and with almost no information."""

import json
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from dpcore.errors import ConfigurationError, ShapeError
from dpcore.estimators.additive import PrivateAdditive
from dpcore.evaluation.evaluation import WIDE, Evaluation
from dpcore.evaluation.evaluation import evaluate as evaluate_rows
from dpcore.evaluation.options import EvaluationOptions
from dpcore.evaluation.scores import linear_scores
from dpcore.numbers.fixed_point import ONE
from dpcore.predicates.disjoint import batch_sensitivity
from dpcore.predicates.evaluation import values
from dpcore.predicates.notation import parse, to_text
from dpcore.records.encoding import store
from dpcore.records.feature_map import Column, FeatureMap, Hat, PointMass, Product, Term
from dpcore.records.held_back import HeldBack, Part
from dpcore.records.records import Records
from tests.dpcore.estimators import oracle_world as world
from tests.dpcore.records.test_feature_map import by_definition


def evaluate(theta, oracle, *, part=Fraction(1), feature_map=None, **options):
    """THETA is chosen here and not learned: it saw no row."""
    chosen = EvaluationOptions(edges_part=Fraction(0), **options)
    return evaluate_rows(theta, oracle, chosen, unseen=True, part=part, feature_map=feature_map)


THETA = np.array([2.0, -1.0, 0.5, -0.3])
SCHEMA = world.schema_of(*(world.real(f"r{i}") for i in range(3)))
SIX_BINS = EvaluationOptions(bins=6)
EDGES = np.array([-1.0, 0.0, 1.0])
PROPORTIONS = ("error", "true_positive_rate", "false_positive_rate", "precision", "balanced_accuracy", "auc")


def rows_of(rows, theta=THETA, seed=0):
    """Coordinates and labels of a logistic model: this theta is calibrated."""
    generator = np.random.default_rng(seed)
    x = np.column_stack([generator.uniform(-1, 1, (rows, len(theta) - 1)), np.ones(rows)])
    labels = np.where(generator.random(rows) < 1 / (1 + np.exp(-x @ theta)), 1, -1)
    return x, labels


def test_without_noise_counts_are_exact():
    x, labels = rows_of(3000)
    found = evaluate(THETA, world.divided(SCHEMA, x, labels))
    predicted = x @ THETA > 0
    expected = [[np.sum((labels == label) & (predicted == side)) for side in (False, True)] for label in (-1, 1)]
    assert found.confusion.tolist() == expected
    (tn, fp), (fn, tp) = expected
    for proportion, share in (
        (found.error, (fp + fn) / 3000),
        (found.true_positive_rate, tp / (tp + fn)),
        (found.false_positive_rate, fp / (fp + tn)),
        (found.precision, tp / (tp + fp)),
        (found.balanced_accuracy, (tp / (tp + fn) + tn / (tn + fp)) / 2),
    ):
        assert proportion.estimate == pytest.approx(share, abs=1e-12)
        assert (proportion.on_rows.lower, proportion.on_rows.upper) == pytest.approx((share, share), abs=1e-9)
        assert proportion.on_distribution.lower < share < proportion.on_distribution.upper
    assert (found.usable, found.usable_half_width, found.cell_half_width) == (3000, 0.0, 0.0)


def test_without_noise_the_roc_curve_is_exact():
    x, labels = rows_of(3000)
    scores = x @ THETA
    found = evaluate(THETA, world.divided(SCHEMA, x, labels), bins=10)
    assert [point.threshold for point in found.roc] == pytest.approx([math.log(k / (10 - k)) for k in range(9, 0, -1)])
    for point in found.roc:
        above = scores > point.threshold
        assert point.true_positive_rate.estimate == pytest.approx(above[labels == 1].mean(), abs=1e-12)
        assert point.false_positive_rate.estimate == pytest.approx(above[labels == -1].mean(), abs=1e-12)
    area = roc_auc_score(labels, scores)
    assert area in found.auc.on_rows
    assert found.auc.on_rows.width < 0.1
    assert abs(found.auc.estimate - area) < 0.01
    assert area in found.auc.on_distribution
    assert found.auc.on_distribution.width > found.auc.on_rows.width + 2 * 1.2 / math.sqrt(2 * (labels == 1).sum())


def test_without_noise_calibration_is_exact():
    x, labels = rows_of(3000)
    found = evaluate(THETA, world.divided(SCHEMA, x, labels), bins=8)
    predicted = 1 / (1 + np.exp(-x @ THETA))
    for place, part in enumerate(found.calibration):
        inside = (predicted > place / 8) & (predicted <= (place + 1) / 8)
        assert (part.predicted.lower, part.predicted.upper) == pytest.approx((place / 8, (place + 1) / 8))
        assert part.rows == inside.sum()
        assert part.observed.estimate == pytest.approx((labels[inside] == 1).mean(), abs=1e-12)
        assert not part.is_off
    overconfident = evaluate(4 * THETA, world.divided(SCHEMA, x, labels), bins=8)
    assert overconfident.calibration[0].is_off
    assert overconfident.calibration[-1].is_off
    off = sum(part.is_off for part in overconfident.calibration)
    assert f"In {off} of 8 bins" in overconfident.sentences()[-3]
    assert "is consistent with the model" in found.sentences()[-3]
    # Scores four times too large are calibrated on a scale of 4.
    rescaled = evaluate(4 * THETA, world.divided(SCHEMA, x, labels), bins=8, scale=4.0)
    assert not any(part.is_off for part in rescaled.calibration)


def test_a_score_of_zero_is_predicted_negative():
    schema = world.flags_schema(2)
    x = world.flag_rows(np.array([[True, False], [True, True], [False, False]]))
    found = evaluate([0.5, 0.5, 0.0], world.divided(schema, x, np.array([1, 1, 1]), parties=1))
    assert found.confusion.tolist() == [[0, 0], [2, 1]]
    assert found.rounding < 1e-8


@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1, 10**6)])
@pytest.mark.parametrize("bins", [6, 20])
def test_one_release_of_two_histograms(delta, bins):
    x, labels = rows_of(200)
    oracle = world.divided(SCHEMA, x, labels, epsilon=1, delta=delta)
    evaluate(THETA, oracle, bins=bins, part=Fraction(1, 2))
    ((batch, part),) = oracle.releases
    assert part == Fraction(1, 2)
    sensitivity = batch_sensitivity(batch)
    assert (sensitivity.l1, sensitivity.l2_squared) == (4, 4)
    assert len(batch) == 4 + 2 * bins
    assert tuple(parse(to_text(predicate)) for predicate in batch) == tuple(batch)
    # Every row is in one cell and in one bin.
    cells = values(batch, SCHEMA, world.records(x, labels), 0)
    assert (cells[:, :4].sum(axis=1) == 1).all()
    assert (cells[:, 4:].sum(axis=1) == 1).all()


@pytest.mark.more
def test_unusable_rows_are_not_counted():
    x, labels = rows_of(2000)
    usable = np.arange(2000) % 4 != 0
    table = world.records(np.where(usable[:, np.newaxis], x, 0.0), np.where(usable, labels, 1))
    table = Records(table.features, table.labels, usable)
    wrong = (np.where(x @ THETA > 0, 1, -1) != labels)[usable].mean()
    exact = evaluate(THETA, world.TableOracle(SCHEMA, [table]))
    assert exact.rows == 2000
    assert exact.usable == 1500
    assert exact.error.estimate == pytest.approx(wrong, abs=1e-12)
    noisy = evaluate(THETA, world.TableOracle(SCHEMA, [table], epsilon=1))
    assert abs(noisy.usable - 1500) <= noisy.usable_half_width < 100
    assert wrong in noisy.error.on_rows


@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1, 10**6)])
def test_with_noise_intervals_hold_and_are_narrow(delta):
    x, labels = rows_of(5000)
    oracle = world.divided(SCHEMA, x, labels, epsilon=1, delta=delta, seed=5)
    found = evaluate(THETA, oracle)
    wrong = (np.where(x @ THETA > 0, 1, -1) != labels).mean()
    assert wrong in found.error.on_rows
    # Noise of two cells, and of a quarter of two more.
    ideal = 2 * 1.96 * found.deviation * math.hypot(math.sqrt(2) * (1 - wrong), math.sqrt(2) * wrong) / 5000
    assert found.error.on_rows.width < 1.6 * ideal
    # Of this distribution: the probability of the rarer side.
    generator = np.random.default_rng(1)
    fresh = np.column_stack([generator.uniform(-1, 1, (400_000, 3)), np.ones(400_000)]) @ THETA
    assert np.mean(1 / (1 + np.exp(np.abs(fresh)))) in found.error.on_distribution
    sampling = math.hypot(ideal, 2 * 1.96 * math.sqrt(wrong * (1 - wrong) / 5000))
    assert found.error.on_distribution.width < 1.6 * sampling
    assert roc_auc_score(labels, x @ THETA) in found.auc.on_rows
    assert found.deviation == pytest.approx(5.66 if delta == 0 else 8.4, rel=0.05)


DEGENERATE = {
    "zero model": (np.zeros(4), 50, None),
    "constant model": (np.array([0.0, 0.0, 0.0, 1.0]), 50, None),
    "one row": (THETA, 1, None),
    "positive rows only": (THETA, 50, 1),
    "negative rows only": (THETA, 50, -1),
}


@pytest.mark.variants(4)
@pytest.mark.parametrize("epsilon", [None, 5, Fraction(1, 100)])
@pytest.mark.parametrize("case", DEGENERATE)
def test_intervals_are_wide_with_little_information(case, epsilon):
    theta, rows, label = DEGENERATE[case]
    x, labels = rows_of(rows)
    labels = labels if label is None else np.full(rows, label)
    found = evaluate(theta, world.divided(SCHEMA, x, labels, parties=1, epsilon=epsilon), bins=6)
    text = json.dumps(found.to_dict(), allow_nan=False)
    assert json.loads(text)["rows"] == rows
    assert len(found.sentences()) == 12
    assert ("because of the noise" in found.sentences()[0]) == (found.error.on_rows.width > WIDE)
    wrong = (np.where(x @ theta > 0, 1, -1) != labels).mean()
    assert found.error.on_rows.lower - 1e-9 <= wrong <= found.error.on_rows.upper + 1e-9
    assert found.error.on_distribution.width > found.error.on_rows.width - 1e-9
    if label == 1:
        assert found.false_positive_rate.on_rows.width == 1.0
        assert found.auc.on_distribution.width == 1.0
    if epsilon == Fraction(1, 100):
        assert found.error.on_rows.width == 1.0


def test_a_theta_of_halves_is_exact_and_others_are_near():
    scores = linear_scores([0.5, -3.0, 2.5, 1.0], SCHEMA, EDGES)
    assert [weight * 2.0**-scores.exponent for _, weight in scores.weights] == [0.5, -3.0, 2.5]
    assert scores.constant * 2.0**-scores.exponent == 1.0
    assert [edge * 2.0**-scores.exponent for edge in scores.edges] == [-1.0, 0.0, 1.0]
    # The remaining rounding: coordinates are stored in 30 bits.
    assert scores.rounding == pytest.approx(6.0 * 2.0**-30)
    odd = linear_scores([1 / 3, -1 / 7, 0.1, 0.2], SCHEMA, EDGES)
    x, _ = rows_of(500)
    exact = x @ np.array([1 / 3, -1 / 7, 0.1, 0.2])
    rounded = x @ np.array([*(weight for _, weight in odd.weights), odd.constant]) * 2.0**-odd.exponent
    assert 0 < np.abs(exact - rounded).max() <= odd.rounding < 3e-9


@pytest.mark.variants(3)
@pytest.mark.parametrize("size", [1e-12, 1.0, 1e6])
@pytest.mark.parametrize("d", [1, 40, 3000])
def test_weights_always_fit_and_use_all_bits(size, d):
    schema = world.schema_of(*(world.real(f"r{i}") for i in range(d)))
    theta = np.random.default_rng(d).normal(size=d + 1) * size
    scores = linear_scores(theta, schema, EDGES)
    most = sum(abs(weight) for _, weight in scores.weights) + abs(scores.constant) + max(map(abs, scores.edges))
    assert 2**31 - 2 * d - 8 <= most < 2**32
    assert scores.bins()


BENT = FeatureMap(
    (
        Term(Column(0)),
        Term(Hat(0, -ONE, 0, ONE), ONE // 2),
        Term(Hat(1, -ONE // 3, 5, None), ONE // 7, 1),
        Term(PointMass(2, ONE // 2), ONE // 3),
        Term(Product(1, 3)),
    ),
    bias=True,
)
BENT_THETA = np.array([0.7, 3.0, -2.0, 1.5, -4.0, 0.2])


def bent_rows(rows, seed=0):
    x, _ = rows_of(rows, seed=seed)
    x[::3, 2] = 0.5
    scores = BENT.of(x) @ BENT_THETA
    labels = np.where(np.random.default_rng(seed + 1).random(rows) < 1 / (1 + np.exp(-scores)), 1, -1)
    return x, labels, scores


def test_a_model_over_a_feature_map_is_evaluated_on_mapped_rows():
    x, labels, scores = bent_rows(3000)
    oracle = world.divided(SCHEMA, x, labels)
    found = evaluate(BENT_THETA, oracle, bins=6, feature_map=BENT)
    expected = [[np.sum((labels == label) & ((scores > 0) == side)) for side in (False, True)] for label in (-1, 1)]
    assert found.confusion.tolist() == expected
    for point in found.roc:
        assert point.true_positive_rate.estimate == pytest.approx((scores > point.threshold)[labels == 1].mean())
    # One histogram of the margin and one of the prediction: a row moves two cells of either.
    ((batch, _),) = oracle.releases
    assert (batch_sensitivity(batch).l1, batch_sensitivity(batch).l2_squared) == (4, 4)


def test_a_mapped_score_is_rounded_by_no_more_than_is_stated():
    x, _, scores = bent_rows(2000, seed=3)
    found = linear_scores(BENT_THETA, SCHEMA, EDGES, BENT)
    integers = np.array([by_definition(BENT, row) for row in store(x).tolist()], dtype=object)
    exact = integers @ np.array([*(w for _, w in found.weights), found.constant], dtype=object)
    away = np.abs(exact.astype(float) * 2.0 ** -(found.exponent + 30) - scores).max()
    assert 0 < away <= found.rounding < 1e-7
    with pytest.raises(ShapeError, match="the feature map 6 coordinates"):
        linear_scores(THETA, SCHEMA, EDGES, BENT)


def test_invalid_arguments_are_refused():
    oracle = world.divided(SCHEMA, *rows_of(10), parties=1)
    for theta in (THETA[:3], np.zeros((4, 1))):
        with pytest.raises(ShapeError, match="give \\(d,\\)"):
            evaluate(theta, oracle)
    for theta in ([math.nan, 0, 0, 0], [math.inf, 0, 0, 0], [1e308] * 4):
        with pytest.raises(ConfigurationError, match="finite"):
            evaluate(theta, oracle)
    with pytest.raises(ConfigurationError, match="raise scale"):
        evaluate(1e12 * THETA, oracle)
    for option in ({"bins": 5}, {"bins": 4}, {"bins": 1000}, {"confidence": 1.0}, {"scale": 0.0}, {"scale": math.inf}):
        with pytest.raises(ConfigurationError, match=next(iter(option))):
            evaluate(THETA, oracle, **option)
    assert not oracle.releases


def test_a_model_of_curves_is_told_to_come_with_its_feature_map():
    oracle = world.divided(SCHEMA, *rows_of(50), parties=1)
    with pytest.raises(ShapeError, match=r"for a model of curves feature_map=model\.feature_map too"):
        evaluate(np.zeros(16), oracle)
    model = PrivateAdditive()
    with pytest.raises(ConfigurationError, match=r"theta is a PrivateAdditive, .*feature_map=model\.feature_map\)"):
        evaluate(model, oracle)


def test_an_evaluation_is_frozen():
    found = evaluate(THETA, world.divided(SCHEMA, *rows_of(50), parties=1), bins=6)
    assert isinstance(found, Evaluation)
    with pytest.raises(ValueError, match="read-only"):
        found.confusion[0, 0] = 1.0


def test_nothing_is_claimed_about_new_rows_unless_the_rows_were_not_seen():
    x, labels = rows_of(2000)
    found = evaluate_rows(THETA, world.divided(SCHEMA, x, labels), EvaluationOptions(bins=6, edges_part=Fraction(0)))
    told, said = json.loads(json.dumps(found.to_dict(), allow_nan=False)), found.sentences()
    proportions = [told[name] for name in PROPORTIONS]
    proportions += [part["observed"] for part in told["calibration"]]
    proportions += [point[name] for point in told["roc"] for name in ("true_positive_rate", "false_positive_rate")]
    assert len(proportions) == 6 + 6 + 2 * 5
    assert all(part["on_distribution"] is None for part in proportions)
    assert told["unseen"] is False
    assert told["part"] is None
    assert "it was trained on" in said[0]
    assert sum("new rows" in sentence for sentence in said) == 1
    assert "Nothing is claimed about new rows" in said[-1]
    # What holds on the rows is the same, whatever is claimed beyond them.
    claimed = evaluate(THETA, world.divided(SCHEMA, x, labels), bins=6)
    assert [getattr(found, name).on_rows for name in PROPORTIONS] == [
        getattr(claimed, name).on_rows for name in PROPORTIONS
    ]
    assert all(getattr(claimed, name).on_distribution is not None for name in PROPORTIONS)
    assert "drawn as these were" in claimed.sentences()[-1]


@pytest.mark.more
@pytest.mark.parametrize("part", Part)
def test_only_rows_that_are_held_back_are_taken_to_be_new(part):
    x, labels = rows_of(500)
    oracle = world.divided(SCHEMA, x, labels)
    oracle.held_back = HeldBack(Fraction(1, 5), part)
    found = evaluate_rows(THETA, oracle, SIX_BINS)
    assert found.unseen == (part is Part.HELD_BACK)
    assert (found.error.on_distribution is not None) == found.unseen
    assert ("hold back" in found.sentences()[0]) == found.unseen
    assert found.to_dict()["part"] == {"share": "1/5", "part": part.value}


@pytest.mark.more
def test_a_part_may_have_more_rows_than_on_average():
    """Counts are those of the rows that are there, and are cut at the number of all rows only."""
    x, labels = rows_of(130)

    class Oracle(world.TableOracle):
        held_back = HeldBack(Fraction(1, 5), Part.HELD_BACK)

        def statistic(self, *arguments, **options):
            found = super().statistic(*arguments, **options)
            return replace(found, values=found.values * 1.3, rows=100, most_rows=500)

    found = evaluate_rows(THETA, Oracle(SCHEMA, [world.records(x, labels)]), SIX_BINS)
    expected = evaluate_rows(THETA, world.divided(SCHEMA, x, labels), SIX_BINS, unseen=True)
    assert (found.rows, found.usable, expected.usable) == (500, 130, 130)
    assert found.confusion.tolist() == expected.confusion.tolist()
    assert found.error == expected.error
