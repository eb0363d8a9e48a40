"""Claim: what an audit of each design proves of epsilon is below the printed figure, and above it at half the noise.

Each design is asked for with the least noise, or the most rados, within epsilon 1 at DELTA. Its release is made many
times on each of two neighbouring tables, by the parties' own code: contributions with their noise, as residues under
masks that cancel, added and decoded. An adversary who knows everything but the replaced record, and the worst pair of
records from the proofs of sensitivity, tells the two tables apart by the likelihood ratio. With P and Q the
probabilities of an event on the two tables, epsilon is at least log((P - delta) / Q) (Ding, Wang, Wang, Zhang and
Kifer, CCS 2018; Jagielski, Ullman and Oprea, NeurIPS 2020), and Clopper and Pearson's intervals bound P and Q.

At a delta of 10^-6 that proves little. Gaussian noise without public coins claims more than one epsilon: mu-Gaussian
differential privacy, by which mu is at least Phi^-1(P) - Phi^-1(Q) (Dong, Roth and Su, 2022; Nasr, Hayes, Steinke and
others, USENIX Security 2023). There the event bounds mu, and the printed epsilon is compared with that of the mu.

The event (a threshold, its side, and which table makes it likelier) is chosen on other trials than those that are
counted, so the intervals hold. Their joint confidence is 95 % over all bounds of a run (Bonferroni).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy import stats

from benchmarks.measuring import Measure, Report, Table, require
from dpcore.accounting.dp_feat import truncation
from dpcore.accounting.gaussian import gaussian_epsilon
from dpcore.accounting.noise_shares import GaussianShares, LaplaceShares, smallest_scale
from dpcore.accounting.protection import Setting
from dpcore.numbers.distributions import binomial_distribution
from dpcore.numbers.fixed_point import ONE, plan_encoding
from dpcore.numbers.progress import Progress
from dpcore.paillier.packing import from_total, to_residues
from dpcore.predicates.frontend import x
from dpcore.queries.gradient import GradientQuery
from dpcore.queries.kind import QueryKind, QueryLimits
from dpcore.queries.moments import MomentsQuery, edge_multiplier
from dpcore.queries.rados import RadosQuery
from dpcore.queries.statistic import StatisticQuery
from dpcore.rados.designs import (
    Design,
    DpFeatDesign,
    FixedSupportDesign,
    GaussianDesign,
    JointDesign,
    PlainDesign,
    SensitiveFeature,
)
from dpcore.randomness.noise import SMALLEST_SHARE_SIGMA
from dpcore.randomness.sources import SeededRandom
from dpcore.records.clipping import Clip
from dpcore.records.computation import Computation, PartySecret, RowPart
from dpcore.records.features import Label, RealFeature
from dpcore.records.held_back import RowKey, RowNumbers
from dpcore.records.records import Records
from dpcore.records.schema import Schema

Integers = NDArray[np.int64]
Scores = NDArray[np.float64]
# The log of a likelihood ratio, up to a rising function of it, of each release: (trials, values) -> (trials,).
Score = Callable[[Integers], Scores]
Cohort = tuple[Records, ...]

EPSILON = Fraction(1)
# At a delta of 10^-6, the event that tells most happens six times in a million releases, which takes too many to count.
# At 1/10 it is frequent. The figures at every delta come from the same distributions. One design is audited at both, at
# 10^-6 by its mu.
DELTA, SMALL_DELTA = Fraction(1, 10), Fraction(1, 10**6)
DOUBT = 0.05
# At so much epsilon there is so little noise that fixed support's rows are told apart, and hide one another no more.
LITTLE_NOISE = Fraction(16)
# Releases on each table, by what one takes: a noised table; a contribution; a predicate; a rado.
SLOWEST, SLOW, FAST, FASTEST = 30_000, 40_000, 60_000, 400_000
# A quick run makes this part of them.
QUICK = 1 / 20
# The part of the trials on which the event is chosen, how many thresholds are tried, and releases of a contribution.
CHOOSING, THRESHOLDS, AT_ONCE = 0.25, 400, 4_096
PRINTED, PROVED, HALVED = "printed", "proved", "proved at half the noise"
PARTIES = 2
FRACTION_BITS = 10
UNIT = 1 << FRACTION_BITS
RADOS = 16
# Rows and rados at which the epsilon of a count is just below EPSILON.
PLAIN_COUNT, TRUNCATED_COUNT, LEAST_COUNTED = (76, 16), (81, 16), 0.98
EPSILON_PER_RADO = Fraction(3, 2)
# The logarithm of a mass below all that occur.
IMPOSSIBLE = -700.0

SCHEMA = Schema(
    name="audited",
    label=Label(column="label", positive=("1",)),
    features=(RealFeature(name="age", lower=-1, upper=1),),
)


@dataclass(frozen=True)
class Audited:
    """A query with two neighbouring cohorts, and what the adversary computes.

    cohorts: the records of each party, on either table; the first party's differ in one record. score: of the integers
    of releases. printed: the epsilon that is stated at delta. more: makes the query of many independent releases, None
    if each has a contribution of its own. trials: how many releases on each table.
    """

    name: str
    kind: QueryKind
    cohorts: tuple[Cohort, Cohort]
    score: Score = field(repr=False)
    printed: float
    delta: Fraction = DELTA
    more: Callable[[Any, int], QueryKind] | None = field(default=None, repr=False)
    trials: int = SLOW
    by_mu: bool = False
    """Whether the event bounds mu, and epsilon through it: for Gaussian noise, which claims every delta at once."""

    def releases(self, table: int, trials: int, seed: int) -> Integers:
        """`trials` decoded totals: int64 (trials, values).

        The noise and the coins of one rado are independent of another's, and so is the noise of a predicate: one
        contribution of many of them is many releases. A noised table is drawn once for a secret, so each of its
        releases has another.
        """
        at_once = 1 if self.more is None else AT_ONCE
        parties = [SeededRandom(f"{self.name}/{seed}/{table}/{party}".encode()) for party in range(PARTIES)]
        masks = np.random.default_rng([seed, table])
        made = [
            self._totals(table, min(at_once, trials - first), parties, masks, (seed << 32) + first)
            for first in range(0, trials, at_once)
        ]
        return np.concatenate(made)

    def _totals(
        self, table: int, count: int, parties: Sequence[SeededRandom], masks: np.random.Generator, number: int
    ) -> Integers:
        """The total of one query, of `count` releases, over the cohort. number: makes the parties' secrets."""
        cohort = self.cohorts[table]
        kind = self.kind if self.more is None else self.more(self.kind, count)
        limits = QueryLimits(rows=sum(held.rows for held in cohort), parties=len(cohort), d=cohort[0].d)
        largest = max(kind.largest_sum(limits, FRACTION_BITS), limits.rows)
        encoding = plan_encoding(largest_sum=largest, max_parties=len(cohort), fraction_bits=FRACTION_BITS)
        length = kind.length(cohort[0].d)
        added, left = np.zeros(length, dtype=np.uint64), np.zeros(length, dtype=np.uint64)
        for party, held in enumerate(cohort):
            secret = PartySecret(bytes([table, party]) + number.to_bytes(30, "big"), b"audited")
            numbers = None if kind.persons is None else one_person(held)
            computation = Computation(parties[party], secret, in_this_thread, numbers=numbers)
            values = kind.contribution(held, FRACTION_BITS, computation)
            mask = -left if party == len(cohort) - 1 else masks.integers(1 << 63, size=length, dtype=np.uint64)
            left += mask
            added += to_residues(values, encoding, mask)
        return from_total(added, len(cohort), encoding).reshape(count, -1)

    def bound(self, trials: int, seed: int, doubt: float) -> float:
        """The lower bound on epsilon, from `trials` releases on each table; false with probability `doubt`."""
        scores = [self.score(self.releases(table, trials, seed)) for table in (0, 1)]
        first, delta = int(CHOOSING * trials), None if self.by_mu else float(self.delta)
        event = Event.chosen(scores[0][:first], scores[1][:first], delta=delta, doubt=doubt)
        found = event.bound(scores[0][first:], scores[1][first:], delta=delta, doubt=doubt)
        return gaussian_epsilon(found, self.delta).lower if self.by_mu and found else found


@dataclass(frozen=True)
class Event:
    """Scores from a threshold on, or below it if `below`; the second table makes it likelier if `swapped`."""

    threshold: float
    below: bool
    swapped: bool

    @classmethod
    def chosen(cls, first: Scores, second: Scores, *, delta: float | None, doubt: float) -> "Event":
        """The event of the largest bound on these scores, which are not to be counted again."""
        first, second = np.sort(first), np.sort(second)
        both = np.sort(np.concatenate([first, second]))
        # At equal steps of the rank, and of its logarithm from either end: the best event may be rare.
        ranks = np.geomspace(1, len(both) / 2, THRESHOLDS).astype(np.intp)
        tried = np.unique(np.concatenate([both[ranks], both[-ranks], both[:: -(-len(both) // THRESHOLDS)]]))
        below = np.searchsorted(first, tried), np.searchsorted(second, tried)
        above = len(first) - below[0], len(second) - below[1]
        best, event = -1.0, cls(0.0, below=False, swapped=False)
        for is_below, (a, b) in ((False, above), (True, below)):
            for swapped, (often, rarely) in ((False, (a, b)), (True, (b, a))):
                bounds = lower_bounds(often, rarely, len(first), delta=delta, doubt=doubt)
                at = int(bounds.argmax())
                if bounds[at] > best:
                    best, event = float(bounds[at]), cls(float(tried[at]), below=is_below, swapped=swapped)
        return event

    def count(self, scores: Scores) -> int:
        """How many of the scores are in the event."""
        below = int(np.count_nonzero(scores < self.threshold))
        return below if self.below else len(scores) - below

    def bound(self, first: Scores, second: Scores, *, delta: float | None, doubt: float) -> float:
        """What these scores prove: `lower_bounds` of their counts."""
        often, rarely = (second, first) if self.swapped else (first, second)
        counts = np.array([self.count(often)]), np.array([self.count(rarely)])
        return float(lower_bounds(*counts, len(first), delta=delta, doubt=doubt)[0])


def lower_bounds(
    often: NDArray[Any], rarely: NDArray[Any], trials: int, *, delta: float | None, doubt: float
) -> Scores:
    """log((P - delta) / Q) at the ends of Clopper and Pearson's intervals, each wrong with doubt / 2; at least 0.

    Without a delta the least mu, Phi^-1(P) - Phi^-1(Q).
    """
    least = np.where(often > 0, stats.beta.ppf(doubt / 2, np.maximum(often, 1), trials - often + 1), 0.0)
    rest = np.maximum(trials - rarely, 1)
    most = np.where(rarely < trials, stats.beta.ppf(1 - doubt / 2, rarely + 1, rest), 1.0)
    if delta is None:
        return np.asarray(np.maximum(stats.norm.ppf(least) - stats.norm.ppf(most), 0.0))
    return np.asarray(np.log(np.maximum(np.maximum(least - delta, 0.0) / most, 1.0)))


def rows_of(*rows: Sequence[float]) -> Records:
    """Records with these features and label +1, so that the edges are the features."""
    features = np.round(np.array(rows, dtype=np.float64) * ONE).astype(np.int32)
    return Records(features, np.ones(len(rows), dtype=np.int8), np.ones(len(rows), dtype=np.bool_))


def one_person(held: Records) -> RowNumbers:
    """The numbers of rows that are all of one person."""
    key = RowKey(bytes(32), "audited", "party", "data")
    return RowNumbers(key, key.of_ids(["one"] * held.rows))


def no_record() -> Records:
    """A row that is not usable. It adds nothing to an edge, so its coins hide nothing; its party adds noise."""
    return Records(np.zeros((1, 2), dtype=np.int32), np.ones(1, dtype=np.int8), np.zeros(1, dtype=np.bool_))


def in_this_thread(part: RowPart, records: Records, progress: Progress | None = None) -> Integers:  # noqa: ARG001
    """The sums of a few rows (dpcore.records.computation.RowSums) without threads for each of many releases."""
    total = np.zeros(part.shape, dtype=np.int64)
    part.add(total, records, 0)
    return total


def predicates(kind: StatisticQuery, count: int) -> QueryKind:
    """The query of `count` predicates of different thresholds, all of which only one of the neighbours satisfies."""
    return replace(kind, predicates=tuple(x["age"] >= Fraction(number, 2 * AT_ONCE) for number in range(count)))


def rados(kind: RadosQuery, count: int) -> QueryKind:
    """The query of `count` times as many rados."""
    return replace(kind, rados=kind.rados * count)


# The designs, each with the worst neighbours.


def calibrated(
    name: str,
    kind: QueryKind,
    worst: tuple[Records, Records],
    score: Score,
    delta: Fraction = DELTA,
    others: Cohort | None = None,
    epsilon: Fraction = EPSILON,
) -> Audited:
    """The kind with the least Gaussian noise within epsilon. others: whose shares count too; by default one party's."""
    others = (worst[0],) * (PARTIES - 1) if others is None else others
    setting = Setting(worst[0].d, FRACTION_BITS, 1 + len(others))
    rows = [held.rows for held in (worst[0], *others)]
    noisy = kind.calibrated(setting, rows, epsilon, delta)
    cost = noisy.protection(setting).cost(rows, delta)
    assert cost is not None
    return Audited(name, noisy, ((worst[0], *others), (worst[1], *others)), score, cost.epsilon, delta)


def along(difference: NDArray[Any]) -> Score:
    """The projection on the neighbours' difference: under Gaussian noise a rising function of the ratio."""
    weights = np.asarray(difference, dtype=np.float64)
    return lambda totals: np.asarray(totals @ (weights / np.abs(weights).max()))


def opposite() -> tuple[Records, Records]:
    """Edges of length 1 in opposite directions."""
    return rows_of((1.0, 0.0)), rows_of((-1.0, 0.0))


def ends() -> tuple[Records, Records]:
    """One record of SCHEMA, with the bias, at either end of the feature's range."""
    return rows_of((1.0, 1.0)), rows_of((-1.0, 1.0))


def gradient() -> Audited:
    """Sensitivity 2 C: opposite edges at theta = 0, where the weight 1/2 of both is cut to C."""
    kind = GradientQuery("logistic", (0, 0), Fraction(1, 4), SMALLEST_SHARE_SIGMA)
    return calibrated("gradient", kind, opposite(), along(np.array([-1, 0])))


def moments() -> Audited:
    """The farthest two of many edges of length R in the plane."""
    clip = Clip(Fraction(1), bias=False)
    kind = MomentsQuery(clip, edge_multiplier(clip.norm_bound, FRACTION_BITS), SMALLEST_SHARE_SIGMA)
    held = [rows_of((math.cos(angle), math.sin(angle))) for angle in np.linspace(-math.pi, math.pi, 49)]
    sums = [kind.sums(one, FRACTION_BITS) for one in held]
    vectors = np.array(sums, dtype=np.float64)
    far = np.square(vectors[:, None] - vectors[None]).sum(axis=2)
    first, second = divmod(int(far.argmax()), len(held))
    return calibrated("moments", kind, (held[first], held[second]), along(sums[first] - sums[second]))


def statistic_gaussian(delta: Fraction = DELTA) -> Audited:
    """A record that satisfies the predicate, and one that does not."""
    kind = StatisticQuery((x["age"] >= 0,), SCHEMA, GaussianShares(SMALLEST_SHARE_SIGMA))
    name = "statistic, Gaussian" if delta == DELTA else f"statistic, Gaussian, delta {float(delta):g}"
    found = calibrated(name, kind, ends(), along(np.array([1])), delta)
    return replace(found, more=predicates, trials=FAST, by_mu=delta == SMALL_DELTA)


def statistic_laplace() -> Audited:
    """The same with pure noise: delta is 0."""
    kind = StatisticQuery((x["age"] >= 0,), SCHEMA, LaplaceShares(smallest_scale(UNIT, EPSILON), PARTIES))
    one, other = ends()
    cost = kind.protection(Setting(one.d, FRACTION_BITS, PARTIES)).cost([1] * PARTIES, DELTA)
    assert cost is not None
    score, pure = along(np.array([1])), Fraction(0)
    return Audited("statistic, Laplace", kind, ((one, one), (other, one)), score, cost.epsilon, pure, predicates, FAST)


def joint() -> Audited:
    """Opposite signs of the column. The bias, which has no noise, shows which rados contain the record."""
    kind = RadosQuery(RADOS, JointDesign("value", (0,), 4, SMALLEST_SHARE_SIGMA))

    def score(totals: Integers) -> Scores:
        values = totals.reshape(len(totals), RADOS, 2).astype(np.float64)
        return np.asarray((values[:, :, 0] * values[:, :, 1]).sum(axis=1))

    found = calibrated("dp-feat, joint", kind, ends(), score, others=(no_record(),))
    return replace(found, more=rados, trials=FASTEST)


def gaussian_rados() -> Audited:
    """Opposite edges of length R. The release does not show whether the record is in a rado, so a rado is a mixture."""
    kind = RadosQuery(RADOS, GaussianDesign(Clip(Fraction(1), bias=False), SMALLEST_SHARE_SIGMA))
    found = calibrated("gaussian rados", kind, opposite(), mixture(kind.design), others=(no_record(),))
    assert isinstance(found.kind, RadosQuery)
    return replace(found, score=mixture(found.kind.design), more=rados, trials=FASTEST)


def mixture(design: Design) -> Score:
    """The log ratio of half N(0) and half N(v) to half N(0) and half N(-v), summed over the rados."""
    assert isinstance(design, GaussianDesign)
    variance = PARTIES * design.share_sigma**2

    def score(totals: Integers) -> Scores:
        values = totals.reshape(len(totals), RADOS, 2)[:, :, 0] * (UNIT / variance)
        away = UNIT**2 / (2 * variance)
        return np.asarray((np.logaddexp(0, values - away) - np.logaddexp(0, -values - away)).sum(axis=1))

    return score


def fixed_support(epsilon: Fraction = EPSILON) -> Audited:
    """One of two records in each rado, the other one equal to the new one: the rados have the noised table's two rows.

    Which of them is the record's is not shown, as the accounting supposes. Of all edges of the other record that were
    tried this one hides it least (tests/dpcore/accounting/test_fixed_support_pairs.py).
    """
    kind = RadosQuery(RADOS, FixedSupportDesign(Fraction(1, 2), Clip(Fraction(1), bias=False), SMALLEST_SHARE_SIGMA))
    worst = rows_of((1.0, 0.0), (-1.0, 0.0)), rows_of((-1.0, 0.0), (-1.0, 0.0))
    name = "fixed support, noised" if epsilon == EPSILON else f"fixed support, epsilon {float(epsilon):g}"
    found = calibrated(name, kind, worst, unordered(kind.design), others=(), epsilon=epsilon)
    assert isinstance(found.kind, RadosQuery)
    return replace(found, score=unordered(found.kind.design), trials=SLOWEST, by_mu=epsilon > EPSILON)


def unordered(design: Design) -> Score:
    """The log ratio of the two rows in either order to equal ones: half the sum of exp(2 z / sigma^2) of both."""
    assert isinstance(design, FixedSupportDesign)
    factor = 2 * UNIT / design.edge_sigma**2

    def score(totals: Integers) -> Scores:
        values = totals.reshape(len(totals), RADOS, 2)[:, :, 0]
        return np.asarray(np.logaddexp(factor * values.min(axis=1), factor * values.max(axis=1)))

    return score


def count(name: str, design: Design, size: tuple[int, int]) -> Audited:
    """`size` rows and rados, one value of the coordinate flipped.

    The coordinate is k less the number of edges that are -1, which is another one on either table.
    """
    rows, number = size
    kind = RadosQuery(number, design)
    cost = kind.protection(Setting(2, FRACTION_BITS, 1)).cost([rows], DELTA)
    assert cost is not None
    require(LEAST_COUNTED < cost.epsilon <= EPSILON, f"{name}: {number} rados of {rows} rows cost {cost.epsilon}")
    return Audited(name, kind, flipped(rows), counted(kind, rows), cost.epsilon, DELTA, rados, FASTEST)


def counted(kind: RadosQuery, rows: int) -> Score:
    """The log ratio of what is seen: k on the first table, whose values are all +1, and k - 1 on the second."""
    masses = binomial_distribution(rows, truncation(rows, kind.design.truncated_at)[0])
    logs = np.full(rows + 3, IMPOSSIBLE)
    logs[1 + masses.low + np.arange(len(masses.masses))] = np.log(np.maximum(masses.masses, math.exp(IMPOSSIBLE)))

    def score(totals: Integers) -> Scores:
        seen = totals.reshape(len(totals), kind.rados, 2)[:, :, 0] >> FRACTION_BITS
        return np.asarray((logs[1 + seen] - logs[2 + seen]).sum(axis=1))

    return score


def flipped(rows: int) -> tuple[Cohort, Cohort]:
    """`rows` records with the value +1, or one of them with -1."""
    every = [(1.0, 1.0)] * rows
    return (rows_of(*every),), (rows_of((-1.0, 1.0), *every[1:]),)


def audited() -> list[Audited]:
    """Every kind and design at EPSILON."""
    marginal = DpFeatDesign((SensitiveFeature(0, "value"),), EPSILON_PER_RADO)
    return [
        gradient(),
        statistic_laplace(),
        statistic_gaussian(),
        moments(),
        joint(),
        gaussian_rados(),
        fixed_support(),
        count("plain, marginal", PlainDesign((0,)), PLAIN_COUNT),
        count("dp-feat, marginal", marginal, TRUNCATED_COUNT),
    ]


def halved(one: Audited) -> Audited:
    """The same query and printed figure with noise of half the standard deviation: wrong, so the audit must say so.

    The noise of a count is the coins of the rows, so a quarter of the rows halves it.
    """
    kind = one.kind
    if isinstance(kind, StatisticQuery):
        noise = kind.noise
        if isinstance(noise, LaplaceShares):
            return replace(one, kind=replace(kind, noise=LaplaceShares(noise.scale / 2, noise.shares)))
        assert isinstance(noise, GaussianShares)
        return replace(one, kind=kind.with_noise(noise.share_sigma // 2))
    if isinstance(kind, GradientQuery | MomentsQuery):
        return replace(one, kind=kind.with_noise(kind.share_sigma // 2))
    assert isinstance(kind, RadosQuery)
    design = kind.design
    if isinstance(design, PlainDesign | DpFeatDesign):
        rows = one.cohorts[0][0].rows // 4
        return replace(one, cohorts=flipped(rows), score=counted(kind, rows))
    if isinstance(design, FixedSupportDesign):
        noised = kind.with_noise(design.edge_sigma // 2)
        return replace(one, kind=noised, score=unordered(noised.design))
    less = kind.with_noise(design.share_sigma // 2)
    return replace(one, kind=less, score=mixture(less.design) if isinstance(design, GaussianDesign) else one.score)


def run(*, everything: bool = False) -> Report:
    part = 1.0 if everything else QUICK
    cases = [*audited(), statistic_gaussian(SMALL_DELTA), fixed_support(LITTLE_NOISE)]
    doubt = DOUBT / (2 * len(cases))
    measures, rows = [], []
    for seed, one in enumerate(cases):
        made = int(part * one.trials)
        proved = one.bound(made, 2 * seed, doubt)
        weaker = halved(one).bound(made // 4, 2 * seed + 1, doubt)
        require(proved <= one.printed, f"{one.name}: epsilon is at least {proved:.3f}, printed is {one.printed:.3f}")
        if everything:
            require(weaker > one.printed, f"{one.name}: at half the noise the audit proves only {weaker:.3f}")
        figures = {PRINTED: one.printed, PROVED: proved, HALVED: weaker}
        measures += [Measure(f"{one.name}: {what}", "epsilon", at, at, at, 1) for what, at in figures.items()]
        rows.append((one.name, f"{float(one.delta):g}", f"{made:,}", *(f"{at:.3f}" for at in figures.values())))
    table = Table(
        "What releases on each of two neighbouring tables prove of epsilon, 95 % for all",
        ("", "delta", "releases", PRINTED, PROVED, HALVED),
        rows,
    )
    notes = [
        "A bound far below the printed figure does not show that less noise would do: intervals of rare events are",
        "wide, and a count moves in steps. With fixed support the adversary does not see which of two records is in a",
        "rado: the epsilon of these two tables is 0.61, by quadrature, and with little noise nearly what is printed.",
        "At half the noise, a quarter of the releases are made.",
    ]
    setting: dict[str, Any] = {"epsilon": float(EPSILON), "choosing": CHOOSING, "doubt": DOUBT, "rados": RADOS}
    setting["designs"] = [
        {"name": one.name, "delta": float(one.delta), "releases": int(part * one.trials)} for one in cases
    ]
    claim = (__doc__ or "").partition("\n")[0]
    return Report("privacy_audit", claim, setting, measures, [], [table], notes)


def draw(report: Report, figure: Figure) -> None:
    """The printed epsilon of each design, and the two bounds."""
    axes = figure.subplots()
    names = [one["name"] for one in report.setting["designs"]]
    by_name = {measure.what: measure.median for measure in report.measures}
    places = np.arange(len(names))[::-1]
    for what, mark in ((PRINTED, "|"), (PROVED, "o"), (HALVED, "x")):
        axes.plot([by_name[f"{name}: {what}"] for name in names], places, mark, markersize=9, label=what)
    axes.set_yticks(places, names)
    axes.set_xlabel("epsilon")
    axes.set_xlim(left=0)
    figure.legend(loc="outside lower center", ncols=3)
