"""How many rados: those that an epsilon allows, and those that suit the coordinates, the rows and the noise.

n rados of d coordinates determine the covariance of all rados up to a relative error of about 2 sqrt(d / n), in the
largest eigenvalue (Marchenko and Pastur 1967). Noise of r^2 times the variance of a coordinate raises it to 2 (1 + r^2)
sqrt(d / n).

An epsilon is for all rados together, so r^2 is about n / n*, with n* from the accounting, and the error is least at n =
n*.

A quarter of n* is taken: its error is 1.25 times the least, for a quarter of the bytes, and noise that an estimator
does not subtract biases it less. On three public tables it is within 2 points of error of the best of a search from a
sixteenth of n* to twice n* (tests/shared_data/test_chosen_rados.py).

Moments at the same epsilon have the smaller error: it grows as R^2 sqrt(d) / m, with clipping norm R and m records, and
that of rados at n* as R sqrt(d / m). R^2 is below m whenever either tells anything.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

from dpcore.accounting.dp_feat import MOST_RADOS, epsilon_for, largest_rados, last_that_fits
from dpcore.accounting.noise_shares import PRODUCT_WEIGHT
from dpcore.accounting.words import limit
from dpcore.errors import PlanError
from dpcore.queries.kind import MAX_VALUES
from dpcore.queries.moments import MomentsQuery
from dpcore.queries.rados import RadosQuery

# Rados a coordinate.
FEWEST_A_COORDINATE = 4
"""The covariance's error is then 1, so fewer tell nothing of it."""
USUAL_A_COORDINATE = 20
"""Without noise that grows with their number: within a point of logistic regression (benchmarks, learners)."""
MOST_A_COORDINATE = 100
"""The error is then 0.2; more cost bytes."""
_SHARE_OF_BEST = 0.25
# The noise grows not quite with the number, so it is looked at again.
_LOOKS = 3


def rados_for_noise(d: int, ratio: Callable[[int], float]) -> int:
    """The number of rados that suits d coordinates. ratio: r^2 at a number of them, in proportion to it or nearly so.

    Raises what `ratio` raises.
    """
    n = within_reach(USUAL_A_COORDINATE * d, d)
    for _ in range(_LOOKS):
        # Without noise as many as are of use.
        best = n / max(ratio(n), 1e-9)
        chosen = within_reach(round(_SHARE_OF_BEST * best), d)
        if chosen == n:
            break
        n = chosen
    return n


def within_reach(n: int, d: int) -> int:
    """The number of rados next to n of at least 4 and at most 100 a coordinate, and at most what a query holds."""
    return max(1, min(max(n, FEWEST_A_COORDINATE * d), MOST_A_COORDINATE * d, MAX_VALUES // d))


def noise_ratio(kind: RadosQuery, d: int, party_rows: Sequence[int], fraction_bits: int) -> float:
    """r^2: the noise's variance on a rado's coordinate over that of the draw of signatures, which is at most this.

    party_rows: of all parties.
    """
    drawn = kind.distribution(d, party_rows, fraction_bits)
    spread = sum(party_rows) * drawn.inclusion * (1 - drawn.inclusion)
    noise = 0.0 if drawn.rado_noise is None else float(drawn.rado_noise.max()) / spread
    # A record's own noise enters a rado as its edge does, whose coordinates are at most 1.
    return noise + (0.0 if drawn.edge_noise is None else float(drawn.edge_noise.max()))


def rado_error(kind: RadosQuery, d: int, party_rows: Sequence[int], fraction_bits: int) -> float:
    """The relative error of the rados' covariance, 2 (1 + r^2) sqrt(d / n). party_rows: of all parties."""
    ratio = noise_ratio(kind, d, party_rows, fraction_bits)
    return 2 * (1 + ratio) * math.sqrt(d / kind.rados)


def moments_error(kind: MomentsQuery, d: int, party_rows: Sequence[int], fraction_bits: int) -> float:
    """The same of a release of moments: the norm of its noise on the products, over the rows.

    A symmetric matrix of independent noise of deviation s has norm 2 s sqrt(d) (Wigner 1955).
    """
    units = kind.share_sigma * math.sqrt(len(party_rows)) / PRODUCT_WEIGHT
    return 2 * units * kind.product_unit(fraction_bits) * math.sqrt(d) / sum(party_rows)


# DP-FEAT: as many as an epsilon allows.


def most_rados(
    party_rows: Sequence[int],
    epsilon_per_rado: Fraction | None,
    epsilon: Fraction,
    delta: Fraction,
    most: int = MOST_RADOS,
) -> int:
    """The most rados that cost at most `epsilon` for the learner alone, and that the smallest party can charge.

    most: the limit of the search. A party charges its own figure, which has to be finite; this is looked at without
    truncation only, where the smallest party's is the largest. Returns 0 if not even one rado fits.
    """
    n = largest_rados(party_rows, epsilon_per_rado, epsilon, delta, most)
    fewest = min(party_rows)
    if epsilon_per_rado is not None or _counts(fewest, n, delta):
        return n
    return last_that_fits(0, n, lambda fewer: _counts(fewest, fewer, delta))


def _counts(rows: int, rados: int, delta: Fraction) -> bool:
    """Whether the epsilon of `rados` rados over one party of `rows` rows is finite."""
    try:
        return rados == 0 or epsilon_for([rows], rados, None, delta).upper < math.inf
    except PlanError:
        return False


def rados_within(
    epsilon: Fraction,
    delta: Fraction,
    pools: Iterable[Sequence[int]],
    epsilon_per_rado: Fraction | None,
    *,
    asked: int | None,
    fewest: int = 1,
    most: int = MOST_RADOS,
) -> int:
    """The most dp-feat rados that stay within a total epsilon, for each of the pools (each a sequence of m_p).

    asked: a requested number; fewest: the least useful number; most: no more are looked for. Raises PlanError if fewer
    than asked, or than the least useful number, stay within it.
    """
    most = min(most_rados(pool, epsilon_per_rado, epsilon, delta, most) for pool in pools)
    least = asked or fewest
    if most < least:
        fewer = f"ask for at most {most}, " if most >= fewest else ""
        raise PlanError(
            f"{least} rados cost more than {limit(epsilon, delta)}: {fewer}raise epsilon, or have more rows"
        )
    return most
