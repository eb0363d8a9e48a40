"""Inquiries: what one call of describe, crosstab, compare or correlate asks, and how its answer is read.

An inquiry is data: with the schema it says which predicates are asked, so that a saved release is read again by the
inquiry that asked for it.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, ClassVar

from dpcore.errors import ConfigurationError, PlanError
from dpcore.estimators.oracle import WHOLE, Oracle, StatisticOracle
from dpcore.evaluation.descriptive.divisions import Edges
from dpcore.evaluation.descriptive.result import Result
from dpcore.evaluation.intervals import CellNoise
from dpcore.numbers.fixed_point import Vector
from dpcore.predicates.evaluation import check
from dpcore.predicates.expressions import Predicate
from dpcore.records.schema import Schema
from dpcore.statistics.accuracy import Estimates

Key = Hashable

_DRAWN = (
    "They are for new rows, drawn as these were: independently, from one distribution, that of the parties together in "
    "proportion to their rows. Numbers of rows are of these rows."
)


@dataclass(frozen=True, eq=False)
class Layout:
    """Which predicate of a batch answers what."""

    predicates: Mapping[Key, Predicate]

    @property
    def batch(self) -> tuple[Predicate, ...]:
        """Each predicate once: two keys may have the same one."""
        return tuple(dict.fromkeys(self.predicates.values()))

    def counts(self, estimates: Estimates) -> dict[Key, float]:
        """The noisy sum of each key. Raises ConfigurationError if the estimates are of another batch."""
        batch = self.batch
        if len(estimates.values) != len(batch):
            raise ConfigurationError("the answer is to another inquiry: give the release that this inquiry asked for")
        sums: Vector = estimates.values * estimates.rows
        places = {predicate: place for place, predicate in enumerate(batch)}
        return {key: float(sums[places[predicate]]) for key, predicate in self.predicates.items()}


@dataclass(frozen=True)
class Needed:
    """Cells that must be told from noise."""

    words: str
    """Such as "each of the 12 cells of a and b"."""
    cells: int
    """How many the rows are divided into; the check assumes that they have equally many."""
    remedy: str


@dataclass(frozen=True, kw_only=True)
class Inquiry(ABC):
    """Raises ConfigurationError if a field is out of range."""

    name: ClassVar[str]
    confidence: float = 0.95
    """Of each interval by itself."""
    together: bool = False
    """Whether all intervals hold together with that probability instead."""

    def __post_init__(self) -> None:
        if not 0.0 < self.confidence < 1.0:
            raise ConfigurationError(f"confidence is {self.confidence}: choose a number between 0 and 1")

    @abstractmethod
    def check(self, schema: Schema) -> None:
        """Raise ConfigurationError or PredicateError if it does not fit the schema."""

    @abstractmethod
    def ask(self, oracle: Oracle, part: Fraction = WHOLE) -> Result:
        """Ask it in one release, and read the answer. Raises what the oracle raises."""

    def failure(self, statements: int) -> float:
        """Of one interval of so many."""
        return (1.0 - self.confidence) / (max(statements, 1) if self.together else 1)

    def meaning(self) -> tuple[str, str]:
        """What the intervals hold for, in words."""
        percent = f"{100 * self.confidence:g} %"
        held = "All intervals hold together" if self.together else "Each interval by itself holds"
        return (
            f"{held} with probability about {percent} or more, over the noise and the sample.",
            _DRAWN,
        )

    def to_dict(self) -> dict[str, Any]:
        """The name and the fields, as plain values for JSON."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        values = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
        if "edges" in values:
            values["edges"] = {name: list(edges) for name, edges in values["edges"].items()}
        return {"inquiry": self.name, **values}


@dataclass(frozen=True, kw_only=True)
class CountsInquiry(Inquiry):
    """An inquiry that one batch of predicates answers."""

    @abstractmethod
    def layout(self, schema: Schema) -> Layout:
        """What is asked. Raises ConfigurationError, PredicateError."""

    @abstractmethod
    def needed(self, schema: Schema) -> tuple[Needed, ...]:
        """What must be told from noise."""

    def promises(self, schema: Schema, noise: CellNoise) -> tuple[str, ...]:  # noqa: ARG002  (few have some)
        """Sentences about what an answer with this noise will say, for a plan."""
        return ()

    @abstractmethod
    def read(self, schema: Schema, estimates: Estimates) -> Result:
        """The figures of an answer."""

    def check(self, schema: Schema) -> None:
        """See `Inquiry`."""
        check(self.layout(schema).batch, schema)

    def ask(self, oracle: StatisticOracle, part: Fraction = WHOLE) -> Result:
        """See `Inquiry`."""
        return self.read(oracle.schema, oracle.statistic(self.layout(oracle.schema).batch, part=part))

    def check_measurable(self, schema: Schema, noise: CellNoise, rows: int, epsilon: float) -> None:
        """Raise PlanError if the mean cell of `rows` rows is within the noise. rows: 0 if no party states any."""
        reach = noise.half_width(1, 1.0 - self.confidence)
        for each in self.needed(schema):
            if rows and rows < reach * each.cells:
                enough = float(f"{1.05 * epsilon * reach * each.cells / rows:.2g}")
                raise PlanError(
                    f"{each.words} would have {rows / each.cells:.0f} rows on average, within the noise of "
                    f"{math.ceil(reach)} rows at epsilon {epsilon:g}, so nothing would be measured, and nothing was "
                    f"asked: {each.remedy}, or give about --epsilon {enough:g}"
                )


def as_edges(edges: Edges) -> dict[str, tuple[float | str, ...]]:
    """Edges by column, as tuples; a single edge may stand by itself."""
    return {name: (given,) if isinstance(given, float | int | str) else tuple(given) for name, given in edges.items()}
