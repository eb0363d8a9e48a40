"""Checks of a batch of predicates before evaluation: its size, its depth, and its types under the schema."""

from collections.abc import Sequence

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
from dpcore.predicates.forms import FormCoordinates
from dpcore.records.feature_map import FeatureMap
from dpcore.records.features import Comparison, nearest
from dpcore.records.schema import Schema

__all__ = ["MOST_DEPTH", "MOST_NODES", "MOST_PREDICATES", "check"]

MOST_NODES = 1 << 17
"""The most distinct nodes of a batch. A node with n parts counts as max(1, n - 1) and one with n weights as max(1, n),
so that the work for a record is bounded too. Also the most nodes of one predicate when each shared node counts as often
as it occurs, so that the length of its text is bounded."""

MOST_PREDICATES = 1 << 16


def check(predicates: Sequence[Predicate], schema: Schema, feature_map: FeatureMap | None = None) -> None:
    """Check, before any evaluation, that `predicates` can be evaluated on records of the schema.

    feature_map: what records are mapped by, so that forms are of its coordinates (dpcore.predicates.forms).

    Raises PredicateError if

    - there are none, more than MOST_PREDICATES, or two that are the same;
    - the batch has more than MOST_NODES nodes, or one predicate has, with shared nodes counted at each occurrence;
    - the schema lacks a feature, coordinate or value, or a feature has another type.

    No predicate is deeper than MOST_DEPTH: construction ensures that. Time: linear in the distinct nodes.
    """
    if not predicates:
        raise PredicateError("there are no predicates: give at least one")
    if len(predicates) > MOST_PREDICATES:
        raise PredicateError(f"there are {len(predicates)} predicates: give at most {MOST_PREDICATES} in a batch")
    nodes = _Nodes()
    places: dict[int, int] = {}
    for number, predicate in enumerate(predicates, start=1):
        first = places.setdefault(nodes.place(predicate), number)
        if first != number:
            raise PredicateError(f"predicates {first} and {number} are the same: remove one of them")
    types = _Types(schema, feature_map)
    for atom in nodes.atoms:
        types.check(atom)


class _Nodes:
    """The distinct nodes of a batch. Visits each shared node once."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}
        self._places: dict[object, int] = {}
        self._trees: list[int] = []
        self._size = 0
        self.atoms: list[Predicate] = []

    def place(self, predicate: Predicate) -> int:
        """The number of a predicate's structure, the same for equal predicates. Raises PredicateError if too large."""
        if id(predicate) in self._known:
            return self._known[id(predicate)]
        if not isinstance(predicate, Predicate):
            raise PredicateError(f"{type(predicate).__name__} is not a predicate: compare it, or join it using & and |")
        parts = tuple(self.place(part) for part in predicate.children())
        # Parts by number: comparing two trees node by node takes exponential time if they share many parts.
        key = (type(predicate), parts) if parts else predicate
        if key not in self._places:
            self._places[key] = len(self._places)
            self._size += _size(predicate)
            self._trees.append(1 + sum(self._trees[part] for part in parts))
            if self._size > MOST_NODES:
                raise PredicateError(f"the predicates have more than {MOST_NODES} nodes and weights: give fewer")
            if self._trees[-1] > MOST_NODES:
                raise PredicateError(
                    f"a predicate has more than {MOST_NODES} nodes when shared ones count each time: make it smaller"
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
    """Checks the atoms of a batch against a schema and a map."""

    def __init__(self, schema: Schema, feature_map: FeatureMap | None) -> None:
        self._schema = schema
        self._coordinates = FormCoordinates(schema, feature_map)
        self._features = {group.name: group for group in schema.groups}
        # Sets make the lookups fast: a category may have many values, and many predicates may each name one.
        self._numbers = {group.name: group for group in schema.numbers}
        self._values = {feature.name: frozenset(feature.values) for feature in schema.categories}

    def check(self, atom: Predicate) -> None:
        """Raise PredicateError if the schema lacks what the atom names or gives it another type."""
        match atom:
            case Flag(name):
                self._check_comparison(name, "flag")
            case Equals(name, value):
                self._check_comparison(name, "value")
                if value not in self._values[name]:
                    raise PredicateError(
                        f"feature {name!r} lists no value {value!r}; {nearest(value, self._values[name])}"
                    )
            case AtLeast(name, bound) | Above(name, bound):
                self._check_comparison(name, "number")
                try:
                    self._numbers[name].number(bound)
                except TypeError:
                    raise PredicateError(f"{name!r} is {self._numbers[name].comparison_words}") from None
            case NonNegative(form) | Clipped(form):
                for name, _ in form.weights:
                    self._coordinates.place(name)
            case _:
                pass

    def _check_comparison(self, name: str, comparison: Comparison) -> None:
        if name not in self._features:
            known = nearest(name, self._features)
            raise PredicateError(f"schema {self._schema.name!r} has no feature {name!r}; {known}")
        feature = self._features[name]
        if feature.comparison != comparison:
            raise PredicateError(f"{name!r} is {feature.comparison_words}")
