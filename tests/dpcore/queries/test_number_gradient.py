"""Gradients of a label that is a number or a count: exact sums, clipping, and which label has which loss."""

from fractions import Fraction

import numpy as np
import pytest

from dpcore.errors import ConfigurationError, PlanError, SchemaError, ShapeError
from dpcore.numbers.fixed_point import ONE
from dpcore.queries.gradient import THETA_BITS, GradientQuery
from dpcore.queries.number_gradient import NumberGradientQuery
from dpcore.records.clipping import Basis
from dpcore.records.coding import NUMBER, OFFSET_BITS, Coding
from dpcore.records.features import Count, Label, Number
from dpcore.records.losses import WEIGHT_BITS, clip_squared
from dpcore.records.records import BLOCK_ROWS, Records

BITS, D = 12, 3
COUNTS = Coding("count", 30, has_exposure=True)
THETA = (300_000, -900_000, 150_000)


def party(rows: int, seed: int, coding: Coding) -> Records:
    generator = np.random.default_rng(seed)
    features = generator.integers(-ONE, ONE, size=(rows, D), endpoint=True).astype(np.int32)
    features[:, -1] = ONE
    usable = generator.random(rows) > 0.2
    if coding.kind == "number":
        labels = generator.integers(-ONE, ONE, rows, endpoint=True).astype(np.int32)
    else:
        counts, offsets = generator.poisson(2.0, rows), generator.integers(-1 << OFFSET_BITS, 1 << OFFSET_BITS, rows)
        labels = np.column_stack([counts, offsets]).astype(np.int32)
    features[~usable], labels[~usable] = 0, 1
    return Records(features, labels, usable, coding=coding)


def by_definition(held: Records, theta: tuple[int, ...], clip: float) -> np.ndarray:
    x, used = held.features / ONE, held.usable
    eta = x @ np.ldexp(np.array(theta, dtype=float), -THETA_BITS)
    if held.coding.kind == "number":
        weights = eta - held.labels / ONE
    else:
        weights = np.exp(eta + np.ldexp(held.labels[:, 1].astype(float), -OFFSET_BITS)) - held.labels[:, 0]
    weights = np.sign(weights) * np.minimum(np.abs(weights), clip / np.maximum(np.linalg.norm(x, axis=1), 1e-9))
    return (weights * used) @ x


@pytest.mark.parametrize("clip", [Fraction(1, 5), Fraction(20)])
@pytest.mark.parametrize(("loss", "coding"), [("squared", NUMBER), ("poisson", COUNTS)])
def test_a_contribution_is_the_sum_of_clipped_gradients(loss, coding, clip):
    held = party(2 * BLOCK_ROWS + 9, 4, coding)
    query = NumberGradientQuery(loss, THETA, clip, 40, None, coding)
    found = query.decode(query.sums(held, BITS), BITS)
    # A weight is off by at most 2^-12, or the step of the table, and x by 2^-12.
    assert found == pytest.approx(by_definition(held, THETA, float(clip)), abs=held.rows * 4e-3)
    shuffled = [held.between(0, 700), held.between(700, held.rows)]
    assert np.array_equal(sum(query.sums(part, BITS) for part in shuffled), query.sums(held, BITS))


def one_record(x: list[int], label: int | list[int], coding: Coding) -> Records:
    return Records(np.array([x], np.int32), np.array([label], np.int32), np.array([True]), coding=coding)


@pytest.mark.parametrize("clip", [Fraction(1, 7), Fraction(1), Fraction(40)])
def test_no_record_s_gradient_is_longer_than_the_clip(clip):
    """Whatever the record, and at labels and scores as far apart as they can be; some reach it."""
    generator = np.random.default_rng(3)
    theta = tuple((np.array([40, -40, 40]) << THETA_BITS).tolist())
    most, longest = clip_squared(clip, BITS), 0
    for _ in range(200):
        x = generator.integers(-ONE, ONE, D, endpoint=True).tolist()
        for coding, loss, label in (
            (NUMBER, "squared", int(generator.choice([-ONE, 0, ONE]))),
            (COUNTS, "poisson", [30, 9]),
        ):
            query = NumberGradientQuery(loss, theta, clip, 40, None, coding)
            squared = sum(int(value) ** 2 for value in query.sums(one_record(x, label, coding), BITS))
            assert squared <= most
            longest = max(longest, squared)
    assert longest > 0.98 * most


def test_a_basis_is_applied_before_the_margin():
    held = party(300, 5, NUMBER)
    basis = Basis.of(np.array([[1.0, 0.5, 0.0], [0.0, 1.0, 0.0], [0.25, 0.0, 1.0]]))
    query = NumberGradientQuery("squared", THETA, Fraction(30), 40, basis)
    z = held.features / ONE @ basis.matrix.T
    weights = (z @ np.ldexp(np.array(THETA, dtype=float), -THETA_BITS) - held.labels / ONE) * held.usable
    assert query.decode(query.sums(held, BITS), BITS) == pytest.approx(weights @ z, abs=held.rows * 2e-3)


def test_an_exposure_multiplies_the_mean():
    zero = (0,) * D
    one, three = (one_record([0, 0, ONE], [0, round(np.log(e) * 2**OFFSET_BITS)], COUNTS) for e in (1, 3))
    query = NumberGradientQuery("poisson", zero, Fraction(30), 40, None, COUNTS)
    found = [float(query.decode(query.sums(held, BITS), BITS)[-1]) for held in (one, three)]
    assert found == pytest.approx([1.0, 3.0], rel=1e-3)


def test_the_label_decides_which_loss_there_is():
    with pytest.raises(PlanError, match="the poisson loss is of counts"):
        NumberGradientQuery("poisson", THETA, Fraction(1), 40)
    with pytest.raises(ConfigurationError, match="no loss of such a label is called 'logistic'; choose one of squared"):
        NumberGradientQuery("logistic", THETA, Fraction(1), 40)
    with pytest.raises(ConfigurationError, match="no loss of such a label is called 'squared'; choose one of logistic"):
        GradientQuery("squared", THETA, Fraction(1), 40)
    query = NumberGradientQuery("squared", THETA, Fraction(1), 40)
    with pytest.raises(SchemaError, match="a gradient of the squared loss needs a label that is a number"):
        query.check_target(Label(column="y", positive=("a",)))
    with pytest.raises(PlanError, match="different labels"):
        query.check_target(Count(column="y", upper=4))
    query.check_target(Number(column="y", lower=0.0, upper=1.0))
    with pytest.raises(ShapeError, match="use one schema"):
        query.sums(party(4, 1, COUNTS), BITS)
    assert (1 << WEIGHT_BITS) == 4096
