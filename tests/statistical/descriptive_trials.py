"""Trials of inquiries: samples of a table, which is the population, with the noise of a federation's query.

A trial draws rows of the table with replacement, sums the predicates by the parties' code, adds the parties' shares of
noise, and reads the answer as a learner does. Nothing is encrypted: masks cancel exactly (tests/simulation).
"""

from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from dpcore.evaluation.descriptive.correlation import Correlate
from dpcore.evaluation.descriptive.divisions import division_of, label_name
from dpcore.numbers.fixed_point import ONE
from dpcore.predicates.evaluation import sums
from dpcore.queries.moments import MomentsQuery
from dpcore.rados.distribution import Moments
from dpcore.randomness.sources import SeededRandom
from dpcore.statistics.accuracy import Estimates, SharedNoise
from learner.requests import MomentsRequest, StatisticRequest
from radofed.planning.made_up import MadeUpFederation

PARTIES = 4
DELTA = Fraction(1, 10**6)


@dataclass(frozen=True)
class Found:
    """How many intervals held, of those that were stated, and how many were not."""

    held: int
    stated: int
    silent: int


class Population:
    """The rows of a table, from which samples are drawn."""

    def __init__(self, schema, records, seed=0):
        assert records.usable.all()
        self.schema, self.records, self.random = schema, records, np.random.default_rng(seed)
        self.noise_source = SeededRandom(seed)

    def sample(self, rows):
        at = self.random.integers(0, self.records.rows, rows)
        return replace(self.records, features=self.records.features[at], labels=self.records.labels[at],
                       usable=self.records.usable[at])  # fmt: skip

    def plan(self, request, rows):
        return MadeUpFederation([rows // PARTIES] * PARTIES, 3072).plan(request)

    def truth(self, inquiry):
        """The figures of the population, without noise and hardly any sample."""
        if isinstance(inquiry, Correlate):
            return inquiry.read_moments(self.schema, self._moments(inquiry, self.records, None))
        batch = inquiry.layout(self.schema).batch
        means = np.ldexp(sums(batch, self.schema, self.records, 20).astype(float), -20) / self.records.rows
        # So many rows that what is rounded and drawn is far below the intervals of trials.
        found = inquiry.read(self.schema, Estimates(means, 10**12, 0.95, 0.0, 0.0, 0.0, 0.0))
        return replace(found, figures=tuple(self._exactly(inquiry, each) for each in found.figures))

    def _exactly(self, inquiry, figure):
        """A figure of a number, from its values: predicates know squares and quantiles only nearly."""
        if figure.feature is None or figure.quantity == "missing cells":
            return figure
        x = self._values(figure.feature)[self._members(inquiry, figure.group)]
        level = {"median": 0.5}.get(figure.quantity) or figure.quantity.removeprefix("quantile ")
        exact = {"mean": np.mean, "standard deviation": np.std}.get(
            figure.quantity, lambda x: np.quantile(x, float(level), method="inverted_cdf")
        )
        return replace(figure, estimate=float(exact(x)))

    def _values(self, feature):
        z = self.records.features[:, self.schema.coordinate(feature.name)] / ONE
        return feature.lower + (feature.upper - feature.lower) * (z + 1) / 2

    def _members(self, inquiry, level):
        """The rows of a group of all rows, of a boolean or of the label."""
        if inquiry.by is None:
            return slice(None)
        groups = division_of(self.schema, inquiry.by)
        is_label = inquiry.by == label_name(self.schema)
        signs = self.records.labels if is_label else self.records.features[:, self.schema.coordinate(inquiry.by)]
        assert len(groups.levels) == 2
        return signs > 0 if level == groups.levels[0] else signs < 0

    def trials(self, inquiry, rows, epsilon, count):
        """The results of so many trials."""
        if isinstance(inquiry, Correlate):
            yield from self._moments_trials(inquiry, rows, epsilon, count)
            return
        batch = inquiry.layout(self.schema).batch
        plan = self.plan(StatisticRequest(self.schema, batch, epsilon=epsilon, delta=DELTA), rows)
        kind, bits = plan.query.kind, plan.query.encoding.fraction_bits
        noise = SharedNoise(kind.noise, PARTIES, bits)
        for _ in range(count):
            found = sums(batch, self.schema, self.sample(rows), bits)
            for _ in range(PARTIES):
                found = found + kind.noise.draw(len(batch), self.noise_source)
            yield inquiry.read(
                self.schema,
                Estimates(np.ldexp(found.astype(float), -bits) / rows, rows, 0.95, 0.0, 2.0**-bits, 0.0,
                          noise.deviation / rows, noise),
            )  # fmt: skip

    def _moments_trials(self, inquiry, rows, epsilon, count):
        terms = {"norm_bound": inquiry.norm_bound(self.schema), "feature_map": inquiry.feature_map(self.schema)}
        plan = self.plan(MomentsRequest(self.schema, epsilon=epsilon, delta=DELTA, **terms), rows)
        kind, bits = plan.query.kind, plan.query.encoding.fraction_bits
        assert isinstance(kind, MomentsQuery)
        planned = kind.moments(np.zeros(kind.shape(plan.query.d), dtype=np.int64), bits, rows=rows, parties=PARTIES)
        for _ in range(count):
            yield inquiry.read_moments(self.schema, self._moments(inquiry, self.sample(rows), planned))

    def _moments(self, inquiry, records, planned):
        """Exact sums of these records, or with the noise of a plan, normal as that of the parties."""
        chosen = [self.schema.coordinate(name) for name in inquiry.features(self.schema)]
        x = np.column_stack([records.features[:, chosen] / ONE, np.ones(records.rows)])
        products, edges = x.T @ x, records.labels.astype(float) @ x
        if planned is None:
            none = np.zeros_like(products)
            return Moments(edges, (products + products.T) / 2, records.rows, True, 9.0, 0.0, none)
        noise = np.triu(self.random.normal(0.0, 1.0, products.shape) * planned.product_noise)
        products = products + noise + np.triu(noise, 1).T
        edges = edges + self.random.normal(0.0, planned.edge_noise, len(edges))
        return replace(planned, edge_sum=edges, product_sum=(products + products.T) / 2)


def held_by_quantity(truth, results, *, skipped=("rows", "missing cells")):
    """For each quantity, how many intervals held the population's figure."""
    held, stated, silent = Counter(), Counter(), Counter()
    exact = [(each.quantity, each.estimate) for each in truth.figures]
    for result in results:
        for figure, (quantity, value) in zip(result.figures, exact, strict=True):
            if quantity in skipped or value is None:
                continue
            if figure.estimate is None or figure.lower is None:
                silent[quantity] += 1
                continue
            stated[quantity] += 1
            held[quantity] += figure.lower - 1e-9 <= value <= figure.upper + 1e-9
    names = {*stated, *silent}
    return {name: Found(held[name], stated[name], silent[name]) for name in sorted(names)}
