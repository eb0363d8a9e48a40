"""The coordinates that affine forms are sums of: the schema's, or with a feature map those of mapped records.

A mapped record's have names such as "3: age~40": their place, so that no two are the same, and what they are, cut if it
is long. Other atoms are about features of the schema, with or without a map.
"""

from dataclasses import dataclass
from functools import cached_property

from dpcore.errors import SchemaError
from dpcore.predicates.expressions import PredicateError
from dpcore.records.feature_map import FeatureMap
from dpcore.records.features import nearest
from dpcore.records.schema import BIAS, Schema

LONGEST_NAME = 60
"""Characters of a schema's coordinate that the names of a map's coordinates have."""


@dataclass(frozen=True)
class FormCoordinates:
    """What forms name."""

    schema: Schema
    feature_map: FeatureMap | None = None
    """Fits the schema; None for the schema's own coordinates."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names, in the order of their places; the bias, if there is one, is the last and has its usual name."""
        if self.feature_map is None:
            return self.schema.coordinates
        terms = self.feature_map.names(self.schema, LONGEST_NAME)[: len(self.feature_map.terms)]
        named = tuple(f"{place}: {name}" for place, name in enumerate(terms))
        return (*named, BIAS) if self.feature_map.bias else named

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    def place(self, name: str) -> int:
        """The place of a coordinate. Raises PredicateError, with the most similar name, if there is none."""
        if self.feature_map is None:
            try:
                return self.schema.coordinate(name)
            except SchemaError as error:
                raise PredicateError(str(error)) from None
        if name not in self._places:
            raise PredicateError(f"the feature map has no coordinate {name!r}; {nearest(name, self.names)}")
        return self._places[name]

    def columns(self, name: str) -> tuple[str, ...]:
        """The source columns that a coordinate is a function of: none for the bias, two for a product."""
        place = self.place(name)
        if self.feature_map is not None:
            return self.feature_map.columns(place, self.schema)
        column = self.schema.sources(name)
        return () if column is None else (column,)
