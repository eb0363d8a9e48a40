"""A batch of predicates compiled to a list of steps over a block of rows. No step is computed twice.

Complements of fractions are pushed down to the affine forms: 1 - min(1, max(0, a / s)) is min(1, max(0, (s - a) / s)).
Then only the forms are rounded down, because minimum and maximum commute with rounding down. Complements do not.

A real feature v is compared as it is stored, k(v) = trunc(2^30 e(v)), where e(v) are the double operations of
`dpcore.records.encoding`: v >= c is k(v) >= k(c) and v > c is k(v) > k(c).

Neither e nor trunc ever decreases, so v >= c implies k(v) >= k(c). The converse may fail only if v is within 2^-29 of
the feature's range from c.

Every stored value is within the feature's [lower, upper]; a bound outside is compared as an exact number.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, reduce
from typing import Any, NamedTuple, cast, get_args

import numpy as np
from numpy.typing import NDArray

from dpcore.numbers.fixed_point import STORED_FRACTION_BITS
from dpcore.predicates.count_terms import deviance_bound, deviance_terms, exposures, gain_bound, gain_terms
from dpcore.predicates.expressions import (
    Above,
    Affine,
    And,
    AtLeast,
    Clipped,
    Constant,
    CountDeviance,
    CountGain,
    CountShare,
    Equals,
    ErrorSort,
    Flag,
    FormCoordinates,
    LabelAbove,
    LabelAtLeast,
    LabelClass,
    LabelError,
    LabelExposure,
    LabelIs,
    LabelShare,
    LabelSquare,
    NonNegative,
    Not,
    Or,
    Predicate,
)
from dpcore.records.coding import OFFSET_BITS
from dpcore.records.feature_map import FeatureMap
from dpcore.records.features import Bound, Classes, Count, EventTime, RealFeature, measured
from dpcore.records.records import BLOCK_ROWS, Records
from dpcore.records.schema import Schema

# A block of a party's rows, and the exact operations on all its rows at once. A result is bits (64 rows in a word),
# values (int32 in units of 2^-f) or sums of weighted coordinates (int64 in units of 2^-30, below 2^62).


WORD_ROWS = 64

Bits = NDArray[np.uint64]
Values = NDArray[np.int32]
Sums = NDArray[np.int64]
Result = Bits | Values | Sums


class Block:
    """Up to `rows` consecutive rows of records, starting at `first`.

    columns: the needed coordinates, in the numbering's order. fraction_bits: f, 0 to 30. Results of a row that is not
    usable are undefined, as are bits beyond the last row, except in `usable_bits`.
    """

    def __init__(self, records: Records, first: int, rows: int, columns: Sequence[int], fraction_bits: int) -> None:
        from dpcore.predicates.compiled import shared_bits  # noqa: PLC0415 - imports Numba

        self._shared_bits = shared_bits
        self.part = slice(first, min(first + rows, records.rows))
        self._columns = _columns(records, self.part, columns)
        self._coding, self._whole_labels = records.coding, records.labels[self.part]
        self._labels = self._coding.values(self._whole_labels)
        self.usable = records.usable[self.part]
        self.rows = len(self._labels)
        self._fraction_bits = fraction_bits
        self.usable_bits = self.pack(self.usable)

    @property
    def one(self) -> int:
        """The value 1, in units of 2^-f."""
        return 1 << self._fraction_bits

    def pack(self, mask: NDArray[np.bool_]) -> Bits:
        """The mask as bits: row i is bit i mod 64 of word i div 64. Bits beyond the last row are 0."""
        packed = np.packbits(mask, bitorder="little")
        if missing := -len(packed) % (WORD_ROWS // 8):
            packed = np.append(packed, np.zeros(missing, dtype=np.uint8))
        return packed.view("<u8")

    def unpack(self, bits: Result) -> NDArray[np.bool_]:
        """The rows' bits as a mask."""
        return np.unpackbits(bits.view(np.uint8), count=self.rows, bitorder="little").view(np.bool_)

    def total(self, result: Result) -> int:
        """The sum of bits or values over usable rows, in units of 2^-f."""
        if result.dtype.kind == "u":
            return self._shared_bits(cast("Bits", result), self.usable_bits) * self.one
        return int((result * self.usable).sum(dtype=np.int64))

    def each(self, result: Result) -> NDArray[np.int64]:
        """Bits or values in units of 2^-f; 0 in rows that are not usable."""
        shown = self.unpack(result) * np.int64(self.one) if result.dtype.kind == "u" else result
        return shown.astype(np.int64) * self.usable

    def true(self) -> Bits:
        """1 in every row."""
        return np.full(-(-self.rows // WORD_ROWS), ~np.uint64(0), dtype="<u8")

    def positive(self) -> Bits:
        """The label is +1; of a time to an event, the event happened within the horizon."""
        intervals = self._coding.intervals
        return self.pack(self._labels < intervals if intervals else self._labels > 0)

    def of_class(self, code: int) -> Bits:
        """The label has this code, of several classes."""
        return self.pack(self._labels == code)

    def label_at_least(self, least: int) -> Bits:
        """A label that is a number or a count is >= least; both as stored."""
        return self.pack(self._labels >= least)

    def followed_beyond(self, interval: int) -> Bits:
        """The time to the event, or to when the row was censored, is after the end of this interval."""
        intervals = self._coding.intervals
        happened = (self._labels > interval) & (self._labels < intervals)
        return self.pack(happened | (self._labels > intervals + interval))

    def label_share(self, sign: int) -> Values:
        """floor(2^f s) of the label's place s between its bounds, from 0 to 1; sign -1 for 1 - s."""
        labels = self._labels.astype(np.int64)
        if self._coding.kind == "count":
            counted = labels if sign > 0 else self._coding.size - labels
            return ((counted << self._fraction_bits) // self._coding.size).astype(np.int32)
        # (1 + t) / 2 2^f = (labels + 2^30) 2^(f - 31).
        shift = STORED_FRACTION_BITS + 1 - self._fraction_bits
        return ((sign * labels + (1 << STORED_FRACTION_BITS)) >> shift).astype(np.int32)

    def label_square(self, sign: int) -> Values:
        """floor(2^f t^2) of a label's coordinate t; sign -1 for 1 - t^2. Exact: below 2^62 before the division."""
        labels, f = self._labels.astype(np.int64), self._fraction_bits
        if self._coding.kind == "count":
            size = self._coding.size
            square, whole = (2 * labels - size) ** 2, size * size
            counted = square if sign > 0 else whole - square
            # floor(2^f a / b), in two steps of bits, since a is below 2^40: q 2^h + floor(r 2^h / b).
            high = f // 2
            quotient, rest = np.divmod(counted << high, whole)
            low = f - high
            return ((quotient << low) + (rest << low) // whole).astype(np.int32)
        square, whole = labels * labels, 1 << 2 * STORED_FRACTION_BITS
        return ((square if sign > 0 else whole - square) >> 2 * STORED_FRACTION_BITS - f).astype(np.int32)

    def _exposures(self) -> NDArray[np.float64]:
        return np.exp(np.ldexp(self._coding.offsets(self._whole_labels).astype(np.float64), -OFFSET_BITS))

    def _fractions(self, shares: NDArray[np.float64], sign: int) -> Values:
        """floor(2^f v) of shares v, or of 1 - v if the sign is -1. They are held to [0, 1], whatever was computed."""
        inside = np.clip(shares if sign > 0 else 1.0 - shares, 0.0, 1.0)
        return np.floor(np.ldexp(inside, self._fraction_bits)).astype(np.int32)

    def label_exposure(self, sign: int, *largest: int) -> Values:
        """The exposure divided by its upper bound, the ratio `largest`; sign -1 for 1 less it."""
        return self._fractions(self._exposures() / float(Fraction(*largest)), sign)

    def _counts(self, most: int) -> NDArray[np.float64]:
        return np.minimum(self._labels, most).astype(np.float64)

    def count_share(self, sign: int, most: int) -> Values:
        """The count's share of a bound; sign -1 for 1 less it."""
        return self._fractions(self._counts(most) / most, sign)

    def count_deviance(self, sign: int, most: int, *numbers: int) -> Values:
        """Deviance terms from one rate. numbers: ratios of its logarithm and of what divides the terms."""
        centre, bound = _ratios(numbers)
        terms = deviance_terms(self._counts(most), self._exposures(), centre)
        return self._fractions(terms / float(bound), sign)

    def count_gain(self, sign: int, most: int, constant: int, scale: int, *rest: Any) -> Values:
        """Gains, or losses, divided by a bound. rest: ratios of centre, reach and bound (negative for losses), sums."""
        *numbers, sums = rest
        centre, reach, bound = _ratios(numbers)
        places = self._place_of_form(constant, scale, sums)
        scores = float(centre) + float(reach) * (2.0 * places - 1.0)
        gains = gain_terms(self._counts(most), self._exposures(), scores, centre)
        return self._fractions(np.maximum(gains / float(bound), 0.0), sign)

    def label_error(self, sort: int, sign: int, constant: int, scale: int, *rest: Any) -> Result:
        """An error of this place among `ErrorSort`, or 1 less it. rest: the ratio of the reach, sums."""
        *numbers, sums = rest
        (reach,) = map(float, _ratios(numbers))
        predicted = 2.0 * self._place_of_form(constant, scale, sums) - 1.0
        off = np.ldexp(self._coding.scaled(self._whole_labels, STORED_FRACTION_BITS), -STORED_FRACTION_BITS) - predicted
        match get_args(ErrorSort)[sort]:
            case "over":
                return self._fractions(np.clip(off / reach, 0.0, 1.0), sign)
            case "under":
                return self._fractions(np.clip(-off / reach, 0.0, 1.0), sign)
            case "square":
                return self._fractions(np.minimum(np.square(off / reach), 1.0), sign)
            case _:
                return self.pack(np.abs(off) > reach)

    def _place_of_form(self, constant: int, scale: int, sums: Sums) -> NDArray[np.float64]:
        """A form divided by its scale, from 0 to 1."""
        places: NDArray[np.float64] = np.clip(
            (np.ldexp(sums.astype(np.float64), -STORED_FRACTION_BITS) + constant) / scale, 0.0, 1.0
        )
        return places

    def column_at_least(self, column: int, least: int) -> Bits:
        """A coordinate is >= least; both in units of 2^-30."""
        return self.pack(self._columns[column] >= least)

    def complement(self, bits: Bits) -> Bits:
        """1 - bits."""
        return ~bits

    def both(self, first: Bits, second: Bits) -> Bits:
        """The minimum of two bits."""
        return first & second

    def either(self, first: Bits, second: Bits) -> Bits:
        """The maximum of two bits."""
        return first | second

    def weighted(self, *weights: int) -> Sums:
        """The sum of weight times coordinate. `weights` alternates between coordinate and weight."""
        sums = np.zeros(self.rows, dtype=np.int64)
        for column, weight in zip(weights[::2], weights[1::2], strict=True):
            sums += self._columns[column] * np.int64(weight)
        return sums

    def sum_at_least(self, least: int, sums: Sums) -> Bits:
        """A sum is >= least; both in units of 2^-30."""
        return self.pack(sums >= least)

    def clipped(self, sign: int, constant: int, scale: int, sums: Sums) -> Values:
        """floor(2^f min(1, max(0, (sign sum + constant) / scale))), sign 1 or -1; below 2^33 before scaling."""
        shift = STORED_FRACTION_BITS - self._fraction_bits
        shifted = sign * sums + (constant << STORED_FRACTION_BITS)
        bounded = np.clip(shifted, 0, scale << STORED_FRACTION_BITS)
        # floor(v 2^f / (scale 2^30)) = floor(v / (scale 2^(30 - f))).
        return (bounded // (scale << shift)).astype(np.int32)

    def lesser(self, first: Values, second: Values) -> Values:
        """The minimum of two values."""
        return np.minimum(first, second)

    def greater(self, first: Values, second: Values) -> Values:
        """The maximum of two values."""
        return np.maximum(first, second)

    def where(self, bits: Bits, values: Values) -> Values:
        """The minimum of bits and values: the value where the bit is 1, else 0."""
        return values * self.unpack(bits)

    def unless(self, bits: Bits, values: Values) -> Values:
        """The maximum of bits and values: 2^f where the bit is 1, else the value."""
        return np.where(self.unpack(bits), np.int32(self.one), values)


def _ratios(numbers: Sequence[int]) -> list[Fraction]:
    """Numerators and denominators, in turn, as numbers."""
    return [Fraction(*pair) for pair in zip(numbers[::2], numbers[1::2], strict=True)]


def _columns(records: Records, part: slice, columns: Sequence[int]) -> NDArray[np.int32]:
    """These coordinates of some rows, each one contiguous, since operations read whole columns: (len(columns), rows).

    In units of 2^-30. Rows are turned in runs that stay in a core's cache.
    """
    found = np.empty((len(columns), part.stop - part.start), dtype=np.int32)
    for first in range(part.start, part.stop, BLOCK_ROWS):
        last = min(first + BLOCK_ROWS, part.stop)
        found[:, first - part.start : last - part.start] = _coordinates(records, slice(first, last), columns)
    return found


def _coordinates(records: Records, part: slice, columns: Sequence[int]) -> NDArray[np.int32]:
    features, width = records.features[part], records.features.shape[1]
    if all(column < width for column in columns):
        return features.T[list(columns)]
    assert records.feature_map is not None, "only a map has coordinates after the schema's"
    from dpcore.records.compiled import mapped  # noqa: PLC0415 - imports Numba

    terms = mapped(np.require(features, requirements=("C", "A")), records.feature_map)
    return np.stack([features[:, column] if column < width else terms[:, column - width] for column in columns])


_BITS, _VALUES, _SUMS = 1, 32, 64
_ROW_BITS: dict[Callable[..., Result], int] = {
    Block.weighted: _SUMS,
    **dict.fromkeys(
        (Block.clipped, Block.label_share, Block.label_square, Block.lesser, Block.greater, Block.where, Block.unless),
        _VALUES,
    ),
    # These compute in doubles.
    **dict.fromkeys(
        (Block.label_exposure, Block.count_share, Block.count_deviance, Block.count_gain, Block.label_error), 2 * _SUMS
    ),
}


class Step(NamedTuple):
    """operation(block, *numbers, *results of the steps at `reads`). The operation is a method of Block."""

    operation: Callable[..., Result]
    numbers: tuple[int, ...] = ()
    reads: tuple[int, ...] = ()


@dataclass(frozen=True)
class Program:
    """Steps, each of which reads earlier ones only."""

    steps: tuple[Step, ...]
    roots: tuple[int, ...]
    """For each predicate, the index of its step."""
    columns: tuple[int, ...]
    """The coordinates that are read: the schema's by their places, then a feature map's after all of the schema's."""

    def run(self, block: Block) -> Iterator[tuple[list[int], Result]]:
        """Yield (indices of the predicates with this result, result). A result is freed after its last use."""
        known: list[Result | None] = [None] * len(self.steps)
        for place, ((operation, numbers, reads), asking, last_reads) in enumerate(self._order):
            result = operation(block, *numbers, *[known[read] for read in reads])
            known[place] = result
            if asking:
                yield asking, result
            for read in last_reads:
                known[read] = None

    @cached_property
    def row_bits(self) -> int:
        """The most bits for a row that results take at any time."""
        now = most = 0
        for place, step in enumerate(self.steps):
            now += _ROW_BITS.get(step.operation, _BITS)
            most = max(most, now)
            now -= sum(_ROW_BITS.get(self.steps[read].operation, _BITS) for read in self._last_reads[place])
        return most

    @cached_property
    def _order(self) -> list[tuple[Step, list[int], list[int]]]:
        """Each step, the predicates whose value it is, and the steps that no later one reads."""
        asking: list[list[int]] = [[] for _ in self.steps]
        for number, place in enumerate(self.roots):
            asking[place].append(number)
        return list(zip(self.steps, asking, self._last_reads, strict=True))

    @cached_property
    def _last_reads(self) -> list[list[int]]:
        """For each step, the indices of the steps that no later step reads."""
        last = list(range(len(self.steps)))
        for place, step in enumerate(self.steps):
            for read in step.reads:
                last[read] = place
        dead: list[list[int]] = [[] for _ in self.steps]
        for place, reader in enumerate(last):
            dead[reader].append(place)
        return dead


def compiled(predicates: Sequence[Predicate], schema: Schema, feature_map: FeatureMap | None = None) -> Program:
    """The program of predicates that have passed `check`."""
    compiler = _Compiler(schema, feature_map)
    roots = tuple(compiler.root(predicate) for predicate in predicates)
    return _in_order_of_need(Program(tuple(compiler.places), roots, tuple(compiler.columns)))


def _in_order_of_need(program: Program) -> Program:
    """The same steps, each just before the first that reads it, so that few parts of a conjunction are kept at once.

    Predicates on one column follow one another, so that it stays in a core's cache.
    """
    places: dict[int, int] = {}
    for root in sorted(program.roots, key=_first_columns(program).__getitem__):
        waiting = [root]
        while waiting:
            place = waiting[-1]
            missing = [read for read in program.steps[place].reads if read not in places]
            # Reversed, so that the first to be read is next on the stack.
            waiting.extend(reversed(missing))
            if not missing:
                places.setdefault(waiting.pop(), len(places))
    steps = [step._replace(reads=tuple(places[read] for read in step.reads))
             for step in (program.steps[place] for place in places)]  # fmt: skip
    return Program(tuple(steps), tuple(places[root] for root in program.roots), program.columns)


def _first_columns(program: Program) -> list[int]:
    """For each step, the first of the columns that it or a step below it reads; after all of them if it reads none."""
    found: list[int] = []
    for operation, numbers, reads in program.steps:
        own = numbers[:1] if operation is Block.column_at_least else numbers[::2] if operation is Block.weighted else ()
        found.append(min((*own, *(found[read] for read in reads)), default=len(program.columns)))
    return found


class _Compiler:
    def __init__(self, schema: Schema, feature_map: FeatureMap | None) -> None:
        self._schema = schema
        self._of_forms = FormCoordinates(schema, feature_map)
        self._first_of_forms = 0 if feature_map is None else schema.d
        self._reals = {feature.name: feature for feature in schema.numbers}
        self._known: dict[tuple[int, bool], int] = {}
        self.places: dict[Step, int] = {}
        self.columns: dict[int, int] = {}

    def root(self, predicate: Predicate) -> int:
        return self._bits(predicate) if predicate.boolean else self._values(predicate, negated=False)

    def _place(
        self, operation: Callable[..., Result], numbers: tuple[int, ...] = (), reads: tuple[int, ...] = ()
    ) -> int:
        return self.places.setdefault(Step(operation, numbers, reads), len(self.places))

    def _column(self, coordinate: str) -> int:
        return self.columns.setdefault(self._schema.coordinate(coordinate), len(self.columns))

    def _column_of_form(self, coordinate: str) -> int:
        place = self._first_of_forms + self._of_forms.place(coordinate)
        return self.columns.setdefault(place, len(self.columns))

    def _bits(self, predicate: Predicate) -> int:
        """The step of a Boolean predicate."""
        key = id(predicate), False
        if key not in self._known:
            self._known[key] = self._new_bits(predicate)
        return self._known[key]

    def _new_bits(self, predicate: Predicate) -> int:  # noqa: C901, PLR0911, PLR0912 - one for each kind
        match predicate:
            case Constant(value):
                return self._constant(value=value)
            case LabelIs(positive):
                place = self._place(Block.positive)
                return place if positive else self._place(Block.complement, reads=(place,))
            case LabelClass(value):
                label_of_classes = self._schema.label
                assert isinstance(label_of_classes, Classes), "predicates are checked against the schema"
                return self._place(Block.of_class, (label_of_classes.places[value],))
            case LabelAbove(bound) if isinstance(self._schema.label, EventTime):
                return self._place(Block.followed_beyond, (self._schema.label.interval(bound),))
            case LabelAtLeast(bound) | LabelAbove(bound):
                label = measured(self._schema.label, "a comparison of the label with a number")
                least = label.least_stored(bound, above=isinstance(predicate, LabelAbove))
                return self._place(Block.label_at_least, (least,))
            case Flag(feature):
                return self._place(Block.column_at_least, (self._column(feature), 1))
            case Equals(feature, value):
                return self._place(Block.column_at_least, (self._column(f"{feature}={value}"), 1))
            case AtLeast(feature, bound) | Above(feature, bound):
                return self._compared(feature, bound, above=isinstance(predicate, Above))
            case LabelError():
                return self._label_error(predicate, 1)
            case NonNegative(form):
                return self._place(Block.sum_at_least, (-form.constant << STORED_FRACTION_BITS,), (self._sum(form),))
            case Not(part):
                return self._place(Block.complement, reads=(self._bits(part),))
            case And(parts):
                return self._joined(Block.both, [self._bits(part) for part in parts])
            case Or(parts):
                return self._joined(Block.either, [self._bits(part) for part in parts])
            case _:
                raise AssertionError(predicate)

    def _values(self, predicate: Predicate, *, negated: bool) -> int:
        """The step of a predicate that is not Boolean, or of its complement."""
        key = id(predicate), negated
        if key not in self._known:
            self._known[key] = self._new_values(predicate, negated=negated)
        return self._known[key]

    def _new_values(self, predicate: Predicate, *, negated: bool) -> int:  # noqa: PLR0911 - one for each kind
        match predicate:
            case LabelExposure() | CountShare():
                return self._count_term(predicate, -1 if negated else 1)
            case LabelError():
                return self._label_error(predicate, -1 if negated else 1)
            case LabelSquare():
                return self._place(Block.label_square, (-1 if negated else 1,))
            case LabelShare():
                return self._place(Block.label_share, (-1 if negated else 1,))
            case Clipped(form, scale):
                sign, constant = (-1, scale - form.constant) if negated else (1, form.constant)
                return self._place(Block.clipped, (sign, constant, scale), (self._sum(form),))
            case Not(part):
                return self._values(part, negated=not negated)
            case And(parts) | Or(parts):
                least = isinstance(predicate, And) != negated
                return self._mixed(parts, least=least, negated=negated)
            case _:
                raise AssertionError(predicate)

    def _count_term(self, term: LabelExposure | CountShare, sign: int) -> int:
        label = self._schema.label
        assert isinstance(label, Count), "check refuses other labels"
        largest = exposures(label)[1]
        if isinstance(term, LabelExposure):
            return self._place(Block.label_exposure, (sign, *largest.as_integer_ratio()))
        if not isinstance(term, CountDeviance):
            return self._place(Block.count_share, (sign, term.most))
        if not isinstance(term, CountGain):
            bound = deviance_bound(label, term.centre, term.most)
            numbers = (sign, term.most, *term.centre.as_integer_ratio(), *bound.as_integer_ratio())
            return self._place(Block.count_deviance, numbers)
        bound = gain_bound(term.most, largest, term.centre, term.reach)
        signed = -bound if term.is_loss else bound
        ratios = (*term.centre.as_integer_ratio(), *term.reach.as_integer_ratio(), *signed.as_integer_ratio())
        return self._place(
            Block.count_gain, (sign, term.most, term.form.constant, term.scale, *ratios), (self._sum(term.form),)
        )

    def _label_error(self, error: LabelError, sign: int) -> int:
        sort = get_args(ErrorSort).index(error.sort)
        numbers = (sort, sign, error.form.constant, error.scale, *error.reach.as_integer_ratio())
        return self._place(Block.label_error, numbers, (self._sum(error.form),))

    def _mixed(self, parts: Sequence[Predicate], *, least: bool, negated: bool) -> int:
        """The minimum or maximum of parts, some of them fractions; of their complements if `negated`."""
        fractions = [self._values(part, negated=negated) for part in parts if not part.boolean]
        place = self._joined(Block.lesser if least else Block.greater, fractions)
        bits = [self._bits(part) for part in parts if part.boolean]
        if negated:
            bits = [self._place(Block.complement, reads=(bit,)) for bit in bits]
        if not bits:
            return place
        joined = self._joined(Block.both if least else Block.either, bits)
        return self._place(Block.where if least else Block.unless, reads=(joined, place))

    def _joined(self, operation: Callable[..., Result], places: list[int]) -> int:
        """Joins two at a time, in the order of places, so that predicates share common steps."""
        return reduce(lambda a, b: self._place(operation, reads=(a, b)), sorted(set(places)))

    def _sum(self, form: Affine) -> int:
        weights = tuple(number for name, weight in form.weights for number in (self._column_of_form(name), weight))
        return self._place(Block.weighted, weights)

    def _constant(self, *, value: bool) -> int:
        place = self._place(Block.true)
        return place if value else self._place(Block.complement, reads=(place,))

    def _compared(self, name: str, bound: Bound, *, above: bool) -> int:
        feature = self._reals[name]
        number = feature.number(bound)
        if number < Fraction(feature.lower) or number > Fraction(feature.upper):
            return self._constant(value=number < Fraction(feature.lower))
        return self._place(Block.column_at_least, (self._column(name), stored_bound(feature, number) + above))


def stored_bound(feature: RealFeature, bound: Fraction) -> int:
    """A bound within [lower, upper], stored in units of 2^-30 by the operations of dpcore.records.encoding."""
    # The nearest double is within [lower, upper] too, because these are doubles.
    value = float(bound)
    scaled = 2.0 * ((value - feature.lower) / (feature.upper - feature.lower)) - 1.0
    return math.trunc(math.ldexp(scaled, STORED_FRACTION_BITS))
