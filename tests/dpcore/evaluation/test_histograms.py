"""Histograms and quantiles of columns: what is counted, in which units, and what is refused."""

import json
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from dpcore.errors import ConfigurationError
from dpcore.estimators.private_histograms import histograms
from dpcore.evaluation.histograms import MOST_CELLS, column_histograms, histogram_predicates, histograms_of
from dpcore.numbers.fixed_point import ONE
from dpcore.predicates.disjoint import batch_sensitivity
from dpcore.predicates.expressions import Affine, NonNegative
from dpcore.predicates.notation import parse
from tests.dpcore.estimators.oracle_world import TableOracle, category, divided, flag, real, records, schema_of

SCHEMA = schema_of(real("debt", -3.0, 1.0), real("income", 0.0, 1e6), category("ward", ["east", "west"]), flag("new"))
ROWS = 4000


def table(rows: int = ROWS, seed: int = 3) -> dict[str, np.ndarray]:
    """Columns in their units: zero and a bound are repeated, and most incomes are small."""
    generator = np.random.default_rng(seed)
    debt = generator.uniform(-3, 1, rows)
    debt[: rows // 4], debt[rows // 4 : rows // 3] = 0.0, 1.0
    return {"debt": debt, "income": generator.permutation(np.minimum(np.exp(generator.normal(8, 1, rows)), 1e6))}


def oracle(columns, **options):
    rows = len(columns["debt"])
    x = [(columns["debt"] + 3) / 2 - 1, columns["income"] / 5e5 - 1, np.zeros(rows), np.ones(rows), np.ones(rows)]
    return divided(SCHEMA, np.column_stack([*x, np.ones(rows)]), np.ones(rows), **options)


def share(values: np.ndarray, part) -> float:
    """Of these rows in a part, by its own account of its ends."""
    if part.is_point:
        return float(np.mean(values == part.lower))
    # No value but a point mass is at an end of a cell.
    return float(np.mean((values > part.lower) & (values < part.upper)))


def test_without_noise_shares_are_those_of_the_rows():
    columns = table()
    found = column_histograms(
        ["income", "debt"], oracle(columns), cells=7, edges={"income": [1000.0, 2500.5, 20_000.0]}
    )
    income, debt = found.columns
    assert [part.upper for part in income.parts] == [0.0, 1000.0, 2500.5, 20_000.0, 1e6, 1e6]
    assert [part.lower for part in debt.parts if part.is_point] == [-3.0, 0.0, 1.0]
    for name, column in (("income", income), ("debt", debt)):
        for part in column.parts:
            assert part.share.estimate == pytest.approx(share(columns[name], part), abs=1e-12)
            assert part.share.on_rows.width < 1e-9
            assert part.share.estimate in part.share.on_distribution
        assert sum(part.share.estimate for part in column.parts) == pytest.approx(1.0)
        assert column.counts.tolist() == np.rint(column.counts).tolist()
    assert found.rows == ROWS
    json.dumps([found.to_dict(), found.quantiles_to_dict([0.5])], allow_nan=False)


def test_quantiles_are_those_of_the_rows_up_to_their_cells():
    columns = table()
    found = column_histograms(["debt"], oracle(columns), cells=100).columns[0]
    for level in (0.01, 0.1, 0.3, 0.9, 0.99):
        quantile, true = found.quantile(level), np.quantile(columns["debt"], level, method="inverted_cdf")
        assert quantile.estimate == pytest.approx(true, abs=0.02), level
        assert quantile.on_rows[0] <= true <= quantile.on_rows[1]
        assert quantile.on_rows[1] - quantile.on_rows[0] <= 4 / 100 + 1e-6
        assert quantile.on_distribution[0] <= quantile.on_rows[0]
        assert quantile.on_rows[1] <= quantile.on_distribution[1]
    # A third of the values from -3 to 1 is a point mass, and its quantiles are exactly there.
    middle = found.quantile(float(np.mean(columns["debt"] < 0)) + 0.12)
    assert (middle.estimate, middle.on_rows, middle.on_distribution) == (0.0, (0.0, 0.0), (0.0, 0.0))


def test_several_columns_move_two_counts_each_whatever_the_cells():
    for cells in (1, 9, 64):
        found = batch_sensitivity(histogram_predicates(SCHEMA, ["debt", "income"], cells=cells))
        assert (found.l1, found.l2_squared) == (4, 4)


@pytest.mark.parametrize(
    ("lower", "upper"), [(-1 / 3, 2 / 3), (0.123456789123, 7e-7 + 0.123456789123), (-1e150, 1e300)]
)
def test_parts_touch_one_another_from_bound_to_bound(lower, upper):
    schema = schema_of(real("odd", lower, upper))
    edges = [lower + (upper - lower) * share for share in (0.1, 0.25, 0.7)]
    predicates = histogram_predicates(schema, ["odd"], edges={"odd": edges})
    world = TableOracle(schema, [records(np.array([[-1.0, 1.0], [0.3, 1.0]]), np.ones(2))])
    (found,) = histograms_of(schema, predicates, world.statistic(predicates)).columns
    assert (found.parts[0].lower, found.parts[-1].upper) == (lower, upper)
    assert all(a.upper == b.lower for a, b in pairwise(found.parts))
    inner = [part.upper for part in found.parts[:-2] if part.upper not in (0.0, lower)]
    assert inner == pytest.approx(edges, rel=0, abs=(upper - lower) * 1e-8)


@pytest.mark.more
def test_noise_widens_intervals_and_they_hold():
    columns = table()
    exact = column_histograms(["debt"], oracle(columns), cells=6).columns[0]
    asked = oracle(columns, epsilon=Fraction(1, 5), delta=Fraction(1, 10**6))
    noisy = column_histograms(["debt"], asked, cells=6, confidence=0.999).columns[0]
    for a, b in zip(exact.parts, noisy.parts, strict=True):
        assert a.share.estimate in b.share.on_rows
        assert b.share.on_rows.width > 0.005
        assert b.share.on_distribution.width > a.share.on_distribution.width
    for level in (0.1, 0.5):
        assert noisy.quantile(level).on_rows[0] <= exact.quantile(level).estimate <= noisy.quantile(level).on_rows[1]


def test_a_crowded_cell_is_named_with_edges_that_look_inside():
    columns = table()
    asked = oracle(columns)
    (found,) = column_histograms(["income"], asked, cells=32).columns
    assert (found.advice() or "").endswith("--edges income=0:31250:32")
    edges = np.linspace(0, 31250, 33).tolist()
    (closer,) = column_histograms(["income"], oracle(columns), edges={"income": edges}).columns
    assert closer.advice() is None
    assert sum(part.share.estimate > 0.01 for part in closer.parts) > 10
    # A value that is counted apart is no crowd.
    assert column_histograms(["debt"], oracle(table()), cells=4).columns[0].advice() is None


def test_histograms_are_read_from_the_batch_that_was_asked():
    asked = oracle(table())
    predicates = histogram_predicates(SCHEMA, ["debt", "income"], cells=5, edges={"debt": [-1.0, 0.5]})
    estimates = asked.statistic(predicates)
    found = histograms_of(SCHEMA, predicates, estimates)
    assert [(column.name, len(column.parts)) for column in found.columns] == [("debt", 7), ("income", 7)]
    # Also that of the estimator that begins with histograms.
    other = oracle(table())
    histograms(other, SCHEMA.features[:2], part=Fraction(1, 20), cells=8)
    ((batch, _),) = other.releases
    assert len(histograms_of(SCHEMA, batch, oracle(table()).statistic(batch)).columns) == 2


@pytest.mark.parametrize(
    "texts",
    [
        ["y == 1"],
        ['x["debt"] >= 0.5', '~(x["debt"] >= 0.5)'],
        ['(z["debt"] >= 0) & ~(z["debt"] >= 1)'],
        ['(1073741824 * z["debt"] >= 0) & ~(1073741824 * z["debt"] - 9 >= 0)'],
    ],
)
def test_a_batch_of_other_predicates_is_no_histogram(texts):
    predicates = [parse(text) for text in texts]
    with pytest.raises(ConfigurationError, match="not of histograms"):
        histograms_of(SCHEMA, predicates, oracle(table()).statistic(predicates))


def test_a_batch_of_other_scales_is_no_histogram():
    """Its intervals have the right ends in another unit."""

    def scaled(predicate):
        low, above = predicate.parts
        forms = [
            Affine(((name, 2 * ONE),), form.constant)
            for form in (low.form, above.part.form)
            for name, _ in form.weights
        ]
        return NonNegative(forms[0]) & ~NonNegative(forms[1])

    predicates = [scaled(predicate) for predicate in histogram_predicates(SCHEMA, ["debt"], cells=3)]
    with pytest.raises(ConfigurationError, match="not of histograms"):
        histograms_of(SCHEMA, predicates, oracle(table(50)).statistic(predicates))


def test_all_rows_at_one_value():
    columns = {"debt": np.full(500, -3.0), "income": np.full(500, 7.0)}
    debt, income = column_histograms(["debt", "income"], oracle(columns), cells=3).columns
    assert debt.quantile(0.5).on_distribution == (-3.0, -3.0)
    assert debt.advice() is None
    assert "100 % of income" in (income.advice() or "")
    assert income.quantile(0.5).on_rows == (0.0, pytest.approx(1e6 / 3))


def test_rows_that_are_not_usable_are_in_no_share():
    columns = table(400)
    asked = oracle(columns)
    (*first, last) = asked.tables
    usable = np.arange(len(last.labels)) % 2 == 0
    hidden = type(last)(last.features * usable[:, np.newaxis], last.labels, usable)
    some = TableOracle(SCHEMA, [*first, hidden])
    (found,) = column_histograms(["debt"], some, cells=3).columns
    assert found.counts.sum() == 400 - (~usable).sum()
    assert sum(part.share.estimate for part in found.parts) == pytest.approx(1.0)
    empty = TableOracle(SCHEMA, [records(np.zeros((2, SCHEMA.d)), np.ones(2))])
    (nothing,) = column_histograms(["debt"], empty, cells=3).columns
    assert nothing.quantile(0.5).on_distribution == (-3.0, 1.0)


@pytest.mark.parametrize(
    ("columns", "options", "says"),
    [
        ([], {}, "no column"),
        (["incone"], {}, "did you mean 'income'"),
        (["ward"], {}, "is a category feature"),
        (["new"], {}, "is a boolean feature"),
        (["debt", "debt"], {}, "given twice"),
        ("debt", {}, "list of names"),
        (["debt"], {"cells": 0}, "give 1 to"),
        (["debt"], {"cells": MOST_CELLS + 1}, "give 1 to"),
        (["debt"], {"edges": {"income": [3.0]}}, "not asked for"),
        (["debt"], {"edges": {"debt": []}}, "no edges"),
        (["debt"], {"edges": {"debt": [-1.0, -2.0]}}, "ascending"),
        (["debt"], {"edges": {"debt": [-1.0, -1.0]}}, "ascending"),
        (["debt"], {"edges": {"debt": [-1.0, 1.5]}}, "beyond the schema's bounds"),
        (["debt"], {"edges": {"debt": [float("nan")]}}, "beyond the schema's bounds"),
        (["debt"], {"edges": {"debt": [-1.0, -1.0 + 1e-8]}}, "closer than"),
        (["debt"], {"edges": {"debt": [1e-12]}}, "closer than"),
        (["debt"], {"edges": {"debt": list(np.linspace(-2.9, 0.9, MOST_CELLS + 1))}}, "at most"),
        (["debt"], {"confidence": 1.0}, "between 0 and 1"),
    ],
)
def test_bad_input_is_refused_before_anything_is_asked(columns, options, says):
    asked = oracle(table(50))
    if "confidence" not in options:
        asked.statistic = None
    with pytest.raises(ConfigurationError, match=says):
        column_histograms(columns, asked, **options)


@pytest.mark.parametrize("level", [0.0, 1.0, float("nan"), -0.5])
def test_a_level_is_between_0_and_1(level):
    (found,) = column_histograms(["debt"], oracle(table(50)), cells=2).columns
    with pytest.raises(ConfigurationError, match="between 0 and 1"):
        found.quantile(level)
