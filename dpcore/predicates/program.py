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
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, reduce
from typing import NamedTuple, cast, get_args

from dpcore.numbers.fixed_point import STORED_FRACTION_BITS
from dpcore.predicates.bits import Bit, BitProgram, Bits, BitStep
from dpcore.predicates.block import Block, Result
from dpcore.predicates.count_terms import deviance_bound, exposures, gain_bound
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
from dpcore.records.feature_map import FeatureMap
from dpcore.records.features import Bound, Classes, Count, EventTime, RealFeature, measured
from dpcore.records.schema import Schema

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
_OF_BITS = frozenset(
    (Block.positive, Block.of_class, Block.label_at_least, Block.followed_beyond, Block.sum_at_least,
     Block.label_beyond)
)  # fmt: skip
"""The operations of a block whose results are bits. They read sums at most, so none waits for a `Bit`."""

Operation = Callable[..., Result] | Bit


class Step(NamedTuple):
    """operation(block, *numbers, *results of the steps at `reads`), a method of Block; or an operation on bits."""

    operation: Operation
    numbers: tuple[int, ...] = ()
    reads: tuple[int, ...] = ()


@dataclass(frozen=True)
class Program:
    """Steps, each of which reads earlier ones only. Those on bits follow one another: they run at once, compiled."""

    steps: tuple[Step, ...]
    roots: tuple[int, ...]
    """For each predicate, the index of its step."""
    columns: tuple[int, ...]
    """The schema's coordinates that comparisons of features read."""
    coordinates: tuple[int, ...] = ()
    """Those that forms read: the schema's by their places, then a feature map's after all of the schema's."""
    by_row: bool = False
    """Whether each row's results are asked for, not only their sums."""

    def run(self, block: Block) -> Iterator[tuple[list[int], Result | int]]:
        """Yield (indices of the predicates with this result, result). A result is freed after its last use.

        Bits of which only a sum is asked for are their number in usable rows.
        """
        known: list[Result | None] = [None] * len(self.steps)
        counts: dict[int, int] = {}
        for place, ((operation, numbers, reads), asking, last_reads) in enumerate(self._order):
            if not isinstance(operation, Bit):
                known[place] = operation(block, *numbers, *[known[read] for read in reads])
            elif self._is_first_bit(place):
                counts = self._run_bits(block, known)
            if asking:
                result = known[place]
                yield asking, counts[place] if result is None else result
                # Not kept while later steps run.
                del result
            for read in last_reads:
                known[read] = None

    def _run_bits(self, block: Block, known: list[Result | None]) -> dict[int, int]:
        """Run the steps on bits: returns counts by step, and adds what is kept to `known`."""
        given = {read: cast("Bits", known[read]) for read in self._bits.given}
        counts, kept = self._bits.run(block.features, block.usable_bits, given)
        for place, bits in kept.items():
            known[place] = bits
        return counts

    @cached_property
    def _bits(self) -> BitProgram:
        """The steps on bits."""
        steps = tuple(
            BitStep(place, step.operation, step.numbers, step.reads)
            for place, step in enumerate(self.steps)
            if isinstance(step.operation, Bit)
        )
        own = {step.place for step in steps}
        read_later = {read for place, step in enumerate(self.steps) if place not in own for read in step.reads}
        kept = own & (read_later | set(self.roots) if self.by_row else read_later)
        counted = (own & set(self.roots)) - kept
        return BitProgram(steps, self.columns, tuple(sorted(counted)), tuple(sorted(kept)))

    def _is_first_bit(self, place: int) -> bool:
        return place == self._bits.steps[0].place

    @cached_property
    def row_bits(self) -> int:
        """The most bits for a row that results take at any time. What is kept of bits appears at once, as one array."""
        taken = [0 if isinstance(operation, Bit) else _ROW_BITS.get(operation, _BITS) for operation, _, _ in self.steps]
        now = most = 0
        for place, step in enumerate(self.steps):
            now += taken[place]
            if isinstance(step.operation, Bit) and self._is_first_bit(place):
                now += _BITS * len(self._bits.kept)
                # Given bits are copied while the steps run.
                most = max(most, now + _BITS * len(self._bits.given))
            most = max(most, now)
            now -= sum(taken[read] for read in self._last_reads[place])
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


def compiled(
    predicates: Sequence[Predicate], schema: Schema, feature_map: FeatureMap | None = None, *, by_row: bool = False
) -> Program:
    """The program of predicates that have passed `check`. by_row: see `Program`."""
    compiler = _Compiler(schema, feature_map)
    roots = tuple(compiler.root(predicate) for predicate in predicates)
    columns, coordinates = tuple(compiler.columns), tuple(compiler.coordinates)
    return _in_order(Program(tuple(compiler.places), roots, columns, coordinates, by_row))


def _in_order(program: Program) -> Program:
    """The same steps: bits of labels and forms, then the steps on bits, then values.

    Among these each is just before the first that reads it, so that few parts of a conjunction are kept at once. Values
    of the first sums come with them where no later step reads them, so that these sums are not kept. Bits of one column
    follow one another, so that it stays in a core's cache.
    """
    needed: dict[int, None] = {}
    for root in sorted(program.roots, key=_first_columns(program).__getitem__):
        waiting = [root]
        while waiting:
            place = waiting[-1]
            missing = [read for read in program.steps[place].reads if read not in needed]
            # Reversed, so that the first to be read is next on the stack.
            waiting.extend(reversed(missing))
            if not missing:
                needed.setdefault(waiting.pop())
    first = _first(program, tuple(needed))

    def turn(place: int) -> int:
        return 0 if place in first else 1 if isinstance(program.steps[place].operation, Bit) else 2

    places = {place: number for number, place in enumerate(sorted(needed, key=turn))}
    steps = [program.steps[place] for place in places]
    steps = [step._replace(reads=tuple(places[read] for read in step.reads)) for step in steps]
    return replace(program, steps=tuple(steps), roots=tuple(places[root] for root in program.roots))


def _first(program: Program, needed: Sequence[int]) -> set[int]:
    """Bits of labels and forms, the sums that these read, and such values of these sums as no later step reads alone.

    needed: every step after those that it reads.
    """
    of_bits = {place for place in needed if program.steps[place].operation in _OF_BITS}
    required = of_bits.union(*(program.steps[place].reads for place in of_bits))
    found = set(required)
    for place in needed:
        operation, _, reads = program.steps[place]
        if not isinstance(operation, Bit) and reads and found.issuperset(reads):
            found.add(place)
    read_first: set[int] = set()
    read_later: set[int] = set()
    for place in reversed(needed):
        # Values that are kept for later steps only are smaller than their sums, but may be many.
        if place not in required and place in read_later and place not in read_first:
            found.discard(place)
        (read_first if place in found else read_later).update(program.steps[place].reads)
    return found


def _first_columns(program: Program) -> list[int]:
    """For each step on bits, the first of the columns that it or a step below it reads; after all of them for others.

    So values keep their order: those of one sum, which batches ask side by side, are computed side by side.
    """
    found: list[int] = []
    for operation, numbers, reads in program.steps:
        own = numbers[:1] if operation is Bit.AT_LEAST else ()
        below = (found[read] for read in reads) if isinstance(operation, Bit) else ()
        found.append(min((*own, *below), default=len(program.columns)))
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
        self.coordinates: dict[int, int] = {}

    def root(self, predicate: Predicate) -> int:
        return self._bits(predicate) if predicate.boolean else self._values(predicate, negated=False)

    def _place(self, operation: Operation, numbers: tuple[int, ...] = (), reads: tuple[int, ...] = ()) -> int:
        return self.places.setdefault(Step(operation, numbers, reads), len(self.places))

    def _column(self, coordinate: str) -> int:
        return self.columns.setdefault(self._schema.coordinate(coordinate), len(self.columns))

    def _column_of_form(self, coordinate: str) -> int:
        place = self._first_of_forms + self._of_forms.place(coordinate)
        return self.coordinates.setdefault(place, len(self.coordinates))

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
                return place if positive else self._place(Bit.COMPLEMENT, reads=(place,))
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
                return self._place(Bit.AT_LEAST, (self._column(feature), 1))
            case Equals(feature, value):
                return self._place(Bit.AT_LEAST, (self._column(f"{feature}={value}"), 1))
            case AtLeast(feature, bound) | Above(feature, bound):
                return self._compared(feature, bound, above=isinstance(predicate, Above))
            case LabelError():
                numbers = (predicate.form.constant, predicate.scale, *predicate.reach.as_integer_ratio())
                return self._place(Block.label_beyond, numbers, (self._sum(predicate.form),))
            case NonNegative(form):
                return self._place(Block.sum_at_least, (-form.constant << STORED_FRACTION_BITS,), (self._sum(form),))
            case Not(part):
                return self._place(Bit.COMPLEMENT, reads=(self._bits(part),))
            case And(parts):
                return self._joined(Bit.BOTH, [self._bits(part) for part in parts])
            case Or(parts):
                return self._joined(Bit.EITHER, [self._bits(part) for part in parts])
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
            bits = [self._place(Bit.COMPLEMENT, reads=(bit,)) for bit in bits]
        if not bits:
            return place
        joined = self._joined(Bit.BOTH if least else Bit.EITHER, bits)
        return self._place(Block.where if least else Block.unless, reads=(joined, place))

    def _joined(self, operation: Operation, places: list[int]) -> int:
        """Joins two at a time, in the order of places, so that predicates share common steps."""
        return reduce(lambda a, b: self._place(operation, reads=(a, b)), sorted(set(places)))

    def _sum(self, form: Affine) -> int:
        weights = tuple(number for name, weight in form.weights for number in (self._column_of_form(name), weight))
        return self._place(Block.weighted, weights)

    def _constant(self, *, value: bool) -> int:
        place = self._place(Bit.TRUE)
        return place if value else self._place(Bit.COMPLEMENT, reads=(place,))

    def _compared(self, name: str, bound: Bound, *, above: bool) -> int:
        feature = self._reals[name]
        number = feature.number(bound)
        if number < Fraction(feature.lower) or number > Fraction(feature.upper):
            return self._constant(value=number < Fraction(feature.lower))
        return self._place(Bit.AT_LEAST, (self._column(name), stored_bound(feature, number) + above))


def stored_bound(feature: RealFeature, bound: Fraction) -> int:
    """A bound within [lower, upper], stored in units of 2^-30 by the operations of dpcore.records.encoding."""
    # The nearest double is within [lower, upper] too, because these are doubles.
    value = float(bound)
    scaled = 2.0 * ((value - feature.lower) / (feature.upper - feature.lower)) - 1.0
    return math.trunc(math.ldexp(scaled, STORED_FRACTION_BITS))
