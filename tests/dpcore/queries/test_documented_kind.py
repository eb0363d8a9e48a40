"""The kind that docs/adding-a-query.md adds computes, costs, calibrates and states like any other kind."""

import textwrap
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pytest
from numpy.typing import NDArray

from dpcore.accounting.gaussian import gaussian_epsilon
from dpcore.accounting.protection import GaussianProtection, Scope, Setting
from dpcore.numbers.fixed_point import ONE
from dpcore.queries.kind import QueryKind, QueryLimits
from dpcore.queries.statement import statement_for
from dpcore.randomness.noise import check_share, discrete_gaussian, tail_bound
from dpcore.randomness.sources import SeededRandom
from dpcore.records.computation import Computation
from dpcore.records.records import Records
from dpcore.records.schema import BooleanFeature, Label, Schema

PAGE = Path(__file__).parents[3] / "docs" / "adding-a-query.md"
SCHEMA = Schema(
    name="s",
    label=Label(column="y", positive=("1",)),
    features=(BooleanFeature(name="smoker", true=("1",), false=("0",)),),
)
SETTING = Setting(SCHEMA.d, 0, 2)
DELTA = Fraction(1, 10**6)
# Only what the page's code needs.
NAMES = {
    "Any": Any,
    "ClassVar": ClassVar,
    "Self": Self,
    "NDArray": NDArray,
    "dataclass": dataclass,
    "replace": replace,
    "QueryKind": QueryKind,
    "GaussianProtection": GaussianProtection,
    "Setting": Setting,
    "Scope": Scope,
    "QueryLimits": QueryLimits,
    "Computation": Computation,
    "Records": Records,
    "check_share": check_share,
    "discrete_gaussian": discrete_gaussian,
    "tail_bound": tail_bound,
    "np": np,
}


@pytest.fixture(scope="module")
def query():
    text = PAGE.read_text(encoding="utf-8")
    begin, end = text.index("    @dataclass(frozen=True)\n    class Class"), text.index("\n**Computation.**")
    found = dict(NAMES)
    exec(textwrap.dedent(text[begin:end]), found)
    return found["ClassTotalsQuery"](3)


def test_it_computes(query):
    labels = np.array([1, 1, -1, 1, 1], dtype=np.int8)
    usable = np.array([True, True, True, True, False])
    features = np.where(usable[:, np.newaxis], ONE, 0).astype(np.int32) * np.ones((1, SCHEMA.d), np.int32)
    records = Records(features, labels, usable)
    drawn = query.contribution(records, 0, Computation(SeededRandom(b"seed")))
    noise = discrete_gaussian(3, 2, SeededRandom(b"seed"))
    assert list(drawn - noise) == [3, 1]
    assert drawn.shape == query.shape(SCHEMA.d) == (query.length(SCHEMA.d),)
    assert query.largest_sum(QueryLimits(1000, 3, SCHEMA.d), 0) > 1000 + 9 * 3


def test_its_cost_follows_from_its_noise(query):
    calibrated = query.calibrated(SETTING, (), Fraction(1, 10), DELTA)
    cost = calibrated.protection(SETTING).cost((100, 200, 300), DELTA)
    assert 0.095 < cost.epsilon_if_others_collude <= 0.1
    assert calibrated.protection(SETTING).cost((100, 200), DELTA).epsilon == cost.epsilon_if_others_collude
    # sqrt(2) over the noise of two shares.
    mu = (2 / (2 * calibrated.share_sigma**2 - 4)) ** 0.5
    assert cost.epsilon_if_others_collude == pytest.approx(gaussian_epsilon(mu, DELTA).upper, rel=1e-6)


def test_it_is_stated(query):
    statement = statement_for(query.with_noise(50), (100, 200, 300), DELTA, schema=SCHEMA, setting=SETTING)
    assert (statement.unit, statement.scope, statement.warnings) == ("one record", "record", ())
    assert "a sum of shares, one from each of the 3 parties" in " ".join(statement.assumptions)
