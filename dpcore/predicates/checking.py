"""What a batch of predicates must be before anybody evaluates it: short, shallow, and typed by the schema."""

from collections.abc import Sequence
from types import UnionType

from dpcore.errors import SchemaError
from dpcore.predicates.expressions import (
    MOST_DEPTH,
    Above,
    AtLeast,
    Clipped,
    Equals,
    Flag,
    NonNegative,
    Predicate,
    PredicateError,
)
from dpcore.records.features import BooleanFeature, CategoryFeature, RealFeature, ThresholdFeature, nearest
from dpcore.records.schema import Schema

__all__ = ["MOST_DEPTH", "MOST_NODES", "MOST_PREDICATES", "check"]

MOST_NODES = 1 << 17
"""Distinct nodes of a batch. One with n parts or n weights counts as n - 1 or n where that is more than 1, so that the
work on a record is bounded too. Also nodes of one predicate, each counted as often as it stands in it, so that writing
it out is bounded."""

MOST_PREDICATES = 1 << 16

_HOW = {
    RealFeature: "a real feature: compare it with a number by >=, >, < or <=",
    CategoryFeature: "a category feature: compare it with one of its values by == or !=",
    BooleanFeature: "a boolean feature: use it by itself, without a comparison",
    ThresholdFeature: "a threshold feature: use it by itself, without a comparison",
}


def check(predicates: Sequence[Predicate], schema: Schema) -> None:
    """Raise PredicateError, before any evaluation, where `predicates` cannot be asked about the schema's records.

    That is where there are none, more than MOST_PREDICATES or the same twice; where they have more than MOST_NODES
    nodes, or one of them has, each counted as often as it stands in it; where a feature, coordinate or value is not the
    schema's or a feature is of another type. That none is deeper than MOST_DEPTH holds from construction. Takes time
    linear in the nodes, those that are shared counted once.
    """
    if not predicates:
        raise PredicateError("there are no predicates: ask for at least one")
    if len(predicates) > MOST_PREDICATES:
        raise PredicateError(f"there are {len(predicates)} predicates: ask for at most {MOST_PREDICATES} at a time")
    nodes = _Nodes()
    places: dict[int, int] = {}
    for number, predicate in enumerate(predicates, start=1):
        first = places.setdefault(nodes.place(predicate), number)
        if first != number:
            raise PredicateError(f"predicates {first} and {number} are the same: ask each once")
    types = _Types(schema)
    for atom in nodes.atoms:
        types.check(atom)


class _Nodes:
    """The distinct nodes of a batch, found without ever walking twice through what is shared."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}
        self._places: dict[object, int] = {}
        self._trees: list[int] = []
        self._size = 0
        self.atoms: list[Predicate] = []

    def place(self, predicate: Predicate) -> int:
        """A number that exactly the predicates of this structure have; raises PredicateError where all is too large."""
        if id(predicate) in self._known:
            return self._known[id(predicate)]
        if not isinstance(predicate, Predicate):
            raise PredicateError(f"{type(predicate).__name__} is no predicate: compare it, or join it by & and |")
        parts = tuple(self.place(part) for part in predicate.children())
        # Parts by number: comparing two trees node by node could take exponential time where they share parts.
        key = (type(predicate), parts) if parts else predicate
        if key not in self._places:
            self._places[key] = len(self._places)
            self._size += _size(predicate)
            self._trees.append(1 + sum(self._trees[part] for part in parts))
            if self._size > MOST_NODES:
                raise PredicateError(f"the predicates have more than {MOST_NODES} nodes and weights: ask for fewer")
            if self._trees[-1] > MOST_NODES:
                raise PredicateError(
                    f"a predicate has more than {MOST_NODES} nodes where shared ones count each time: share fewer"
                )
            if not parts:
                self.atoms.append(predicate)
        place = self._known[id(predicate)] = self._places[key]
        return place


def _size(predicate: Predicate) -> int:
    if isinstance(predicate, NonNegative | Clipped):
        return max(1, len(predicate.form.weights))
    return max(1, len(predicate.children()) - 1)


class _Types:
    """What a schema says about the atoms of a batch."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._features = {feature.name: feature for feature in schema.features}
        # A set for each: a category may have many values, and each of many predicates names one.
        self._values = {
            feature.name: frozenset(feature.values)
            for feature in schema.features
            if isinstance(feature, CategoryFeature)
        }

    def check(self, atom: Predicate) -> None:
        """Raise PredicateError where the schema has not what the atom names, or has it of another type."""
        match atom:
            case Flag(name):
                self._check_type(name, BooleanFeature | ThresholdFeature)
            case Equals(name, value):
                self._check_type(name, CategoryFeature)
                if value not in self._values[name]:
                    raise PredicateError(
                        f"feature {name!r} lists no value {value!r}; {nearest(value, self._values[name])}"
                    )
            case AtLeast(name) | Above(name):
                self._check_type(name, RealFeature)
            case NonNegative(form) | Clipped(form):
                for name, _ in form.weights:
                    self._check_coordinate(name)
            case _:
                pass

    def _check_type(self, name: str, kinds: type | UnionType) -> None:
        if name not in self._features:
            known = nearest(name, self._features)
            raise PredicateError(f"schema {self._schema.name!r} has no feature {name!r}; {known}")
        feature = self._features[name]
        if not isinstance(feature, kinds):
            raise PredicateError(f"{name!r} is {_HOW[type(feature)]}")

    def _check_coordinate(self, name: str) -> None:
        try:
            self._schema.sources(name)
        except SchemaError as error:
            raise PredicateError(str(error)) from None
