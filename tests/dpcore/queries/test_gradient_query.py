"""The gradient query: what a record contributes, its bound, and that the parties' sums add up exactly."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.accounting.noise_shares import gradient_squared
from dpcore.errors import ConfigurationError, PlanError, ShapeError
from dpcore.queries.gradient import THETA_BITS, GradientQuery, fitting_fraction_bits
from dpcore.queries.kind import QueryLimits
from dpcore.randomness.sources import SeededRandom
from dpcore.records.clipping import BASIS_BITS, Basis
from dpcore.records.computation import Computation
from dpcore.records.encoding import store
from dpcore.records.losses import WEIGHT_BITS, clip_squared, shortened, weights
from dpcore.records.records import Records, edges
from tests.examples import examples

D = 4
BITS = 12


def records(seed: int = 0, rows: int = 300) -> Records:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (rows, D))
    x[:, -1] = 1
    labels = np.where(x @ [1.0, -2.0, 0.5, 0.2] + 0.3 * rng.normal(size=rows) > 0, 1, -1).astype(np.int8)
    usable = rng.random(rows) > 0.1
    x[~usable] = 0
    labels[~usable] = 1
    return Records(store(x), labels, usable)


def part(whole: Records, rows: slice) -> Records:
    return Records(whole.features[rows], whole.labels[rows], whole.usable[rows])


def query(theta: list[float], clip: str = "3", loss: str = "logistic", basis: Basis | None = None) -> GradientQuery:
    integers = tuple(round(value * (1 << THETA_BITS)) for value in theta)
    return GradientQuery(loss, integers, Fraction(clip), 1000, basis)  # type: ignore[arg-type]  # a loss's name


THETA = [0.7, -1.1, 0.2, 0.4]


def real_edges(whole: Records) -> np.ndarray:
    return whole.labels[:, None] * np.ldexp(whole.features.astype(float), -30)


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
@pytest.mark.parametrize("clip", ["3", "0.4"])
def test_gradient_is_the_loss_s(loss: str, clip: str) -> None:
    whole, kind = records(), query(THETA, clip, loss)
    e = real_edges(whole)
    margins = e @ THETA
    weight = 1 / (1 + np.exp(margins)) if loss == "logistic" else (margins < 1).astype(float)
    norms = np.linalg.norm(e, axis=1)
    weight = np.minimum(weight, float(Fraction(clip)) / np.maximum(norms, 1e-12))
    wanted = -(weight[:, None] * e).sum(axis=0)
    found = kind.decode(kind.sums(whole, BITS), BITS)
    assert found == pytest.approx(wanted, abs=whole.rows * 2.0**-11)
    # The margin's sign matters: at minus theta the gradient is another one.
    other = query([-value for value in THETA], clip, loss)
    assert np.abs(other.decode(other.sums(whole, BITS), BITS) - wanted).max() > 1


def test_logistic_weights_are_within_the_stated_error_and_fall() -> None:
    margins = np.linspace(-20, 20, 4001)
    found = weights(np.rint(np.ldexp(margins, 32)).astype(np.int64), 32, "logistic") / 2.0**WEIGHT_BITS
    inside = np.abs(margins) < 16
    assert np.abs(found - 1 / (1 + np.exp(margins)))[inside].max() <= 2.0**-WEIGHT_BITS
    assert (np.diff(found) <= 0).all()
    assert found[0] == 1
    assert found[-1] == 0


def test_basis_is_a_change_of_coordinates() -> None:
    """With P and without clipping, the gradient at theta is P times that of edges at P^T theta."""
    rng = np.random.default_rng(5)
    basis = Basis.of(np.linalg.qr(rng.normal(size=(D, D)))[0] * 1.5)
    whole = records(1)
    in_basis = query(THETA, "5", basis=basis)
    as_edges = query(list(basis.matrix.T @ THETA), "5")
    wanted = basis.matrix @ as_edges.decode(as_edges.sums(whole, 16), 16)
    assert in_basis.decode(in_basis.sums(whole, 16), 16) == pytest.approx(wanted, abs=0.1)
    # Its transpose is another basis.
    turned = query(THETA, "5", basis=Basis.of(basis.matrix.T))
    assert np.abs(turned.decode(turned.sums(whole, 16), 16) - wanted).max() > 1


@pytest.mark.parametrize("basis", [None, Basis.of(np.diag([3.0, 0.5, 1.0, 2.0]))])
def test_parts_add_up_to_the_whole_bit_for_bit(basis: Basis | None) -> None:
    whole, kind = records(2, 9001), query(THETA, "0.7", basis=basis)
    parts = [part(whole, slice(0, 1)), part(whole, slice(1, 4500)), part(whole, slice(4500, None))]
    assert np.array_equal(sum(kind.sums(each, BITS) for each in parts), kind.sums(whole, BITS))
    order = np.random.default_rng(3).permutation(whole.rows)
    mixed = Records(whole.features[order], whole.labels[order], whole.usable[order])
    assert np.array_equal(kind.sums(mixed, BITS), kind.sums(whole, BITS))


def test_unusable_rows_add_zero() -> None:
    whole, kind = records(), query(THETA)
    kept = np.flatnonzero(whole.usable)
    only = Records(whole.features[kept], whole.labels[kept], whole.usable[kept])
    assert np.array_equal(kind.sums(only, BITS), kind.sums(whole, BITS))


@given(
    seed=st.integers(0, 2**32 - 1),
    clip=st.fractions(Fraction(1, 100), 4, max_denominator=1000),
    bits=st.integers(4, 16),
    scale=st.sampled_from([0.0, 1.0, 100.0]),
    turned=st.booleans(),
)
def test_no_record_is_longer_than_the_clip(seed: int, clip: Fraction, bits: int, scale: float, turned: bool) -> None:
    rng = np.random.default_rng(seed)
    basis = Basis.of(rng.normal(size=(D, D)) * 5) if turned else None
    kind = query(list(rng.normal(size=D) * scale), str(clip), basis=basis)
    whole = records(seed)
    longest = clip_squared(clip, bits)
    for row in range(0, whole.rows, 37):
        one = kind.sums(part(whole, slice(row, row + 1)), bits)
        assert int(np.square(one.astype(object)).sum()) <= longest
    assert gradient_squared(clip, bits) == 4 * longest


def test_sensitivity_is_reached_nearly_and_a_smaller_one_is_violated() -> None:
    """Two opposite records, both misclassified: nothing less than 2 C bounds their distance."""
    x = np.array([[1.0, 1.0, -1.0, 1.0]])
    theta = [-5.0, -5.0, 5.0, -5.0]
    one = Records(store(x), np.array([1], dtype=np.int8), np.array([True]))
    other = Records(store(-x), np.array([1], dtype=np.int8), np.array([True]))
    # The hinge's weight is 1 at theta = 0 for both.
    kind = replace(query(theta, "0.9", "hinge"), theta=(0, 0, 0, 0))
    distance = np.square((kind.sums(one, BITS) - kind.sums(other, BITS)).astype(object)).sum()
    bound = gradient_squared(Fraction(9, 10), BITS)
    assert 0.99 * bound < distance <= bound


@settings(max_examples=examples(50, 200), deadline=None)
@given(
    weight=st.integers(0, 1 << WEIGHT_BITS),
    square=st.integers(1, 1 << 50),
    most=st.integers(1, (1 << 62) - 1),
)
def test_shortened_weights_are_the_largest_allowed(weight: int, square: int, most: int) -> None:
    (found,) = shortened(np.array([weight]), np.array([square]), most).tolist()
    assert found**2 * square <= most
    assert found == weight or (found + 1) ** 2 * square > most


@given(
    seed=st.integers(0, 2**32 - 1),
    bits=st.integers(0, 16),
    clip=st.sampled_from([Fraction(1, 1000), Fraction(1, 3), Fraction(2), Fraction(10)]),
    scale=st.sampled_from([0.0, 0.1, 10.0, 2000.0]),
    loss=st.sampled_from(["logistic", "hinge"]),
    turned=st.booleans(),
)
def test_compiled_sums_equal_the_definition_bit_for_bit(
    seed: int, bits: int, clip: Fraction, scale: float, loss: str, turned: bool
) -> None:
    """With the weights and the lengths of dpcore.records.losses, from margins of 0 to beyond the table."""
    rng = np.random.default_rng(seed)
    basis = Basis.of(rng.normal(size=(D, D)) * rng.choice([0.01, 1, 50])) if turned else None
    kind = query(list(rng.uniform(-1, 1, D) * scale), str(clip), loss, basis)
    whole = records(seed, 100)
    ((_, block),) = edges(whole, bits)
    z = block if basis is None else basis.apply(block)
    weight = weights(z @ np.array(kind.theta), bits + THETA_BITS, kind.loss)
    lowered = shortened(weight, np.square(z).sum(axis=1), clip_squared(clip, bits))
    assert np.array_equal(kind.sums(whole, bits), -(lowered @ z))


def test_contribution_has_noise_and_stays_within_largest_sum() -> None:
    whole, kind = records(), query(THETA)
    noise = kind.contribution(whole, BITS, Computation(SeededRandom(1))) - kind.sums(whole, BITS)
    assert np.abs(noise).max() > 100
    assert np.abs(kind.contribution(whole, BITS, Computation(SeededRandom(1)))).max() <= kind.largest_sum(
        QueryLimits(300, 1, D), BITS
    )


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"loss": "square"}, ConfigurationError, "choose one of logistic, hinge"),
        ({"clip": Fraction(0)}, PlanError, "make it positive"),
        ({"theta": ()}, PlanError, "empty"),
        ({"theta": (1 << 40,)}, PlanError, "scaled down"),
        ({"share_sigma": 2}, PlanError, "3"),
        ({"basis": Basis.of(np.eye(3))}, PlanError, "make them equal"),
    ],
)
def test_bad_fields_are_refused(change: dict[str, object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        replace(query(THETA), **change)  # type: ignore[arg-type]  # of any type


def test_sizes_that_might_not_fit_are_refused() -> None:
    kind = query(THETA)
    with pytest.raises(PlanError, match="0 to 16"):
        kind.sums(records(), 17)
    with pytest.raises(ShapeError, match="use one schema"):
        replace(kind, theta=(1, 2)).sums(records(), BITS)
    with pytest.raises(PlanError, match="one for each"):
        kind.length(7)
    huge = Basis.of(np.full((D, D), float(1 << 18)))
    with pytest.raises(PlanError, match="too long"):
        query(THETA, basis=huge).largest_sum(QueryLimits(10, 1, D), 16)


@pytest.mark.parametrize(
    ("matrix", "error"),
    [(np.ones((2, 3)), ShapeError), (np.full((2, 2), np.nan), ShapeError), (np.full((2, 2), 1e9), PlanError)],
)
def test_bad_bases_are_refused(matrix: np.ndarray, error: type[Exception]) -> None:
    with pytest.raises(error):
        Basis.of(matrix)
    with pytest.raises(PlanError, match="square"):
        Basis(((1, 2), (3,)))
    assert Basis.of(np.eye(2)).entries == ((1 << BASIS_BITS, 0), (0, 1 << BASIS_BITS))


@pytest.mark.parametrize(("clip", "bits"), [(Fraction(1, 3), 12), (Fraction(64), 12), (Fraction(65), 11)])
def test_fraction_bits_are_lowered_until_a_clip_fits(clip, bits):
    assert fitting_fraction_bits(clip, 12) == bits
    assert clip_squared(clip, bits) < 1 << 61
