"""Signatures, drawn as packed selection bits, one block of rows at a time.

A rado depends on sigma through s_i = [sigma_i = y_i], uniform if sigma is, so bits are drawn without labels. A
description, a key and small tables, lets any thread or machine draw any block: block b has the key's stream b
(KeyedRandom). It is a secret: it stays in memory and goes to the party's own workers only.

2^40 cipher blocks differ from uniform bits by at most 2^-49 (Bellare, Desai, Jokipii, Rogaway, FOCS 1997: q^2 / 2^129),
plus the advantage against AES-256.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting.dp_feat import truncation
from dpcore.errors import PlanError, ShapeError
from dpcore.numbers.distributions import binomial_mass
from dpcore.numbers.fixed_point import ONE
from dpcore.rados.designs.base import RadoDesign
from dpcore.rados.support import check_support, last_byte, ones_per_rado, packed_width, rows_of_block, subsets
from dpcore.randomness.sources import KEY_BYTES, KeyedRandom, RandomSource
from dpcore.records.coding import SIGNS
from dpcore.records.computation import SumOverRows, sum_on_threads
from dpcore.records.records import BLOCK_ROWS, Records, not_coded, sensitive_positive

# Most bytes of packed selection bits in a block of candidates, if more are drawn than kept.
CANDIDATE_BYTES = 1 << 24

# Most tries per rado that rejection sampling may need on average.
MOST_EXPECTED_DRAWS = 10_000


class RejectionError(PlanError):
    """A truncation so narrow that rejection sampling would take too long."""

    def __init__(self, *, expected_draws: float, most_expected_draws: int) -> None:
        self.expected_draws, self.most_expected_draws = expected_draws, most_expected_draws
        super().__init__(
            f"a rado would need {expected_draws:.0f} tries and {most_expected_draws} are allowed: "
            "raise epsilon per rado, or draw without truncation"
        )


class Signatures(Protocol):
    """n signatures over m rows; any block can be drawn at any time. Frozen, and can be pickled."""

    @property
    def rows(self) -> int:
        """Rows, m."""
        ...

    @property
    def rados(self) -> int:
        """Rados, n."""
        ...

    def block(self, first_row: int) -> NDArray[np.uint8]:
        """The block of BLOCK_ROWS rows, or the last, from `first_row`: uint8 (ceil(rows/8), n). Raises ShapeError."""
        ...


@dataclass(frozen=True)
class UniformSignatures:
    """Independent signatures, each uniform over {0, 1}^m: the bits of the key's streams."""

    rows: int
    rados: int
    key: bytes = field(repr=False)
    """32 bytes, secret."""

    def block(self, first_row: int) -> NDArray[np.uint8]:
        """As `Signatures` says."""
        rows = rows_of_block(first_row, self.rows)
        selection = np.empty((packed_width(rows), self.rados), dtype=np.uint8)
        KeyedRandom(self.key, first_row // BLOCK_ROWS).fill(selection)
        selection[-1] &= last_byte(rows)
        return selection


@dataclass(frozen=True, eq=False)
class KeptSignatures:
    """The admitted signatures of rounds of candidates, in the order drawn."""

    rounds: tuple[tuple[UniformSignatures, NDArray[np.int64]], ...]
    """Candidates and the indices, ascending, of those that are kept."""

    @property
    def rows(self) -> int:
        """Rows, m."""
        return self.rounds[0][0].rows

    @property
    def rados(self) -> int:
        """Rados, n."""
        return sum(len(kept) for _, kept in self.rounds)

    def block(self, first_row: int) -> NDArray[np.uint8]:
        """As `Signatures` says."""
        parts = [
            candidates.block(first_row) if len(kept) == candidates.rados else candidates.block(first_row)[:, kept]
            for candidates, kept in self.rounds
        ]
        return np.concatenate(parts, axis=1) if len(parts) > 1 else np.ascontiguousarray(parts[0])


@dataclass(frozen=True, eq=False)
class GivenSignatures:
    """Whole signatures, given as bits. Raises ShapeError for another width."""

    rows: int
    selection: NDArray[np.uint8] = field(repr=False)
    """uint8 (n, ceil(m/8))."""

    def __post_init__(self) -> None:
        if self.selection.ndim != 2 or self.selection.shape[1] != packed_width(self.rows):
            raise ShapeError(f"selection has shape {self.selection.shape}: give (rados, {packed_width(self.rows)})")

    @property
    def rados(self) -> int:
        """Rados, n."""
        return len(self.selection)

    def block(self, first_row: int) -> NDArray[np.uint8]:
        """As `Signatures` says."""
        first = first_row // 8
        return self.selection[:, first : first + packed_width(rows_of_block(first_row, self.rows))].T.copy()


def expected_draws(rows: int, low: int) -> float:
    """Average tries per signature: 1 / P(low <= Binomial(rows, 1/2) <= rows - low), whatever the data."""
    mass = binomial_mass(rows, low)
    return math.inf if mass == 0 else max(1.0, 1 / mass)


def sensitive_counts(selection: NDArray[np.uint8], positive: NDArray[np.uint8], rows: int) -> NDArray[np.int64]:
    """The count k of each packed signature, (n, ceil(m/8)): rows whose bit equals that of `positive`, [e = +1]."""
    differing = np.bitwise_count(selection ^ positive).sum(axis=1, dtype=np.int64)
    return np.asarray(rows - differing, dtype=np.int64)


@dataclass(frozen=True)
class AgreeingRows:
    """The part (dpcore.records.computation.RowPart) that counts k: (n,), the rows with [selected] = [e = +1]."""

    signatures: Signatures
    coordinate: int

    @property
    def shape(self) -> tuple[int, ...]:
        """(n,)."""
        return (self.signatures.rados,)

    def add(self, total: NDArray[np.int64], records: Records, first_row: int) -> None:
        """As `RowPart` says."""
        for first in range(0, records.rows, BLOCK_ROWS):
            here = records.between(first, first + BLOCK_ROWS)
            positive = np.packbits(sensitive_positive(here, self.coordinate), bitorder="little")
            differing = self.signatures.block(first_row + first)
            differing ^= positive[:, np.newaxis]
            total += here.rows - ones_per_rado(differing)


@dataclass(frozen=True)
class Truncation:
    """The counts that Algorithm 2 admits for m = rows: low <= k <= rows - low, k on this sensitive coordinate."""

    rows: int
    low: int
    coordinate: int

    @classmethod
    def of(cls, design: RadoDesign, rows: int) -> "Truncation | None":
        """The truncation of a design, or None. Raises EmptyTruncationError, RejectionError."""
        if design.truncated_at is None:
            return None
        admitted = cls(rows, truncation(rows, design.truncated_at)[0], design.coded[0])
        if admitted.expected_draws > MOST_EXPECTED_DRAWS:
            raise RejectionError(expected_draws=admitted.expected_draws, most_expected_draws=MOST_EXPECTED_DRAWS)
        return admitted

    @property
    def expected_draws(self) -> float:
        """Average tries per signature."""
        return expected_draws(self.rows, self.low)

    def draw(
        self, rados: int, random: RandomSource, counts: Callable[[UniformSignatures], NDArray[np.int64]]
    ) -> KeptSignatures:
        """Independent admitted signatures: Algorithm 2's rejection sampling; the first by order of draws are kept.

        counts: returns k, (n,), of candidates; it is called once for each round, in order.
        """
        most = max(rados, CANDIDATE_BYTES // packed_width(min(BLOCK_ROWS, self.rows)))
        tries, missing, rounds = self.expected_draws, rados, []
        while missing:
            # The number of candidates needed is negative binomial; this is its mean plus four standard deviations.
            wanted = missing * tries + 4 * math.sqrt(missing * tries * (tries - 1))
            candidates = UniformSignatures(self.rows, min(most, round(wanted)), random.bytes(KEY_BYTES))
            k = counts(candidates)
            kept = np.flatnonzero((k >= self.low) & (k <= self.rows - self.low))[:missing]
            rounds.append((candidates, kept))
            missing -= len(kept)
        return KeptSignatures(tuple(rounds))


def check_drawable(design: RadoDesign, rados: int) -> None:
    """Raise PlanError if a party cannot draw these signatures itself."""
    if rados < 1:
        raise PlanError(f"{rados} rados: ask for at least one")
    if design.is_pooled:
        raise PlanError("split is 'exact': a party draws for itself only where it is 'local'")


@dataclass(frozen=True)
class CodedRows:
    """The part that counts usable rows, for each coordinate: (2, c), those with other values than -1/+1, and with +1.

    Rows that are not usable count as +1, as in `sensitive_positive`.
    """

    coordinates: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """(2, c)."""
        return 2, len(self.coordinates)

    def add(self, total: NDArray[np.int64], records: Records, first_row: int) -> None:  # noqa: ARG002  (any rows)
        """As `RowPart` says."""
        chosen, unusable = records.features[:, self.coordinates], ~records.usable[:, np.newaxis]
        total[0] += np.count_nonzero((np.abs(chosen) != ONE) & ~unusable, axis=0)
        positive = chosen.astype(np.int64) * records.labels[:, np.newaxis] > 0
        total[1] += np.count_nonzero(positive | unusable, axis=0)


def _check_coded(records: Records, coordinates: Sequence[int], sum_over_rows: SumOverRows) -> None:
    """Raise as `sensitive_positive` does for any of these coordinates, in one pass over the rows."""
    if coordinates and records.are_elsewhere:
        if records.coding != SIGNS or max(coordinates) >= records.d:
            sensitive_positive(records, max(coordinates))
        others = sum_over_rows(CodedRows(tuple(coordinates)), records)[0]
        if others.any():
            raise not_coded(coordinates[int(np.flatnonzero(others)[0])])
        return
    if not coordinates:
        return
    lowest, highest = min(coordinates), max(coordinates)
    places = [coordinate - lowest for coordinate in coordinates]
    for first in range(0, records.rows, BLOCK_ROWS):
        here = records.between(first, first + BLOCK_ROWS)
        fit = np.abs(here.features[:, lowest : highest + 1]) == ONE
        fit |= ~here.usable[:, np.newaxis]
        if highest >= records.d or not fit[:, places].all():
            for coordinate in coordinates:
                sensitive_positive(here, coordinate)


def signatures_of(
    design: RadoDesign, records: Records, rados: int, random: RandomSource, sum_over_rows: SumOverRows = sum_on_threads
) -> Signatures:
    """`rados` independent signatures, each uniform over the design's set, by Algorithm 2 if truncated.

    Records of a rounded feature must already be rounded. sum_over_rows: counts k. Raises PlanError,
    EmptyTruncationError, RejectionError, SupportError, ShapeError or SchemaError, all before the first draw.
    """
    check_drawable(design, rados)
    # The accounting of their marginals holds for -1/+1 only.
    _check_coded(records, design.coded, sum_over_rows)
    if design.support is not None:
        size = check_support(records.rows, design.support)
        return subsets(records.rows, np.full(rados, size, dtype=np.int64), random)
    admitted = Truncation.of(design, records.rows)
    if admitted is not None:
        coordinate = admitted.coordinate
        return admitted.draw(rados, random, lambda drawn: sum_over_rows(AgreeingRows(drawn, coordinate), records))
    return UniformSignatures(records.rows, rados, random.bytes(KEY_BYTES))


def whole(signatures: Signatures) -> NDArray[np.uint8]:
    """All bits at once: uint8 (n, ceil(m/8)). For simulation and tests."""
    blocks = [signatures.block(first) for first in range(0, signatures.rows, BLOCK_ROWS)]
    return np.ascontiguousarray(np.concatenate(blocks).T)
