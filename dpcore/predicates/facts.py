"""What a predicate's being non-zero proves of a record: facts, each on one axis, by which two predicates exclude.

An axis is the label, a flag, a category, a category's being one value or not, a real feature, or a direction of
coordinates. On the first four a fact is a value, and two different values exclude; on the others it is an interval, and
two that do not meet exclude. Facts are found in conjunctions: min(a, b) is non-zero only where a and b both are.

A real feature is compared as it is stored, where bounds that differ may coincide (dpcore.predicates.program). With k
the stored bound, which never decreases in the bound c, `>= c` is stored >= k(c), `> c` is stored > k(c), and `<` and
`<=` are their complements. So where c <= c', `< c` excludes `>= c'` and `> c'`, and `<= c` excludes `> c'`; but `<= c`
never provably excludes `>= c'`, not even where c < c'. A real feature therefore has two axes, on which ends compare as
their bounds do: of intervals [c, c'), where `> c` counts as `>= c` and `<= c'` says nothing, and of intervals (c, c'],
where `< c'` counts as `<= c'` and `>= c` says nothing. A form is evaluated exactly and has one axis for all.
"""

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import islice
from typing import NamedTuple

from dpcore.predicates.expressions import (
    Above,
    Affine,
    And,
    AtLeast,
    Clipped,
    Constant,
    Equals,
    Flag,
    LabelIs,
    NonNegative,
    Not,
    Or,
    Predicate,
)

Axis = tuple[object, ...]
"""The kind of axis, and what distinguishes it from others of its kind."""

MOST_LOOKED_AT = 256
"""Parts of one conjunction that are looked at."""

MOST_FACTS = 512
"""Facts of one predicate that are kept."""

MOST_FOUND = 1_000_000
"""Facts that are put together in one batch; a part that several predicates share is counted once."""

NOWHERE, EVERYWHERE = -(1 << 256), 1 << 256
"""Before and after all other ends."""


def _end(bound: Fraction, *, after: bool) -> int:
    """An end just before a bound or just after it, as a whole number: in the order of the bounds, exactly.

    Above and below the line a bound has at most 63 bits, so that two which differ do so by more than 2^-126.
    """
    return ((bound.numerator << 128) // bound.denominator << 1) + after


class ValueInterval(NamedTuple):
    """Values from one end up to another. One is below another where its upper end is <= the other's lower end."""

    lower: int = NOWHERE
    upper: int = EVERYWHERE

    def met(self, other: "ValueInterval") -> "ValueInterval | None":
        """What is in both, None where nothing is."""
        lower = max(self.lower, other.lower)
        upper = min(self.upper, other.upper)
        return ValueInterval(lower, upper) if lower < upper else None


Fact = ValueInterval | bool | str
Facts = Mapping[int, Fact]
"""By the numbers that one Finder gives to the axes."""


class Finder:
    """Facts of the predicates of one batch: those of a part that several share are found once.

    What is said depends on the predicates' structure and order alone, not on which equal parts are the same object.
    Fewer facts of a conjunction are true too: where there is too much to look at, the rest of it is left.
    """

    def __init__(self) -> None:
        self._axes: dict[Axis, int] = {}
        self._found: list[Facts | None] = []
        self._by_form: dict[Hashable, int] = {}
        self._by_node: dict[tuple[int, bool], int] = {}
        # Nodes are known by identity, which is theirs alone while they are kept.
        self._kept: list[Predicate] = []
        self._left = MOST_FOUND

    def facts(self, predicate: Predicate) -> Facts | None:
        """What is true of every usable record for which the predicate is not 0, as far as it is seen.

        None where nothing can be: the predicate is 0 for every record. Takes time in proportion to the parts, at most
        MOST_LOOKED_AT of each conjunction, and, for a whole batch, to MOST_FOUND.
        """
        self._kept.append(predicate)
        return self._found[self._place(predicate, negated=False)]

    def _place(self, node: Predicate, *, negated: bool) -> int:
        """Where the facts of a node, or of its complement, are in `_found`."""
        key = id(node), negated
        if key not in self._by_node:
            self._by_node[key] = self._new_place(node, negated=negated)
        return self._by_node[key]

    def _new_place(self, node: Predicate, *, negated: bool) -> int:
        if isinstance(node, Not):
            return self._place(node.part, negated=not negated)
        parts = _conjunction(node, negated=negated)
        # By place: equal parts have one, and what has been said once need not be said again.
        places = tuple(dict.fromkeys(self._place(part, negated=negated) for part in islice(parts, MOST_LOOKED_AT)))
        if len(places) == 1:
            return places[0]
        # What is neither a conjunction nor an atom says nothing, and has the place of no parts.
        form: Hashable = places if node.children() else (node, negated)
        if form not in self._by_form:
            self._by_form[form] = len(self._found)
            self._found.append(self._joined(places) if node.children() else self._of_atom(node, negated=negated))
        return self._by_form[form]

    def _of_atom(self, atom: Predicate, *, negated: bool) -> Facts | None:
        facts = _atom_facts(atom, negated=negated)
        return self._gathered((self._axes.setdefault(axis, len(self._axes)), fact) for axis, fact in facts)

    def _joined(self, places: Sequence[int]) -> Facts | None:
        parts = [self._found[place] for place in places]
        if None in parts:
            return None
        return self._gathered(item for part in parts if part for item in part.items())

    def _gathered(self, facts: Iterable[tuple[int, Fact]]) -> Facts | None:
        """Facts that are all true, put together by axis; None where two exclude each other."""
        found: dict[int, Fact] = {}
        for axis, fact in islice(facts, max(self._left, 0)):
            self._left -= 1
            known = found.get(axis)
            if known is None:
                if len(found) < MOST_FACTS:
                    found[axis] = fact
            elif known != fact:
                both = _both(known, fact)
                if both is None:
                    return None
                found[axis] = both
        return found


def exclude(first: Facts, second: Facts) -> bool:
    """Whether no record can have both, which one Finder found."""
    few, many = (first, second) if len(first) <= len(second) else (second, first)
    for axis, fact in few.items():
        other = many.get(axis, fact)
        if other != fact and _both(other, fact) is None:
            return True
    return False


def _both(first: Fact, second: Fact) -> Fact | None:
    """What two facts on one axis that are not the same say together, None where they exclude each other."""
    return first.met(second) if isinstance(first, ValueInterval) and isinstance(second, ValueInterval) else None


def _conjunction(predicate: Predicate, *, negated: bool) -> Sequence[Predicate]:
    """Predicates of which this one is the least, or of whose complements its complement is."""
    # 1 - max(a, b) = min(1 - a, 1 - b).
    if isinstance(predicate, Or if negated else And):
        return predicate.children()
    return ()


def _atom_facts(atom: Predicate, *, negated: bool) -> Iterator[tuple[Axis, Fact]]:
    match atom:
        case Constant(value):
            yield ("constant",), True
            yield ("constant",), value != negated
        case LabelIs(positive):
            yield ("label",), positive != negated
        case Flag(feature):
            yield ("flag", feature), not negated
        case Equals(feature, value):
            yield ("is", feature, value), not negated
            if not negated:
                yield ("category", feature), value
        case AtLeast(feature, bound) | Above(feature, bound):
            yield from _real_facts(feature, bound, at_least=isinstance(atom, AtLeast), negated=negated)
        case NonNegative(form):
            yield from _form_facts(form, Fraction(0), above=not negated, included=not negated)
        case Clipped(form, scale):
            # Not 0 where form > 0; not 1 where form < scale.
            yield from _form_facts(form, Fraction(scale if negated else 0), above=not negated, included=False)
        case _:
            pass


def _real_facts(feature: str, bound: Fraction, *, at_least: bool, negated: bool) -> Iterator[tuple[Axis, Fact]]:
    """Facts of v >= bound or v > bound, or of their complements, on the axes of intervals [c, c') and (c, c']."""
    if at_least or not negated:
        yield ("[)", feature), _half_line(_end(bound, after=False), above=not negated)
    if negated or not at_least:
        yield ("(]", feature), _half_line(_end(bound, after=True), above=not negated)


def _half_line(end: int, *, above: bool) -> ValueInterval:
    return ValueInterval(lower=end) if above else ValueInterval(upper=end)


def _form_facts(form: Affine, bound: Fraction, *, above: bool, included: bool) -> Iterator[tuple[Axis, Fact]]:
    """The form is >=, >, < or <= bound: a bound on the direction that it shares with all its multiples."""
    if not form.weights:
        return
    divisor = math.gcd(*(weight for _, weight in form.weights))
    if form.weights[0][1] < 0:
        divisor, above = -divisor, not above
    end = _end((bound - form.constant) / divisor, after=included != above)
    direction = Affine(tuple((name, weight // divisor) for name, weight in form.weights))
    yield ("direction", direction), _half_line(end, above=above)
