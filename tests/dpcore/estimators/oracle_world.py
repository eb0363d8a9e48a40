"""An oracle over tables in memory: parties' sums, each with its share of the noise, and half-widths of the answers."""

from fractions import Fraction
from functools import cache

import numpy as np

from dpcore.accounting.gaussian import gaussian_mu
from dpcore.accounting.noise_shares import GaussianShares, LaplaceShares, smallest_scale
from dpcore.errors import OracleRefusedError
from dpcore.predicates.disjoint import batch_sensitivity
from dpcore.predicates.evaluation import check, sums
from dpcore.predicates.expressions import is_boolean
from dpcore.randomness.sources import SeededRandom
from dpcore.records.encoding import store
from dpcore.records.records import Records
from dpcore.records.schema import BooleanFeature, CategoryFeature, Label, RealFeature, Schema
from dpcore.statistics.accuracy import PLAIN, Estimates, SharedNoise, corrected_batch

BITS = 12


def flag(name):
    return BooleanFeature(name=name, true=("yes",), false=("no",))


def category(name, values):
    return CategoryFeature(name=name, values=tuple(values), unknown="zero")


def real(name, lower=-1.0, upper=1.0):
    return RealFeature(name=name, lower=lower, upper=upper, out_of_bounds="clip")


def schema_of(*features, bias=True):
    return Schema(name="world", label=Label(column="label", positive=("1",)), features=features, bias=bias)


def flags_schema(d, **options):
    return schema_of(*(flag(f"f{i:03d}") for i in range(d)), **options)


def records(x, labels):
    """Records, all usable; x is (m, d) encoded coordinates, the bias included, labels -1 or +1."""
    return Records(store(np.asarray(x)), np.asarray(labels, dtype=np.int8), np.ones(len(labels), dtype=np.bool_))


def flag_rows(truths):
    """Coordinates of boolean features, with the bias last: (m, d + 1)."""
    return np.column_stack([np.where(truths, 1.0, -1.0), np.ones(len(truths))])


@cache
def shared_noise(predicates, epsilon, delta, part, honest, bits):
    """Each party's share of the noise, in units of 2^-bits; the shares of `honest` parties suffice."""
    sensitivity = batch_sensitivity(predicates)
    if delta == 0:
        return LaplaceShares(smallest_scale(sensitivity.l1 << bits, epsilon * part), honest)
    mu = gaussian_mu(epsilon, delta) * np.sqrt(float(part))
    sigma = np.sqrt(sensitivity.l2_squared) * 2.0**bits / mu
    return GaussianShares(int(np.ceil(sigma / np.sqrt(honest))))


class WorldOracle:
    """Shared by all answers: noise, corrections, half-widths, a log, and a refusal after `answers` of them.

    epsilon None: no noise. `_sums(predicates, bits)` is a list, one array for each party.
    """

    def __init__(self, schema, rows, parties, *, epsilon=None, delta=Fraction(0), seed=0, answers=None, honest=None):
        self.schema, self.rows, self.parties = schema, rows, parties
        self.exact = epsilon is None
        self.epsilon, self.delta = Fraction(1 if self.exact else epsilon), Fraction(delta)
        self.random = SeededRandom(seed)
        self.answers, self.honest = answers, parties if honest is None else honest
        self.releases = []

    def statistic(
        self, predicates, *, part=Fraction(1), tolerance=None, confidence=0.95, noise_rate=0.0, feature_map=None
    ):
        if self.answers is not None and len(self.releases) >= self.answers:
            raise OracleRefusedError("the budget is spent")
        self.releases.append((tuple(predicates), part))
        assert sum(part for _, part in self.releases) <= 1
        asked, correction = corrected_batch(predicates, noise_rate)
        check(asked, self.schema, feature_map)
        noise, bits = None, BITS
        if not self.exact:
            shares = shared_noise(asked, self.epsilon, self.delta, part, self.honest, bits)
            noise = SharedNoise(shares, self.parties, bits)
        totals = self._sums(asked, bits) if feature_map is None else self._sums(asked, bits, feature_map)
        if noise is not None:
            totals = [sums + shares.draw(len(asked), self.random) for sums in totals]
        means = np.ldexp(np.sum(totals, axis=0).astype(float), -bits) / self.rows
        quantisation = 0.0 if all(map(is_boolean, asked)) else 2.0**-bits
        widths = correction.batch(noise, quantisation).half_widths(self.rows, 1 - confidence)
        deviation = 0.0 if noise is None else noise.deviation / self.rows * correction.amplification.deviation
        return Estimates(
            correction.apply(means),
            self.rows,
            confidence,
            widths.sampling,
            widths.quantisation,
            widths.noise,
            deviation,
            noise if correction.amplification == PLAIN else None,
        )


class TableOracle(WorldOracle):
    """An oracle over `tables`, one `Records` per party."""

    def __init__(self, schema, tables, **options):
        super().__init__(schema, sum(table.rows for table in tables), len(tables), **options)
        self.tables = tables

    def _sums(self, predicates, bits, feature_map=None):
        tables = [table if feature_map is None else table.mapped(feature_map) for table in self.tables]
        return [sums(predicates, self.schema, table, bits) for table in tables]


def divided(schema, x, labels, parties=4, **options):
    """An oracle over the rows, split over `parties` parties of unequal sizes."""
    ends = (np.linspace(0, 1, parties + 1)[1:-1] ** 1.5 * len(labels)).astype(int)
    tables = [records(*part) for part in zip(np.split(x, ends), np.split(np.asarray(labels), ends), strict=True)]
    return TableOracle(schema, tables, **options)
