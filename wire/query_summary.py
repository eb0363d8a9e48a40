"""What a query asks, for people: computed from the signed query alone, never from anybody's rows."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from dpcore.predicates.expressions import Above, AtLeast, Clipped, Equals, Flag, FormCoordinates, NonNegative, Predicate
from dpcore.predicates.notation import described
from dpcore.predicates.ranges import readable
from dpcore.queries.statistic import StatisticQuery
from dpcore.records.feature_map import FeatureMap
from dpcore.records.schema import Schema
from radobase.printing import amount, json_text, local_time
from wire.query import Query


@dataclass(frozen=True)
class QuerySummary:
    """What a query asks. Times are Unix seconds."""

    learner: str
    kind: str
    words: str
    """In one sentence."""
    columns: tuple[str, ...]
    """Source columns that an answer depends on."""
    predicates: tuple[str, ...]
    """In the order of the sums: ranges in the column's units (dpcore.predicates.ranges), others in their notation."""
    values: int
    """How many numbers the total has."""
    cohort_min: int
    honest_parties: int
    max_rows: int
    max_attempts: int
    delta: float
    """At which epsilon is counted."""
    created_at_unix_s: int
    not_after_unix_s: int
    answer_within_s: int
    bounds: tuple[str, ...] = ()
    """The schema's bounds of those columns that are numbers: a number beyond counts as if it were at the bound."""
    purpose: str = ""
    """What the learner says that the answer is for; empty if it says nothing."""

    @classmethod
    def of(cls, query: Query) -> "QuerySummary":
        """What a valid query asks."""
        statistic = query.kind if isinstance(query.kind, StatisticQuery) else None
        read = columns(query.schema) if statistic is None else _columns_of(statistic)
        return cls(
            learner=query.learner,
            kind=query.kind.name,
            words=query.words,
            columns=read,
            predicates=() if statistic is None else _predicates_of(statistic),
            values=query.length,
            cohort_min=query.cohort_min,
            honest_parties=query.honest_parties,
            max_rows=query.max_rows,
            max_attempts=query.max_attempts,
            delta=float(query.delta),
            created_at_unix_s=query.created_at_unix_s,
            not_after_unix_s=query.not_after_unix_s,
            answer_within_s=query.answer_within_s,
            bounds=_bounds(query.schema, read),
            purpose=query.purpose,
        )

    def to_dict(self) -> dict[str, Any]:
        """All fields by name, in JSON types."""
        return asdict(self)

    def lines(self, most_predicates: int = 20) -> list[str]:
        """For people, one fact a line."""
        shown = [f"  {text}" for text in self.predicates[:most_predicates]]
        rest = len(self.predicates) - most_predicates
        more = [f"  and {rest} more predicates"] if rest > 0 else []
        return [
            f"learner {self.learner} asks for {self.words}",
            purpose_line(self.purpose),
            *(["predicates:", *shown, *more] if self.predicates else []),
            f"columns that the answer depends on: {', '.join(self.columns) or 'none'}",
            *([f"numbers beyond these bounds count as if at them: {', '.join(self.bounds)}"] if self.bounds else []),
            f"the total has {amount(self.values, 'number')}, each a sum over at least {self.cohort_min} parties",
            (
                f"expires {local_time(self.not_after_unix_s)}; at most {amount(self.max_attempts, 'attempt')}, each "
                "charged"
            ),
        ]


def purpose_line(purpose: str) -> str:
    """What the learner says that an answer is for, for people. Quoted, so that it looks like nothing else."""
    return f"purpose, as the learner states it: {json_text(purpose)}" if purpose else "purpose: none is stated"


def with_purpose(words: str, purpose: str) -> str:
    """What is asked in one line, with what it is for if that is stated."""
    return f"{words}; purpose: {json_text(purpose)}" if purpose else words


def _bounds(schema: Schema, read: Iterable[str]) -> tuple[str, ...]:
    own = set(read)
    numbers = (each for each in schema.numbers if each.column in own)
    return tuple(f"{each.column} {each.written(each.lower, 10)} to {each.written(each.upper, 10)}" for each in numbers)


def _predicates_of(statistic: StatisticQuery) -> tuple[str, ...]:
    if statistic.feature_map is not None:
        # Their forms are of the map's coordinates.
        return tuple(described(predicate) for predicate in statistic.predicates)
    return tuple(readable(predicate, statistic.schema) for predicate in statistic.predicates)


def _columns_of(statistic: StatisticQuery) -> tuple[str, ...]:
    return columns(statistic.schema, statistic.predicates, statistic.feature_map)


def columns(
    schema: Schema, predicates: Iterable[Predicate] | None = None, feature_map: FeatureMap | None = None
) -> tuple[str, ...]:
    """The source columns of the schema that these predicates read; all columns if there are no predicates.

    The label's column is among them where a predicate reads the label. feature_map: whose coordinates forms are of.
    """
    coordinates = FormCoordinates(schema, feature_map)
    own = {group.name: group.column for group in schema.groups}
    if predicates is None:
        return tuple(dict.fromkeys((*own.values(), schema.label.column)))
    found: set[str] = set()
    seen: set[int] = set()
    waiting = list(predicates)
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        waiting += node.children()
        if isinstance(node, Flag | Equals | AtLeast | Above):
            found.add(own[node.feature])
        elif isinstance(node, NonNegative | Clipped):
            found.update(*(coordinates.columns(name) for name, _ in node.form.weights))
        elif node.labelled and not node.children():
            found.add(schema.label.column)
    return tuple(column for column in dict.fromkeys((*own.values(), schema.label.column)) if column in found)
