"""Sets of signatures, and exact sums over them without enumeration (Nock, Patrini, Friedman, ICML 2015, section 2).

A signature is given by its selection s in {0, 1}^m, s_i = [sigma_i = y_i]. Every design of the paper draws uniformly
from a set of one form: rows come in blocks, and in each block the number of rows with s_i = t_i, for a target t that
the data determine, is in a range.

    all signatures         any t, the range [0, m]
    DP-FEAT, equation 16   t_i = [e_i,j* = +1]: the number is k, the range Algorithm 2's
    Sigma^{m*}, eq. 18     t_i = 1: the number is the support, the range [m*, m*]

One block is the paper's set; with a block for each party, parties keep the range separately.

For products a_i = theta . e_i, the weight exp(-theta . pi) = prod_i exp(-s_i a_i) is, up to the constant
prod_i (1 + exp(-a_i)), the probability of s if row i is selected independently with probability 1/(1 + exp(a_i)). So
sums over a set are probabilities of counts of independent coins, computed by convolution.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpcore.accounting.dp_feat import truncation
from dpcore.errors import ConfigurationError, ShapeError
from dpcore.numbers.fixed_point import Mask, Matrix, Vector
from dpcore.rados.designs import RadoDesign
from dpcore.rados.support import check_support
from dpcore.records.records import Records, sensitive_positive

BISECTIONS = 200


@dataclass(frozen=True, eq=False)
class SignatureBlock:
    """Rows whose selections s are admitted if low <= #{i : s_i = target_i} <= high.

    Raises ShapeError if the target is not (rows,) or has no row, ConfigurationError if the counts are out of range.
    """

    target: Mask
    """(rows,) bool."""
    low: int
    high: int

    def __post_init__(self) -> None:
        target = np.array(self.target, dtype=np.bool_)
        if target.ndim != 1 or not target.size:
            raise ShapeError(f"a block's target has shape {target.shape}: give (rows,), with at least one row")
        if not 0 <= self.low <= self.high <= len(target):
            raise ConfigurationError(
                f"a count of {len(target)} rows cannot be in [{self.low}, {self.high}]: give 0 <= low <= high <= rows"
            )
        target.setflags(write=False)
        object.__setattr__(self, "target", target)

    @property
    def is_everything(self) -> bool:
        """Whether every selection is admitted."""
        return self.low == 0 and self.high == len(self.target)


@dataclass(frozen=True, eq=False)
class SignatureSet:
    """The selections admitted by every block, in the order of the rows. Raises ConfigurationError without a block."""

    blocks: tuple[SignatureBlock, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", tuple(self.blocks))
        if not self.blocks:
            raise ConfigurationError("a set of signatures has no block: give at least one")

    @property
    def rows(self) -> int:
        """The number of rows, m."""
        return sum(len(block.target) for block in self.blocks)

    def admits(self, selections: Mask) -> Mask:
        """Which selections are in the set: (count,) of (count, m). Raises ShapeError for another width."""
        if selections.ndim != 2 or selections.shape[1] != self.rows:
            raise ShapeError(f"selections have shape {selections.shape}: give (count, {self.rows})")
        admitted = np.ones(len(selections), dtype=np.bool_)
        for block, rows in self.slices():
            count = (selections[:, rows] == block.target).sum(axis=1)
            admitted &= (count >= block.low) & (count <= block.high)
        return admitted

    def log_probability(self, products: Vector) -> float:
        """Log probability, in nats, of the set if row i is selected with 1/(1 + exp(a_i)).

        products: (m,), a_i; zeros give the share of the set in all signatures. Raises ShapeError for another shape.
        """
        self._check(products)
        total = 0.0
        for block, rows in self.slices():
            if not block.is_everything:
                # s_i = target_i with log odds -a_i where the target is 1, a_i where it is 0.
                log_odds = np.where(block.target, -products[rows], products[rows])
                total += log_count_probability(log_odds, block.low, block.high)
        return total

    def log_loss(self, products: Vector) -> float:
        """Log of the exponential rado loss (equation 2) over the whole set, in nats.

        By Lemma 2 prod_i (1 + exp(-a_i)) / 2, times the ratio of the set's probabilities at theta and at 0. Raises
        ShapeError if the products are not (m,).
        """
        everywhere = float(np.sum(np.logaddexp(0.0, -products))) - self.rows * math.log(2)
        return everywhere + self.log_probability(products) - self.log_probability(np.zeros(self.rows))

    def inclusion(self) -> Vector:
        """The probability with which each row is selected by a uniform signature: (m,)."""
        parts = []
        for block, _ in self.slices():
            counts = np.arange(block.low, block.high + 1)
            rows = len(block.target)
            logs = np.array([-math.lgamma(k + 1) - math.lgamma(rows - k + 1) for k in counts])
            weights = np.exp(logs - logs.max())
            matches = float(weights @ counts / weights.sum()) / rows
            parts.append(np.where(block.target, matches, 1 - matches))
        return np.concatenate(parts)

    def best_selection(self, products: Vector) -> Mask:
        """The selection of the set with the least sum of selected products: (m,).

        The negative products of a block, then the changes of least cost |a_i| that correct the count. Raises ShapeError
        if the products are not (m,).
        """
        self._check(products)
        selection = products < 0
        for block, rows in self.slices():
            part = selection[rows]  # a view: changing it changes the selection
            matching = part == block.target
            excess = int(matching.sum()) - min(max(int(matching.sum()), block.low), block.high)
            candidates = np.flatnonzero(matching if excess > 0 else ~matching)
            cheapest = candidates[np.argsort(np.abs(products[rows])[candidates], kind="stable")[: abs(excess)]]
            part[cheapest] = ~part[cheapest]
        return selection

    def extents(self, products: Matrix) -> Vector:
        """The largest sum of selected products for each column: (count,).

        products: (m, count). Raises ShapeError for another shape.
        """
        if products.ndim != 2 or len(products) != self.rows:
            raise ShapeError(f"products have shape {products.shape}: give ({self.rows}, count)")
        found = np.zeros(products.shape[1])
        for block, rows in self.slices():
            part = products[rows]
            if block.is_everything:
                found += np.maximum(part, 0.0).sum(axis=0)
                continue
            # Matching row i adds +-a_i to the sum of those that are selected without a match.
            gains = np.sort(np.where(block.target[:, np.newaxis], part, -part), axis=0)[::-1]
            sums = np.concatenate([np.zeros((1, part.shape[1])), np.cumsum(gains, axis=0)])
            count = np.clip((gains > 0).sum(axis=0), block.low, block.high)
            found += part[~block.target].sum(axis=0) + sums[count, np.arange(part.shape[1])]
        return found

    def slices(self) -> list[tuple[SignatureBlock, slice]]:
        """Each block with its rows."""
        ends = np.cumsum([len(block.target) for block in self.blocks])
        return [
            (block, slice(int(end) - len(block.target), int(end))) for block, end in zip(self.blocks, ends, strict=True)
        ]

    def _check(self, products: Vector) -> None:
        if products.shape != (self.rows,):
            raise ShapeError(f"products have shape {products.shape}: give ({self.rows},), one a row")


def all_signatures(rows: int) -> SignatureSet:
    """All 2^m signatures of m = rows. Raises ShapeError if rows < 1."""
    return SignatureSet((SignatureBlock(np.ones(max(rows, 0), dtype=np.bool_), 0, rows),))


def dp_feat_signatures(
    positive: Mask, epsilon_per_rado: Fraction, party_rows: Sequence[int] | None = None
) -> SignatureSet:
    """Algorithm 2's set (equation 16), one for each party if party_rows are given, else one of the pool.

    positive: (m,), [e = +1] of the sensitive coordinate. Raises EmptyTruncationError if
    a party's set is empty, ShapeError if party_rows are not positive counts that add up to m.
    """
    return SignatureSet(
        tuple(SignatureBlock(part, *truncation(len(part), epsilon_per_rado)) for part in _parts(positive, party_rows))
    )


def fixed_support_signatures(party_rows: Sequence[int], supports: Sequence[int]) -> SignatureSet:
    """Signatures that select exactly supports[p] of party_rows[p] rows (equation 18).

    Raises ConfigurationError if there are not as many supports as parties, or one is not from 0 to the party's rows,
    ShapeError if a party has no row.
    """
    if len(party_rows) != len(supports):
        raise ConfigurationError(f"{len(supports)} supports for {len(party_rows)} parties: give one for each party")
    return SignatureSet(
        tuple(SignatureBlock(np.ones(rows, dtype=np.bool_), m, m) for rows, m in zip(party_rows, supports, strict=True))
    )


def _parts(rows: Mask, party_rows: Sequence[int] | None) -> list[Mask]:
    sizes = [len(rows)] if party_rows is None else list(party_rows)
    if sum(sizes) != len(rows) or min(sizes, default=0) < 1:
        raise ShapeError(f"parties have {sizes} rows and there are {len(rows)}: give positive counts that add up")
    return np.split(rows, np.cumsum(sizes)[:-1])


def log_count_probability(log_odds: Vector, low: int, high: int) -> float:
    """Log P(low <= sum of independent coins <= high), in nats; coin i is 1 with log odds log_odds[i].

    Far from the mean, log odds are shifted by t: P(k) = P_t(k) exp(-t k) prod (1 + exp(l_i + t)) / (1 + exp(l_i)).
    """
    tilt = _tilt(log_odds, low, high)
    masses = _count_masses(_sigmoid(log_odds + tilt))[low : high + 1]
    scale = float(np.sum(np.logaddexp(0.0, log_odds + tilt) - np.logaddexp(0.0, log_odds)))
    with np.errstate(divide="ignore"):
        logs = np.log(masses) - tilt * np.arange(low, high + 1)
    largest = float(logs.max())
    # Rounding may give the whole distribution slightly more than 1.
    return min(0.0, scale + largest + math.log(float(np.exp(logs - largest).sum())))


def _tilt(log_odds: Vector, low: int, high: int) -> float:
    """A shift of all log odds that moves the mean count into [low, high], or to half a count from an end of 0..m."""
    mean = float(_sigmoid(log_odds).sum())
    if low <= mean <= high:
        return 0.0
    coins = len(log_odds)
    wanted = min(max(float(low if mean < low else high), 0.5), coins - 0.5)
    reach = float(np.abs(log_odds).max()) + math.log(2 * coins) + 1
    below, above = -reach, reach
    for _ in range(BISECTIONS):
        middle = (below + above) / 2
        if float(_sigmoid(log_odds + middle).sum()) < wanted:
            below = middle
        else:
            above = middle
    return (below + above) / 2


def _count_masses(probabilities: Vector) -> Vector:
    """The distribution of the number of ones: (coins + 1,). Sums of products of positive numbers, by convolution."""
    if len(probabilities) == 1:
        return np.array([1 - probabilities[0], probabilities[0]])
    middle = len(probabilities) // 2
    return np.convolve(_count_masses(probabilities[:middle]), _count_masses(probabilities[middle:]))


def _sigmoid(x: Vector) -> Vector:
    # Through the logarithm, so that neither end overflows.
    sigmoid: Vector = np.exp(-np.logaddexp(0.0, -x))
    return sigmoid


# The set of signatures that a design draws from, for given records.


def signatures_of(design: RadoDesign, records: Records, party_rows: Sequence[int] | None = None) -> SignatureSet:
    """Sigma_r of a design, for Theorem 3's penalties.

    records: of all parties, as the design sums them, rounded if it rounds. party_rows: m_p, if parties draw separately.
    Raises ShapeError, EmptyTruncationError, SupportError or SchemaError.
    """
    sizes = [records.rows] if party_rows is None else list(party_rows)
    if sum(sizes) != records.rows or min(sizes, default=0) < 1:
        raise ShapeError(f"parties have {sizes} rows and there are {records.rows}: give positive counts that add up")
    if design.truncated_at is not None:
        positive = sensitive_positive(records, design.coded[0])
        return dp_feat_signatures(positive, design.truncated_at, None if design.is_pooled else sizes)
    if design.support is not None:
        drawn = [records.rows] if design.is_pooled else sizes
        return fixed_support_signatures(drawn, [check_support(rows, design.support) for rows in drawn])
    return all_signatures(records.rows)
