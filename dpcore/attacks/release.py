"""The releases that attacks are played on, and the tables that they are played over.

The rehearsal is the case that differential privacy assumes: the adversary has all other rows of the cohort, so it
subtracts what other parties added, and the noise that is left is what the honest parties added. Here one honest party
adds all of it.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpcore.attacks.outcome import NO_PROMISE, Promise
from dpcore.errors import ShapeError
from dpcore.numbers.fixed_point import ONE
from dpcore.queries.moments import MomentsQuery
from dpcore.queries.rados import RadosQuery
from dpcore.rados.signatures import signatures_of, whole
from dpcore.randomness.sources import RandomSource
from dpcore.records.clipping import Clip
from dpcore.records.computation import SECRET_BYTES, Computation, PartySecret
from dpcore.records.records import Records, edges

Integers: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]

_NO_SCHEMA = bytes(32)
_RIDGE = 1e-9


@dataclass(frozen=True, eq=False)
class Sums:
    """Estimates of a table's sums from a release, in real units, with their standard deviations."""

    edges: Floats
    """sum_i e_i: (d,)."""
    products: Floats
    """sum_i e_i e_i^T: (d, d)."""
    edge_deviations: Floats
    product_deviations: Floats


@dataclass(frozen=True)
class Release(ABC):
    """A release as a query would ask for it, its noise included."""

    name: str
    """The design, for people."""
    fraction_bits: int
    promise: Promise = NO_PROMISE
    """For one replaced row."""
    cell_promise: Promise = NO_PROMISE
    """For the one cell that an adversary wonders about."""

    @property
    @abstractmethod
    def rados(self) -> int | None:
        """n; None for a release without rados."""

    @property
    def is_of_one_column(self) -> bool:
        """Whether the design's epsilon is for one column's released values alone."""
        return False

    @abstractmethod
    def drawn(self, records: Records, random: RandomSource) -> Integers:
        """A fresh release in integer units, as a party computes it: (n, d), or (length,) without rados."""

    @abstractmethod
    def noised(self, records: Records) -> tuple[int, ...]:
        """The coordinates whose released values have noise."""

    @abstractmethod
    def edges(self, records: Records) -> Integers:
        """The edges as the release sums them, clipped, without noise: (m, d) in integer units."""

    @abstractmethod
    def summary(self, total: Integers) -> Floats:
        """The numbers of a release that linear statistics are of."""

    @abstractmethod
    def expected(self, records: Records) -> Floats:
        """The expectation of the summary over a table; of a model, its value without noise."""

    @abstractmethod
    def covariance(self, records: Records) -> Floats | None:
        """The covariance of the summary over a table; None if all of its values vary alike."""

    @abstractmethod
    def sums(self, total: Integers, rows: int) -> Sums | None:
        """What a release says about the sums over its `rows` rows; None if it says too little."""

    @abstractmethod
    def by_row(self, records: Records) -> Floats:
        """What each row adds to the expectation, about: (m, width). Tells which rows differ most."""


def _clipped_edges(records: Records, fraction_bits: int, coded: Sequence[int], clip: Clip | None) -> Integers:
    from dpcore.records.compiled import clip_in_place  # noqa: PLC0415  (numba takes half a second to import)

    blocks = []
    for _, block in edges(records, fraction_bits, coded):
        if clip is not None:
            clip_in_place(clip, block, fraction_bits)
        blocks.append(block)
    return np.concatenate(blocks)


@dataclass(frozen=True, kw_only=True)
class RadosRelease(Release):
    """Rados of a design."""

    kind: RadosQuery

    @property
    def rados(self) -> int:
        """N."""
        return self.kind.rados

    @property
    def is_of_noised_rows(self) -> bool:
        """Whether each row's edge has its own noise, the same in all rados."""
        return self.kind.design.edge_noise > 0

    @property
    def is_of_fixed_size(self) -> bool:
        """Whether each rado takes a fixed number of rows."""
        return self.kind.design.support is not None

    @property
    def is_of_one_column(self) -> bool:
        """See `Release`."""
        return self.kind.scope == "marginal"

    def drawn(self, records: Records, random: RandomSource) -> Integers:
        """See `Release`."""
        secret = PartySecret(random.bytes(SECRET_BYTES), _NO_SCHEMA)
        return self.kind.integers(self.kind.contribution(records, self.fraction_bits, Computation(random, secret)))

    def drawn_with_signatures(self, records: Records, random: RandomSource) -> tuple[NDArray[np.bool_], Integers]:
        """A fresh release with the signatures behind it: bool (n, m), int64 (n, d)."""
        secret = PartySecret(random.bytes(SECRET_BYTES), _NO_SCHEMA)
        prepared = self.kind.prepare(records, self.fraction_bits, secret)
        packed = whole(signatures_of(self.kind.design, prepared.records, self.rados, random))
        sums = prepared.sums_of(packed)
        self.kind.add_noise(sums, random)
        return np.unpackbits(packed, axis=1, count=records.rows, bitorder="little").astype(np.bool_), sums

    def noised(self, records: Records) -> tuple[int, ...]:
        """See `Release`."""
        known = self.kind.distribution(records.d, (records.rows,), self.fraction_bits)
        variance = np.zeros(records.d)
        for each in (known.rado_noise, known.edge_noise):
            if each is not None:
                variance += each
        return tuple(np.flatnonzero(variance).tolist())

    def edges(self, records: Records) -> Integers:
        """See `Release`."""
        return _clipped_edges(records, self.fraction_bits, self.kind.design.coded, self.kind.design.clipping)

    def summary(self, total: Integers) -> Floats:
        """The mean rado."""
        return np.asarray(total.mean(axis=0), dtype=np.float64)

    def expected(self, records: Records) -> Floats:
        """See `Release`: p sum_i e_i."""
        known = self.kind.distribution(records.d, (records.rows,), self.fraction_bits)
        return np.asarray(known.inclusion * self.edges(records).sum(axis=0), dtype=np.float64)

    def covariance(self, records: Records) -> Floats:
        """The mean rado's, from the coins and the noise."""
        m, d = records.rows, records.d
        known = self.kind.distribution(d, (m,), self.fraction_bits)
        share, unit = float(known.inclusion), 4.0**self.fraction_bits
        rows = self.edges(records).astype(np.float64)
        spread = share * (1 - share)
        if known.fixed_support:
            rows, spread = rows - rows.mean(axis=0), spread * m / max(m - 1, 1)
        found = spread * rows.T @ rows
        if known.rado_noise is not None:
            found += np.diag(known.rado_noise * unit)
        found /= self.rados
        if known.edge_noise is not None:
            # The table's noise is the same in all rados: its mean over them does not shrink.
            found += np.diag(known.edge_noise * unit) * m * (share**2 + share * (1 - share) / self.rados)
        return np.asarray(found + np.eye(d) * (_RIDGE * np.trace(found) / d + 1e-12), dtype=np.float64)

    def sums(self, total: Integers, rows: int) -> Sums:
        """See `Release`: from the rados' mean and covariance."""
        real = total * 2.0**-self.fraction_bits
        n, d = real.shape
        known = self.kind.distribution(d, (rows,), self.fraction_bits)
        share, nothing = float(known.inclusion), np.zeros(d)
        spread = share * (1 - share)
        mean = real.mean(axis=0)
        varying = (real - mean).T @ (real - mean) / max(n - 1, 1)
        edges, products = mean / share, varying - np.diag(nothing if known.rado_noise is None else known.rado_noise)
        if known.fixed_support:
            products = products * (rows - 1) / rows
        products = products / spread
        if known.fixed_support:
            products += np.outer(edges, edges) / rows
        products -= rows * np.diag(nothing if known.edge_noise is None else known.edge_noise)
        variances = np.diag(varying)
        deviations = np.sqrt((np.outer(variances, variances) + varying**2) / n) / spread
        return Sums(edges, products, np.sqrt(variances / n) / share, deviations)

    def by_row(self, records: Records) -> Floats:
        """See `Release`."""
        return self.edges(records).astype(np.float64)


@dataclass(frozen=True, kw_only=True)
class MomentsRelease(Release):
    """Moments with noise."""

    kind: MomentsQuery

    @property
    def rados(self) -> None:
        """None."""
        return

    def drawn(self, records: Records, random: RandomSource) -> Integers:
        """See `Release`."""
        return self.kind.contribution(records, self.fraction_bits, Computation(random))

    def noised(self, records: Records) -> tuple[int, ...]:
        """See `Release`."""
        return tuple(range(records.d))

    def edges(self, records: Records) -> Integers:
        """See `Release`."""
        return _clipped_edges(records, self.fraction_bits, (), self.kind.clip)

    def summary(self, total: Integers) -> Floats:
        """All values."""
        return total.astype(np.float64)

    def expected(self, records: Records) -> Floats:
        """See `Release`."""
        return self.summary(self.kind.sums(records, self.fraction_bits))

    def covariance(self, records: Records) -> None:
        """None: all values have the same noise."""

    def sums(self, total: Integers, rows: int) -> Sums | None:
        """See `Release`."""
        known = self.kind.moments(total, self.fraction_bits, rows=rows, parties=1)
        return Sums(
            known.edge_sum, known.product_sum, np.full(len(known.edge_sum), known.edge_noise), known.product_noise
        )

    def by_row(self, records: Records) -> Floats:
        """See `Release`."""
        rows = self.edges(records).astype(np.float64)
        places = np.triu_indices(rows.shape[1])
        return np.column_stack([rows * self.kind.edge_multiplier, 6 * rows[:, places[0]] * rows[:, places[1]]])


@dataclass(frozen=True, kw_only=True)
class ModelRelease(MomentsRelease):
    """A linear classifier that is computed from moments with noise, and is all that is published."""

    def summary(self, total: Integers) -> Floats:
        """Theta of length 1: the least squares of the labels, where the products' eigenvalues are large enough."""
        edge_sum, products = self.kind.decode(total, self.fraction_bits)
        if self.kind.clip.bias:
            # The bias's square is not released: it is the number of rows, about the largest other square.
            products[-1, -1] = max(float(np.diag(products).max()), 1.0)
        values, vectors = np.linalg.eigh(products)
        floor = max(float(values.max()) * 1e-3, 1e-9)
        theta = vectors @ ((vectors.T @ edge_sum) / np.maximum(values, floor))
        return np.asarray(theta / max(float(np.linalg.norm(theta)), 1e-300), dtype=np.float64)

    def sums(self, total: Integers, rows: int) -> None:
        """None: a model has d numbers."""


@dataclass(frozen=True, eq=False)
class Table:
    """The rows that attacks are played over, all usable."""

    records: Records
    cell: int
    """The coordinate that an adversary who knows the rest wonders about."""
    cell_name: str

    @classmethod
    def of(cls, records: Records, cell: int, cell_name: str) -> "Table":
        """The usable rows of a party."""
        return cls(chosen(records, np.flatnonzero(records.usable)), cell, cell_name)

    @property
    def rows(self) -> int:
        """M."""
        return self.records.rows

    def split(self, inside: int, generator: np.random.Generator) -> tuple[Records, Records]:
        """A random table of `inside` rows, and the other rows. Raises ShapeError if there are none."""
        if not 1 <= inside < self.rows:
            raise ShapeError(f"{inside} of {self.rows} rows: leave at least one row outside")
        order = generator.permutation(self.rows)
        return chosen(self.records, order[:inside]), chosen(self.records, order[inside:])

    @cached_property
    def rank(self) -> int:
        """The rank of the edges."""
        return int(np.linalg.matrix_rank(self.records.features.astype(np.float64)))


def chosen(records: Records, rows: NDArray[np.intp]) -> Records:
    """These rows of records, copied."""
    return Records(records.features[rows], records.labels[rows], records.usable[rows], records.feature_map)


def with_cell(records: Records, row: int, coordinate: int, sign: int) -> Records:
    """The same records with one cell at an end of its range: `sign` times 1, as the edge's coordinate."""
    features = records.features.copy()
    features[row, coordinate] = sign * int(records.labels[row]) * ONE
    return Records(features, records.labels, records.usable, records.feature_map)


def generator_of(random: RandomSource) -> np.random.Generator:
    """A generator for what is no noise: which rows, where a search starts."""
    return np.random.default_rng(np.frombuffer(random.bytes(32), dtype=np.uint32))
