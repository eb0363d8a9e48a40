"""A party's records and their edge vectors e = y x in fixed point (docs/protocol.md, section 6)."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dpcore.errors import PlanError, SchemaError, ShapeError
from dpcore.numbers.fixed_point import ONE, STORED_FRACTION_BITS
from dpcore.records.coding import SIGNS, Coding, Labels
from dpcore.records.elsewhere import FeaturesElsewhere
from dpcore.records.feature_map import FeatureMap
from dpcore.records.weight import WeightUnits, check_weights, weighted_sum

# Rows per block: a multiple of 8, so that a block of rows is a block of whole bytes of packed selection bits.
BLOCK_ROWS = 4096
CACHED_ROWS = 2048
"""Rows of a block whose copies in doubles stay in a core's cache, so that processes that share a core cost one another
less (benchmarks.processes)."""


@dataclass(frozen=True, eq=False)
class Records:
    """The encoded rows of one party. Valid from construction; the arrays are read-only views.

    Raises ShapeError if the shapes of the arrays do not match, SchemaError if a value is out of range.
    """

    # Not in the repr, which may appear in a log.
    features: NDArray[np.int32] = field(repr=False)
    """(m, d) int32 in units of 2^-30, within [-2^30, 2^30], including the bias (2^30). Or FeaturesElsewhere, which
    stands for them; the machines that read the rows then check their values."""
    labels: Labels = field(repr=False)
    """(m,), or more numbers a row: as `coding` says."""
    usable: NDArray[np.bool_] = field(repr=False)
    """(m,) bool; an unusable row has zero features, including the bias, and label 1, so that the row count never
    depends on values. Records that `only` and `labelled` made share the arrays of others: what they hold in rows that
    are not usable is not to be read. `edges` and predicates do not."""
    feature_map: FeatureMap | None = field(default=None, repr=False)
    """What `edges` applies to the features, block by block; d is then the map's."""
    coding: Coding = field(default=SIGNS, repr=False)
    """What the labels are."""
    weights: WeightUnits | None = field(default=None, repr=False)
    """(m,), what rows count in weighted sums (dpcore.records.weight); None if all count alike."""

    def __post_init__(self) -> None:
        self._check_shapes()
        self._check_values()
        for name in _arrays(self):
            view = getattr(self, name).view()
            view.flags.writeable = False
            object.__setattr__(self, name, view)

    @classmethod
    def known(cls, features: NDArray[np.int32]) -> "Records":
        """Rows without a label whose features were checked when they were first read. They are not checked again."""
        part = object.__new__(cls)
        labels, usable = np.ones(len(features), dtype=np.int8), np.ones(len(features), dtype=np.bool_)
        given = {"features": features, "labels": labels, "usable": usable, "feature_map": None, "coding": SIGNS}
        for name, value in {**given, "weights": None}.items():
            object.__setattr__(part, name, value)
        return part

    def _check_shapes(self) -> None:
        labels = len(self.coding.shape(0)), self.coding.dtype
        expected: tuple[tuple[str, int, DTypeLike], ...]
        expected = (("features", 2, np.int32), ("labels", *labels), ("usable", 1, np.bool_))
        for name, dimensions, kind in expected:
            array = getattr(self, name)
            if array.ndim != dimensions or array.dtype != kind:
                raise ShapeError(
                    f"{name} is {array.dtype} in {array.ndim} dimensions: give {np.dtype(kind).name} in {dimensions}"
                )
        rows = {self.features.shape[0], self.labels.shape[0], self.usable.shape[0]}
        if len(rows) != 1:
            raise ShapeError(f"features, labels and usable have {sorted(rows)} rows: give all three the same number")
        if self.labels.shape != self.coding.shape(self.rows):
            raise ShapeError(f"labels have shape {self.labels.shape}: give {self.coding.shape(self.rows)}")
        if 0 in self.features.shape:
            raise ShapeError("there is no row or no coordinate: give at least one of each")

    def _check_values(self) -> None:
        self.coding.check(self.labels)
        if self.weights is not None:
            check_weights(self.weights, self.rows)
        if self.are_elsewhere:
            return
        # Block by block, so that memory is read once and no large array is created.
        for first in range(0, self.rows, BLOCK_ROWS):
            rows = slice(first, first + BLOCK_ROWS)
            features, usable = self.features[rows], self.usable[rows]
            if int(features.max()) > ONE or int(features.min()) < -ONE:
                raise SchemaError("a feature is beyond [-1, 1]: scale it by the schema's bounds, or clip it")
            if not bool(usable.all()) and (features[~usable].any() or (self.labels[rows][~usable] != 1).any()):
                raise SchemaError("a row marked as not usable has values: give it zero features and label 1")

    @property
    def rows(self) -> int:
        """m, the number of rows, usable or not."""
        return int(self.features.shape[0])

    @property
    def are_elsewhere(self) -> bool:
        """Whether other machines read the features, and only sums over all of these rows can be had."""
        return isinstance(self.features, FeaturesElsewhere)

    @property
    def d(self) -> int:
        """Number of coordinates of a record's edge, including the bias."""
        return int(self.features.shape[1]) if self.feature_map is None else self.feature_map.d

    def between(self, first: int, stop: int) -> "Records":
        """The rows from `first` to before `stop`, or to the last, as views. They are not checked again."""
        part = object.__new__(Records)
        object.__setattr__(part, "weights", None)
        for name in ("features", "labels", "usable", *_weighted(self)):
            object.__setattr__(part, name, getattr(self, name)[first:stop])
        object.__setattr__(part, "feature_map", self.feature_map)
        object.__setattr__(part, "coding", self.coding)
        return part

    def at(self, places: NDArray[np.intp]) -> "Records":
        """The rows at these places, ascending: views if they are one run, else copies. They are not checked again.

        If the features are elsewhere: all rows, of which the others are not usable. Sums over them are the same.
        """
        if self.are_elsewhere:
            chosen = np.zeros(self.rows, dtype=np.bool_)
            chosen[places] = True
            return self.only(chosen)
        first, stop = int(places[0]), int(places[-1]) + 1
        if stop - first == len(places):
            return self.between(first, stop)
        part = object.__new__(Records)
        object.__setattr__(part, "weights", None)
        for name in ("features", "labels", "usable", *_weighted(self)):
            array = getattr(self, name)[places]
            array.flags.writeable = False
            object.__setattr__(part, name, array)
        object.__setattr__(part, "feature_map", self.feature_map)
        object.__setattr__(part, "coding", self.coding)
        return part

    def counted(self, factors: NDArray[np.int64]) -> "Records":
        """The same rows, whose features are elsewhere; sums over them count each row so often (m,)."""
        part = self.between(0, self.rows)
        assert isinstance(part.features, FeaturesElsewhere), "the features are elsewhere"
        object.__setattr__(part, "features", part.features.counted(factors))
        return part

    def holding(self, features: Any) -> "Records":
        """The same rows with other features, (m, d) int32: what NumPy can read as such. They are not checked."""
        part = self.between(0, self.rows)
        object.__setattr__(part, "features", features)
        return part

    def mapped(self, feature_map: FeatureMap) -> "Records":
        """The same rows under a feature map that fits their schema. Shares all arrays."""
        part = self.between(0, self.rows)
        object.__setattr__(part, "feature_map", feature_map)
        # So that the digest of the rows is computed once for all maps.
        part.__dict__["_unmapped"] = self._unmapped
        return part

    @cached_property
    def _unmapped(self) -> "Records":
        if self.feature_map is None:
            return self
        part = self.between(0, self.rows)
        object.__setattr__(part, "feature_map", None)
        return part

    def only(self, kept: NDArray[np.bool_]) -> "Records":
        """The same rows, of which those outside `kept` (m,) are not usable. It shares the arrays.

        Raises ShapeError if `kept` has another number of rows.
        """
        if kept.shape != self.usable.shape:
            raise ShapeError(f"{kept.shape[0]} row numbers for {self.rows} rows: number the same rows")
        part = self.between(0, self.rows)
        usable = self.usable & kept
        usable.flags.writeable = False
        object.__setattr__(part, "usable", usable)
        return part

    def labelled(self, labels: Labels, usable: NDArray[np.bool_], coding: Coding) -> "Records":
        """The same rows under another label, usable where both agree. It shares the features.

        Raises ShapeError if there is not a label for each row, SchemaError if one is out of range.
        """
        part = self.only(usable)
        if labels.shape != coding.shape(self.rows) or labels.dtype != coding.dtype:
            raise ShapeError(f"labels have shape {labels.shape}: give {coding.shape(self.rows)} {coding.dtype}")
        coding.check(labels)
        view = labels.view()
        view.flags.writeable = False
        object.__setattr__(part, "labels", view)
        object.__setattr__(part, "coding", coding)
        return part

    def zeroed(self) -> "Records":
        """The records with zero features and label 1 in every row that is not usable, as after loading."""
        if bool(self.usable.all()):
            return self
        features = np.where(self.usable[:, np.newaxis], self.features, np.int32(0))
        labels = self.labels.copy()
        labels[~self.usable] = 1
        return Records(features, labels, self.usable, self.feature_map, self.coding, self.weights)

    @property
    def unweighted(self) -> "Records":
        """The same rows, which all count alike. Shares the arrays."""
        if self.weights is None:
            return self
        part = self.between(0, self.rows)
        object.__setattr__(part, "weights", None)
        return part

    @cached_property
    def digest(self) -> bytes:
        """32 bytes over every value, the order of the rows, and the feature map if there is one: SHA-256."""
        if self.feature_map is not None:
            content = json.dumps(self.feature_map.to_list(), sort_keys=True).encode()
            return hashlib.sha256(b"rado.v1/mapped-records\0" + self._unmapped.digest + content).digest()
        digest = hashlib.sha256(b"rado.v1/records\0" + self.rows.to_bytes(8, "big") + self.d.to_bytes(8, "big"))
        digest.update(self.coding.digested)
        labels = self.coding.dtype.newbyteorder("<")
        for array, kind in ((self.features, "<i4"), (self.labels, labels), (self.usable, "u1")):
            digest.update(np.ascontiguousarray(array, dtype=kind).data)
        if self.weights is not None:
            digest.update(b"weights\0" + np.ascontiguousarray(self.weights, dtype="<u2").tobytes())
        return digest.digest()


def _arrays(records: Records) -> tuple[str, ...]:
    """The names of the arrays that this machine has."""
    features = () if records.are_elsewhere else ("features",)
    return (*features, "labels", "usable", *_weighted(records))


def _weighted(records: Records) -> tuple[str, ...]:
    return () if records.weights is None else ("weights",)


def weighted_sums(
    records: Records, sums: Callable[[Records], NDArray[np.int64]], length: int, *, is_weighted: bool
) -> NDArray[np.int64]:
    """The sums of all rows, (length,), times their weights if the query is about weighted rows.

    sums: those of some of the rows, all alike. Raises SchemaError if a weighted query meets rows without weights.
    """
    if not is_weighted:
        return sums(records.unweighted)
    if records.weights is None:
        raise SchemaError("the query is about weights and the records have none: load them with the query's schema")
    alike = records.unweighted
    return weighted_sum(records.weights, lambda places: sums(alike.at(places)), length)


def edges(
    records: Records, fraction_bits: int, sensitive: Sequence[int] = (), block_rows: int = BLOCK_ROWS
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """The edge vectors y x, block by block: (first row, int64 (block, d) in units of 2^-fraction_bits).

    Equals y trunc(v 2^f) of the original feature v exactly. A record keeps trunc(v 2^30); with N = 2^(30-f) and an
    integer q, q <= floor(v 2^30) / N iff q N <= v 2^30 iff q <= v 2^f for v >= 0, and truncation is odd. With a feature
    map, x are the map's integers.

    The sensitive coordinates of an unusable row are +1 (2^fraction_bits), so that every row adds a fair coin to each k.
    block_rows: a multiple of 8. Raises ShapeError, PlanError if fraction_bits is not in 0..30, SchemaError for records
    whose labels are no signs: see `labelled_rows`.
    """
    _check_signs(records)
    yield from _signed_rows(records, records.labels, fraction_bits, sensitive, block_rows)


def edges_in_doubles(records: Records, fraction_bits: int) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """The `edges` of CACHED_ROWS rows at a time in doubles, which hold them exactly. Raises as `edges`."""
    _check_signs(records)
    yield from _signed_rows(records, records.labels, fraction_bits, (), CACHED_ROWS, np.float64)


def _check_signs(records: Records) -> None:
    if records.coding != SIGNS:
        raise SchemaError(f"edges need labels that are signs, and the label of these records is {records.coding.words}")


def labelled_rows(
    records: Records, fraction_bits: int, block_rows: int = BLOCK_ROWS
) -> Iterator[tuple[int, NDArray[np.int64], Labels]]:
    """Records whose labels are no signs, block by block: (first row, x, labels).

    x: int64 (block, d) in units of 2^-fraction_bits, trunc(v 2^f) of each feature, as in `edges`; zero in rows that are
    not usable. labels: of the block, to be read in usable rows only. block_rows: a multiple of 8. Raises ShapeError,
    PlanError; SchemaError for two classes.
    """
    if records.coding == SIGNS:
        raise SchemaError("these records have labels of two classes: use their edges")
    positive = np.ones(records.rows, dtype=np.int8)
    for first, block in _signed_rows(records, positive, fraction_bits, block_rows=block_rows):
        yield first, block, records.labels[first : first + len(block)]


def _signed_rows(
    records: Records,
    signs: NDArray[np.int8],
    fraction_bits: int,
    sensitive: Sequence[int] = (),
    block_rows: int = BLOCK_ROWS,
    kind: type[np.int64 | np.float64] = np.int64,
) -> Iterator[tuple[int, NDArray[Any]]]:
    """The features times `signs`, (m,), as `edges` describes. kind: of the numbers."""
    if block_rows < 8 or block_rows % 8:
        raise ShapeError(f"block_rows is {block_rows}: give a positive multiple of 8")
    for coordinate in sensitive:
        _check_coordinate(records, coordinate)
    if sensitive and records.feature_map is not None:
        raise PlanError("a feature map has no sensitive coordinates: leave out one of the two")
    if not 0 <= fraction_bits <= STORED_FRACTION_BITS:
        raise PlanError(f"fraction_bits is {fraction_bits}: choose 0 to {STORED_FRACTION_BITS}")
    from dpcore.records.compiled import fill_edges  # noqa: PLC0415 - imports Numba

    coordinates = np.asarray(sensitive, dtype=np.int64)
    for first in range(0, records.rows, block_rows):
        rows = slice(first, first + block_rows)
        features = np.require(records.features[rows], requirements=("C", "A"))
        labels, usable = np.ascontiguousarray(signs[rows]), np.ascontiguousarray(records.usable[rows])
        if records.feature_map is not None:
            features = _mapped(features, records.feature_map)
        block: NDArray[Any] = np.empty(features.shape, dtype=kind)
        fill_edges(features, labels, usable, coordinates, fraction_bits, block)
        yield first, block


def _mapped(features: NDArray[np.int32], feature_map: FeatureMap) -> NDArray[np.int32]:
    from dpcore.records.compiled import mapped  # noqa: PLC0415 - imports Numba

    return mapped(features, feature_map)


def sensitive_positive(records: Records, sensitive: int) -> NDArray[np.bool_]:
    """For each row, whether the sensitive coordinate of its edge is +1: (m,). An unusable row counts as +1.

    Raises ShapeError if `sensitive` is not a coordinate, SchemaError if a usable row has a value other than -1 or +1
    there, or if labels are no signs: the exact accounting holds only for boolean coordinates.
    """
    if records.coding != SIGNS:
        raise SchemaError("signs of edges need labels that are signs, and those of these records are not")
    _check_coordinate(records, sensitive)
    column = records.features[:, sensitive]
    if not bool(((np.abs(column) == ONE) | ~records.usable).all()):
        raise not_coded(sensitive)
    return np.asarray((column.astype(np.int64) * records.labels > 0) | ~records.usable, dtype=np.bool_)


def not_coded(coordinate: int) -> SchemaError:
    """The error about a sensitive coordinate that a usable row has another value of than -1 and +1."""
    return SchemaError(f"coordinate {coordinate} is not coded -1/+1: name a boolean or threshold feature as sensitive")


def _check_coordinate(records: Records, coordinate: int) -> None:
    if not 0 <= coordinate < records.d:
        raise ShapeError(f"coordinate {coordinate} does not exist: records have coordinates 0 to {records.d - 1}")
