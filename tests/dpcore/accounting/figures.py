"""Figures of the accounting for many inputs, with the steps and the margins on the way to them.

`python -m tests.dpcore.accounting.figures` writes figures.json. A change of an algorithm changes figures: look at each
difference before the file is written again. Margins are proved at their lines and are too small to be seen in
results, so they are figures of their own, in round-offs; and the part "margins" makes them large, so that results show
on which side of them the bounds are.
"""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np

from dpcore.accounting import composition, concentrated, dp_feat, filters, gaussian, mixed, noise_shares, odds
from dpcore.errors import PlanError
from dpcore.numbers import distributions
from dpcore.numbers.distributions import ROUND_OFF, binomial_distribution, pooled_distribution

FILE = Path(__file__).with_suffix(".json")
Found = dict[str, list[float]]
TINY = Fraction(1, 10**9)
COUNTS = {
    "40": (binomial_distribution(40), 3),
    "300, cut": (binomial_distribution(300, 130), 20),
    "3000": (binomial_distribution(3000), 7),
    "pool": (pooled_distribution([(60, 0), (90, 30)]), 8),
    "rest": (dp_feat.known_rest_distribution(50, 70, 45), 5),
}


def sums(values: np.ndarray) -> list[float]:
    """An array in four numbers that any change of it moves."""
    places = np.arange(1, len(values) + 1, dtype=np.float64)
    return [len(values), float(np.sum(values)), float(values @ places), float(values @ np.sqrt(places))]


def round_offs(value: float) -> float:
    return value / ROUND_OFF


def beside_one(value: float | np.ndarray) -> float | np.ndarray:
    """What is 0 but for rounding differs from processor to processor by more than its size."""
    return 1 + value


def ends(bracket: composition.Bracket) -> list[float]:
    return [bracket.lower, bracket.upper]


def refused(function: Callable[[], object]) -> list[float]:
    """The numbers in the sentence of an error, and those that it has as attributes; empty if there is none."""
    try:
        function()
    except PlanError as error:
        return [float(value) for _, value in sorted(vars(error).items()) if isinstance(value, int | float)] or [1.0]
    return []


def composed(
    found: composition.Composed, epsilons: list[float], deltas: list[float]
) -> Iterator[tuple[str, list[float]]]:
    grid = found.finite
    yield (
        "grid",
        [
            *(grid.step, grid.first, grid.infinite, grid.tilt),
            *(beside_one(grid.log_scale), round_offs(grid.pointwise), grid.stray),
        ],
    )
    yield "masses", sums(grid.masses)
    yield "fields", [found.cut, found.shift, found.hoeffding, found.infinite]
    yield "slack", slack(found.slack)
    yield "delta", [end for e in epsilons for end in (found.delta_lower(e), found.delta_upper(e))]
    yield "epsilon", [end for d in deltas for end in (found.epsilon_lower(d), found.epsilon_upper(d))]
    yield "errors", [round_offs(grid.error(e)) for e in epsilons]


def slack(found: composition.Slack) -> list[float]:
    return [found.delta, round_offs(math.log(found.factor)), round_offs(found.epsilon)]


def of_composition() -> Iterator[tuple[str, list[float]]]:
    for name, (one, n) in COUNTS.items():
        for tilt in (0.0, 2.5):
            yield f"slack {name} {tilt}", slack(composition._slack(one, n, tilt))
            yield from (
                (f"compose {name} {tilt} {key}", value)
                for key, value in composed(
                    composition.compose(one, n, 0.01, tilt, 1e-3), [0.0, 0.5, 2.0, 8.0], [1e-12, 1e-6, 0.01, 0.4]
                )
            )
        yield f"infinite {name}", [composition.infinite_mass(one, n) for n in (1, n, 10_000)]
        yield (
            f"spread {name}",
            [composition.spread(one, n), composition.steepest_of(one), composition.finest_step(one, n)],
        )
        yield f"step {name}", [composition._step(one, n, epsilon, 1e-3) for epsilon in (1e-9, 0.1, 5.0)]
        yield f"tilt {name}", [composition.log_tilted(one, n, t) for t in (0.1, 3.0)]
        yield f"tilt at {name}", [composition._tilt_at(one, n, epsilon) for epsilon in (0.0, 0.2, 1.0, 9.0)]
        yield (
            f"tilt for {name}",
            [
                composition.tilt_for(partial(composition.log_tilted, one, n), mu, composition.steepest_of(one), delta=d)
                for mu in (0.0, 0.3)
                for d in (0.7, 1e-3, 1e-12)
            ],
        )
        for delta in (1e-3, 1e-8):
            yield (
                f"epsilon {name} {delta}",
                refused(partial(composition.epsilon_bracket, one, n, delta))
                or ends(composition.epsilon_bracket(one, n, delta)),
            )
        for epsilon in (0.0, 0.7):
            yield f"delta {name} {epsilon}", ends(composition.delta_bracket(one, n, epsilon))
        pieces = one.masses[1:] / one.masses[1:].sum()
        yield f"window {name}", [end for cut in (1e-40, 1e-3) for end in composition._window(pieces, n, cut)]
    yield "tilt of no loss", [composition._tilt_at(binomial_distribution(1), 2, 0.5)]
    yield "finest step of many rows", [composition.finest_step(binomial_distribution(10**6), n) for n in (1, 10**6)]
    yield "window of one point", list(composition._window(np.array([1.0]), 3, 1e-9))
    yield "tilt rounding", [round_offs(composition.tilt_rounding(s)) for s in (0.0, 7.5)]
    yield "guess", [composition._guess(mu, d) for mu in (0.0, 0.1, 3.0) for d in (0.9, 1e-6)]
    yield (
        "narrow",
        [
            composition.is_narrow(composition.Bracket(*pair))
            for pair in ((0.99, 1.0), (0.989, 1.0), (0, 1e-7), (0, 1.1e-7), (99.01, 100.0), (9.89, 10.0))
        ],
    )
    yield "no room", refused(lambda: composition.epsilon_bracket(binomial_distribution(3000), 10, 1e-37))
    yield "no bound", refused(lambda: composition.epsilon_bracket(binomial_distribution(30), 7, 1e-9))
    # Fewer than were asked for, also where more would have a finite epsilon.
    yield "fewer", [composition._infinite_error(binomial_distribution(20), n, 1e-5).largest_rados for n in (3, 50)]
    yield "too much", refused(lambda: composition.epsilon_bracket(binomial_distribution(300), 1_000_000, 1e-9))
    masses = np.array([0.1, 0.2, 0.4, 0.2, 0.05])
    yield "epsilon at the infinite mass", [composition.GridLosses(0.5, -2, masses, 0.05).epsilon(0.05)]
    grids = (
        composition.GridLosses(0.5, -2, masses, 0.05),
        composition.GridLosses(0.5, -1, masses, 0.0, pointwise=1e-6, stray=1e-5),
        composition.GridLosses(0.25, 3, masses, 0.01, tilt=1.5, log_scale=0.8, pointwise=1e-7, stray=1e-6),
        composition.GridLosses(200.0, 1, masses, 0.0),
        composition.GridLosses(1.0, 2, np.array([1.0]), 0.0, pointwise=1e-3),
    )
    for place, grid in enumerate(grids):
        yield f"grid {place} delta", [grid.delta(e) for e in (0.0, 0.3, 0.5, 1.1, 250.0)]
        yield f"grid {place} error", [round_offs(grid.error(e)) for e in (0.0, 0.3, 0.5, 1.1, 250.0)]
        yield (
            f"grid {place} epsilon",
            [
                end
                for d in (1e-9, 1e-4, 0.02, 0.06, 0.3, 0.9)
                for end in (grid.epsilon_lower(d), grid.epsilon(d), grid.epsilon_upper(d))
            ],
        )


def shift(found: gaussian.ShiftDistribution) -> list[float]:
    return [
        *sums(found.lower),
        *sums(found.upper),
        *sums(found.masses),
        found.trimmed,
        round_offs(found.relative_error),
        round_offs(found.slack),
    ]


SHIFTS = {
    "one": gaussian.shift_distribution(0.7),
    "several": gaussian.shift_distribution(0.2, 9, 1, 1e-12),
    "coins": gaussian.shift_distribution(0.3, 40, Fraction(1, 3), 1e-15),
    "rare": gaussian.shift_distribution(1.1, 500, Fraction(1, 200)),
    "half": gaussian.shift_distribution(0.05, 3000, 0.5),
}


def of_gaussian() -> Iterator[tuple[str, list[float]]]:
    for name, one in SHIFTS.items():
        yield f"shift {name}", shift(one)
        yield f"binned {name}", shift(one.binned(30))
        yield f"scaled {name}", shift(one.scaled(1.7))
        yield f"delta {name}", [end for e in (0.0, 0.2, 1.5, 20.0) for end in ends(one.delta(e))]
        # What rounding and slack add, as the difference is too small to be seen in delta itself.
        yield f"added {name}", [round_offs(one._delta_upper(e) - one._delta_lower(e)) for e in (0.0, 0.2, 1.5)]
        yield f"epsilon {name}", [end for d in (1e-9, 1e-4, 0.3) for end in ends(one.epsilon(d))]
    sum_of_two = gaussian.composed_shift([SHIFTS["coins"], SHIFTS["several"]])
    sum_of_all = gaussian.composed_shift(SHIFTS.values())
    for name, one in {"two": sum_of_two, "all": sum_of_all}.items():
        yield f"sum of {name}", shift(one)
        yield f"epsilon of {name}", ends(one.epsilon(1e-6))
    for epsilon in (0.0, 0.4, 3.0, 40.0):
        values, errors = gaussian._hockey_stick(np.array([0.0, 1e-6, 0.04, 1.0, 30.0, 1e4]), epsilon)
        yield f"hockey stick {epsilon}", [*values]
        # Units of its parts: an underflow of 1e-290 is a figure, too.
        yield f"error of it {epsilon}", [float(np.log(e)) if e else 0.0 for e in errors]
    for n, p in ((1, 0.5), (7, Fraction(1, 3)), (2000, Fraction(1, 7)), (100_000, 0.25)):
        counts, masses = gaussian._binomial(n, p)
        yield f"binomial {n} {p}", [counts[0], counts[-1], *sums(masses)]
    yield "mu", [gaussian.gaussian_mu(e, d) for e in (0.01, 1, 30) for d in (1e-9, 0.01)]
    yield "mu with coins", [gaussian.subsampled_mu(n, p, 1, 1e-6) for n, p in ((10, 0.5), (300, Fraction(1, 50)))]
    yield "mu without limit", [gaussian.subsampled_mu(3, Fraction(1, 100), 1, Fraction(1, 20))]
    yield (
        "rados",
        [
            gaussian.subsampled_rados(mu, p, 1, 1e-6)
            for mu, p in ((0.02, 0.5), (0.3, 1), (0.1, Fraction(1, 9)), (9.0, 1))
        ],
    )
    yield "limits", [gaussian.check_delta(TINY), gaussian.check_epsilon(Fraction(1, 3)), gaussian.check_epsilon(150)]
    yield "most releases", shift(gaussian.shift_distribution(1e-5, gaussian.MOST_RELEASES))
    yield "epsilon at a large delta", ends(SHIFTS["one"].epsilon(0.9))
    yield "void", refused(lambda: gaussian.gaussian_epsilon(40.0, 1e-9)) + refused(lambda: gaussian.check_delta(1e-101))
    yield "too small", refused(lambda: sum_of_all.epsilon(1e-38))
    yield "cut more than delta", refused(lambda: sum_of_all.epsilon(1e-39))


def of_mixed() -> Iterator[tuple[str, list[float]]]:
    counts = [mixed.CountRelease(binomial_distribution(300), 6), mixed.CountRelease(binomial_distribution(200), 4)]
    family = gaussian.composed_shift([SHIFTS["coins"], SHIFTS["one"]])
    for name, (some, shifts) in {
        "counts": (counts, []),
        "both": (counts[1:], [SHIFTS["coins"], SHIFTS["one"]]),
        "noise": ([], [SHIFTS["rare"]]),
        "weak": (counts[1:], [SHIFTS["half"]]),
    }.items():
        for delta in (1e-5, 0.01):
            yield f"epsilon {name} {delta}", ends(mixed.mixed_epsilon(some, shifts, delta))
    yield "reach", [mixed._reach(one, cut) for one in (*SHIFTS.values(), family) for cut in (1e-3, 1e-12)]
    yield "tails error", [round_offs(mixed._tails_error(one)) for one in (*SHIFTS.values(), family)]
    yield "log scale", [mixed._log_scale(counts, part, t) for part in (None, family) for t in (0.1, 2.0)]
    grid = np.linspace(-3.0, 5.0, 9)
    for name, part in zip(
        ("below", "above"), mixed._tails(np.array([0.0, 0.5]), np.array([0.3, 0.7]), grid), strict=True
    ):
        yield f"tails {name}", [*part]
    for pessimistic in (False, True):
        piece, coarse, beyond = mixed._gaussian_piece(family, 0.01, 1e-6, 1.2, pessimistic=pessimistic)
        yield (
            f"piece {pessimistic}",
            [coarse, beyond, piece.first, piece.infinite, piece.log_scale, *sums(piece.masses)],
        )
        found = mixed._composed(counts, family, 0.01, 1e-4, 1.2, pessimistic=pessimistic)
        yield from (
            (f"composed {pessimistic} {key}", value) for key, value in composed(found, [0.0, 1.0, 5.0], [1e-5, 0.01])
        )
    # Its losses are almost symmetric, so that what is cut below counts as much as what is cut above.
    piece, coarse, beyond = mixed._gaussian_piece(gaussian.shift_distribution(0.01), 0.03, 0.5, 0.0, pessimistic=True)
    yield "piece of a small shift", [coarse, beyond, piece.first, piece.infinite, *piece.masses]
    piece, coarse, beyond = mixed._gaussian_piece(gaussian.shift_distribution(0.1), 1e-5, 1e-6, 0.0, pessimistic=True)
    yield "piece of a fine step", [coarse, beyond, piece.first, piece.infinite, *sums(piece.masses)]
    yield "no bound", refused(lambda: mixed.mixed_epsilon([mixed.CountRelease(binomial_distribution(8), 2)], [], 1e-3))
    yield "void", refused(lambda: mixed.mixed_epsilon(counts, [gaussian.shift_distribution(30.0)], 1e-6))
    yield (
        "no room",
        refused(lambda: mixed.mixed_epsilon([mixed.CountRelease(binomial_distribution(3000), 9)], [], 1e-37)),
    )


def of_concentrated() -> Iterator[tuple[str, list[float]]]:
    yield (
        "epsilon",
        [concentrated.concentrated_epsilon(r, d) for r in (0, TINY, 0.01, 0.5, 20, 1000) for d in (TINY, 1e-5, 0.5)],
    )
    yield (
        "delta",
        [concentrated.concentrated_delta(r, e) for r in (0, TINY, 0.01, 0.5, 20) for e in (0.0, 0.1, 2.0, 60.0)],
    )
    yield "rho", [concentrated.concentrated_rho(e, d) for e in (0, 0.01, 1, 100) for d in (TINY, 1e-5, 0.5)]
    for e, d in ((Fraction(1, 10), TINY), (Fraction(3), Fraction(0))):
        bound = concentrated.of_epsilon(e, d)
        yield f"of epsilon {e}", [float(bound.rho), float(bound.failure)]
    for name, one in SHIFTS.items():
        for failure in (TINY, Fraction(1, 100)):
            bound = concentrated.of_shift(one, failure)
            yield f"of shift {name} {failure}", [float(bound.rho), float(bound.failure)]
    for name, (one, n) in COUNTS.items():
        if name == "rest":  # no count: it is not symmetric
            continue
        for failure in (TINY, Fraction(1, 100), Fraction(2, 3)):
            bound = concentrated.of_count(one, n, failure)
            yield f"of count {name} {failure}", [float(bound.rho), float(bound.failure)]
        inside = slice(3, len(one.masses) - 2)
        masses = one.masses[inside] / one.masses[inside].sum()
        losses = one.losses[inside.start - 1 : inside.stop - 1]
        yield f"cumulants {name}", [concentrated._cumulant(masses, losses, s, one) for s in (1e-3, 0.1, 2.0, 50.0)]
    yield "chord of a constant", [concentrated.chord(1.0, -1.0, 2.0, -1.0)]
    yield "chords", [concentrated.chord(*four) for four in ((1, 2, 3, 9), (0.5, 0.1, 2.0, 3.0), (1.0, 5.0, 2.0, 6.0))]
    alone = concentrated.of_count(binomial_distribution(2, 1), 1, TINY)
    yield "of one", [float(alone.rho), float(alone.failure)]
    two = concentrated.of_count(binomial_distribution(1), 1, TINY)
    yield "of two outcomes", [float(two.rho), float(two.failure)]
    yield "of few", [float(concentrated.of_count(binomial_distribution(rows), 2, TINY).failure) for rows in (1, 2, 3)]


def of_dp_feat() -> Iterator[tuple[str, list[float]]]:
    for name, arguments in {
        "free": ([100, 150], 30, None, 1e-5),
        "cut": ([400, 300], 20, Fraction(2), 1e-4),
        "one": ([60], 2, None, TINY),
        "truncated": ([100, 80], 2, Fraction(1), 0.1),
    }.items():
        for count in (dp_feat.account, dp_feat.account_of_exact_split):
            found = count(*arguments)
            yield (
                f"{count.__name__} {name}",
                [found.epsilon_lower, found.epsilon, found.epsilon_if_others_collude, found.delta],
            )
        yield f"range {name}", [*ends(dp_feat.epsilon_for(*arguments)), *ends(dp_feat.delta_for(*arguments[:3], 0.8))]
        yield f"most {name}", [dp_feat.largest_rados(arguments[0], arguments[2], 1, arguments[3], 200)]
    yield (
        "per rado",
        [dp_feat.delta_per_rado(rows, e) for rows, e in ((50, None), (400, Fraction(1, 2)), (3000, Fraction(2)))],
    )
    at_its_own = dp_feat.account([60], 2, None, 1e-5).epsilon
    yield (
        "largest",
        [
            dp_feat.largest_rados([60], None, at_its_own, 1e-5, 9),
            dp_feat.largest_rados([12], None, 100, 0.01, 10_000),
        ],
    )
    yield "last", [dp_feat.last_that_fits(0, 10, lambda n: n <= 3)]
    for rows in (10, 40):
        limits = dp_feat.dp_feat_range(rows, delta=TINY, epsilon=Fraction(2), most_rados=50)
        yield f"limits {rows}", [limits.one_rado or -1, limits.largest, limits.delta_needed, limits.rows_needed]
    for name, rest in {"near": (30, 20, 22), "far": (200, 900, 500)}.items():
        one = dp_feat.known_rest_distribution(*rest)
        margins = [one.trimmed * 1e30, round_offs(one.relative_error), round_offs(one.loss_error)]
        yield f"rest {name}", [one.low, *sums(one.masses), *sums(beside_one(one.losses)), *margins]
    one = dp_feat.known_rest_distribution(3, 1, 2)
    yield "rest of one count", [one.low, *one.masses, *(1 + one.losses), len(one.losses)]
    starts = np.arange(-4, 9)
    yield (
        "sliding",
        [s for w in (-1, 0, 1, 3, 5, 6, 9) for s in dp_feat.sliding_sums(np.arange(1.0, 7.0), w, starts)],
    )


def of_noise() -> Iterator[tuple[str, list[float]]]:
    for noise in (noise_shares.IntegerNoise(3, 2, 5), noise_shares.IntegerNoise(4000, 70, 1000)):
        yield (
            f"integer {noise.share_sigma}",
            [noise.variance, noise.sigma, noise.slack * 1e20, noise.mu(Fraction(7, 3))],
        )
        yield f"its shift {noise.share_sigma}", shift(noise.distribution(9, 4, Fraction(1, 2)))[:-1]
    yield (
        "ratio",
        [
            math.log(noise_shares.log_ratio(s, n, r))
            for s, n, r in ((0.5, 2, 1.0), (1.0, 1, 0.5), (1.0, 64, 2.0), (1.0, 200, 4.0))
        ],
    )
    yield "no ratio", [noise_shares.log_ratio(0.1, 2, 0.01), noise_shares._tau(0.0), noise_shares._tau(0.2)]
    yield (
        "smallest",
        [
            noise_shares.smallest_share(squared, shares, 10, epsilon, 1e-6, n, p)
            for squared, shares, epsilon, n, p in (
                (1, 1, 30, 1, 1),
                (10**12, 3, 1, 1, 1),
                (10**9, 2, Fraction(1, 100), 50, Fraction(1, 2)),
                (10**20, 5, 3, 1, 1),
            )
        ],
    )
    for shares in (noise_shares.GaussianShares(3), noise_shares.GaussianShares(5000)):
        for parties in (1, 4):
            yield (
                f"gaussian shares {shares.share_sigma} {parties}",
                [
                    shares.deviation(parties),
                    shares.tail_bound(parties, 9),
                    *(
                        shares.half_width(parties, values, f)
                        for values in (1, 100)
                        for f in (0.05, 1e-12, Fraction(1, 10**300))
                    ),
                ],
            )
    for shares in (noise_shares.LaplaceShares(Fraction(1, 64), 2), noise_shares.LaplaceShares(Fraction(90), 3)):
        for parties in (2, 3, 8):
            yield (
                f"laplace shares {float(shares.scale)} {parties}",
                [
                    float(shares.epsilon(5)),
                    shares.deviation(parties),
                    shares.tail_bound(parties, 9),
                    *(shares.half_width(parties, values, f) for values, f in ((1, 0.05), (100, 1e-6), (3, 1e-12))),
                ],
            )
    tail = noise_shares._Tail(Fraction(1, 90), Fraction(8, 3))
    yield "tail", [*sums(tail._starts.astype(float)), *sums(tail._masses), *(tail.beyond(b) for b in (0, 10, 5000))]
    yield (
        "scales",
        [
            float(noise_shares.smallest_scale(l1, e))
            for l1, e in (
                (1, Fraction(100)),
                (7, Fraction(3, 10)),
                (Fraction(1, 3**38), Fraction(1, 3**45)),
                (1000, Fraction(3**41 + 1, 3**41)),
            )
        ],
    )
    yield "pure epsilon", [float(noise_shares.LaplaceShares(Fraction(90), 3).epsilon(l1)) for l1 in (0, Fraction(1, 2))]


def of_others() -> Iterator[tuple[str, list[float]]]:
    for bound in (Fraction(1, 1000), Fraction(1, 3), Fraction(7), Fraction(140)):
        one = mixed.PureLoss(bound)
        yield (
            f"pure {bound}",
            [
                *(end for d in (0, TINY, 0.3, Fraction(999, 1000)) for end in ends(one.epsilon(d))),
                *(end for e in (0.0, 0.2, 5.0) for end in ends(one.delta(e))),
                float(one.concentrated.rho),
            ],
        )
    yield "pure at the largest epsilon", ends(mixed.PureLoss(Fraction(160)).delta(150.0))
    yield "limit of 0", [float(filters.PrivacyLimit(Fraction(0), Fraction(1, 10)).largest_rho)]
    limit = filters.PrivacyLimit(Fraction(3), Fraction(1, 10**5))
    one = filters.Loss.of_epsilon(Fraction(1, 10), Fraction(1, 10**8))
    for count in (0, 1, 20, 60, 2000):
        total = one.times(count)
        yield (
            f"limit {count}",
            [
                limit.admits(total),
                limit.spent(total),
                limit.remaining(total, TINY),
                limit.left(total).pure,
                limit.left(total).gaussian,
                float(limit.largest_rho),
            ],
        )
    yield "roots", [noise_shares.root_up(v) for v in (1, 2, Fraction(1, 3), 10**40, Fraction(1, 10**40))]
    roots = ((v, Fraction(noise_shares.root_up(v))) for v in (Fraction(2), Fraction(1, 3), Fraction(1, 10**40)))
    yield "added to roots", [round_offs(float(root * root / v - 1)) for v, root in roots]
    yield "roots of all sizes", [noise_shares.root_up(v) for v in (1 << 1000, Fraction(1, 1 << 1000))]
    yield "gradient", [noise_shares.gradient_squared(Fraction(3, 2), bits) for bits in (0, 5)]
    yield "joint", [noise_shares.joint_squared(3, bits) for bits in (0, 5)]
    yield "transform error", [round_offs(distributions.transform_error(n)) for n in (1, 2, 1000, 1 << 20)]
    yield "lengths", [distributions.fast_length(n) for n in (1, 2, 7, 11, 13, 97, 1000, 1025, 4097, 62_501)]
    pieces = np.array([0.1, 0.4, 0.3, 0.2])
    for n in (1, 2, 5):
        values, error = distributions.self_convolved(pieces, n, 18)
        yield f"self {n}", [*beside_one(values), round_offs(error)]
    values, error = distributions.convolved(pieces, np.array([0.5, 0.25, 0.25]))
    yield "convolved", [*values, round_offs(error)]
    values, error = distributions.self_convolved(pieces / 4, 3, 18)
    yield "self of another size", [*beside_one(values), round_offs(error)]
    values, error = distributions.convolved(pieces * 8, np.array([0.5, 0.25, 0.25]) / 32)
    yield "convolved parts of other sizes", [*values, round_offs(error)]
    yield (
        "admissible",
        [
            end
            for rows, e in ((1, 1), (10, 2), (999, Fraction(1, 100)), (10**9, 3))
            for end in dp_feat.admissible_range(rows, Fraction(e))
        ],
    )
    yield "truncation", [dp_feat.smallest_epsilon_per_rado(rows) for rows in (1, 2, 3, 1000)]
    for before in (0.01, 0.5, 0.9):
        for e, d in ((0.0, 0.0), (1.0, 0.0), (1.0, 1e-6), (30.0, 1e-9), (3.0, 0.02)):
            chance = odds.chance_after(before, e, d)
            yield (
                f"odds {before} {e} {d}",
                [chance.doubt, chance.probability, odds.right_guesses(e, d).doubt, odds.exceptions(d)],
            )


@contextmanager
def large(module: ModuleType, **constants: float) -> Iterator[None]:
    """What a module adds for rounding, made large enough to be seen."""
    kept = {name: getattr(module, name) for name in constants}
    try:
        for name, value in constants.items():
            setattr(module, name, value)
        yield
    finally:
        for name, value in kept.items():
            setattr(module, name, value)


def of_margins() -> Iterator[tuple[str, list[float]]]:
    """A bound that is rounded to the wrong side, or without its margin, differs here."""
    with large(concentrated, _ROUNDING=1e-4):
        yield from ((f"concentrated {name}", values) for name, values in of_concentrated())
    with large(gaussian, ROUND_OFF=2.0**-16, _UNDERFLOW=1e-6, _LIGHT=1e-3):
        coins = gaussian.shift_distribution(0.3, 40, Fraction(1, 3), 1e-3)
        coin = gaussian.shift_distribution(0.5, 1, Fraction(1, 2), 1e-3)
        for name, found in {
            "coins": coins,
            "binned": coins.binned(9),
            "sum": gaussian.composed_shift([coins, gaussian.shift_distribution(0.7), coin]),
        }.items():
            yield f"shift {name}", shift(found)
            yield f"delta {name}", [end for e in (0.0, 0.2, 1.5) for end in ends(found.delta(e))]
    with large(noise_shares, _MARGIN=0.01):
        noise = noise_shares.GaussianShares(5000)
        yield "half widths", [noise.half_width(4, 100, f) for f in (0.05, Fraction(1, 10**300))]
        yield "tail bounds", [noise_shares.LaplaceShares(Fraction(90), 3).tail_bound(n, 9) for n in (2, 3, 8)]
    with large(noise_shares, _LOG_ERROR=0.1):
        yield "errors of logarithms", [noise_shares.LaplaceShares(Fraction(90), 3).tail_bound(n, 9) for n in (2, 8)]
    with large(mixed, _PURE_MARGIN=1e-3):
        for bound in (Fraction(1, 3), Fraction(7)):
            one = mixed.PureLoss(bound)
            yield f"pure {float(bound)}", [*ends(one.epsilon(0.3)), *ends(one.delta(0.2))]
    with large(odds, _ROUNDING=1e-3):
        yield "odds", [odds.chance_after(0.5, 1.0, 1e-6).doubt, odds.right_guesses(1.0, 1e-6).doubt]
    pieces, other = np.array([0.1, 0.4, 0.3, 0.2]), np.array([0.5, 0.25, 0.25])
    with large(distributions, ROUND_OFF=2.0**-20):
        yield "self", [distributions.self_convolved(pieces, 5, 18)[1]]
        yield "convolved", [distributions.convolved(pieces, other)[1]]
    masses = np.array([0.1, 0.2, 0.4, 0.2, 0.05])
    grid = composition.GridLosses(0.5, -2, masses, 0.05)
    rough = composition.GridLosses(0.5, 1, masses, 0.0, tilt=1.5, pointwise=0.01, stray=0.02)
    with large(mixed, _MARGIN=0.01):
        both = mixed._both(rough, rough)
        yield "both", [both.pointwise, both.stray]
    one = composition.Composed(grid, 0.01, 0.05, 0.02, 0.005, composition.Slack(0.003, 1.1, 0.07))
    yield "slack and delta", [end for e in (0.0, 0.3, 1.1) for end in (one.delta_lower(e), one.delta_upper(e))]
    yield "slack and epsilon", [end for d in (0.08, 0.2, 0.99) for end in (one.epsilon_lower(d), one.epsilon_upper(d))]


PARTS = {
    "composition": of_composition,
    "gaussian": of_gaussian,
    "mixed": of_mixed,
    "concentrated": of_concentrated,
    "dp_feat": of_dp_feat,
    "noise": of_noise,
    "others": of_others,
    "margins": of_margins,
}


def figures(part: str) -> Found:
    """The figures of one part, by name."""
    found = {name: [float(value) for value in values] for name, values in PARTS[part]()}
    assert all(found.values()), [name for name, values in found.items() if not values]
    return found


if __name__ == "__main__":
    FILE.write_text(json.dumps({part: figures(part) for part in PARTS}, indent=0) + "\n", encoding="utf-8")
