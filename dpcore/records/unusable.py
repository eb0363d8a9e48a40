"""Why rows of a table are not usable: the column and the policy that made most of them zero vectors."""

from collections.abc import Iterable, Iterator, Sequence

from dpcore.records.encoding import Tally
from dpcore.records.features import BooleanFeature, CategoryFeature, Feature
from dpcore.records.schema import Schema


def summed(blocks: Iterable[Sequence[Tally]]) -> tuple[Tally, ...]:
    """The tallies of a table from those of its blocks, at least one, in the same order."""
    return tuple(sum(of_one[1:], of_one[0]) for of_one in zip(*blocks, strict=True))


def main_cause(schema: Schema, tallies: Sequence[Tally]) -> str:
    """The column and the policy that made most zero vectors, and for how many cells, as a clause; "" if none did.

    tallies: one per feature, in the schema's order, then that of the label if there is one. It quotes no cell.
    """
    count, column, what, policy = max(_causes(schema, tallies), key=lambda cause: cause[0])
    if not count:
        return ""
    cells, rows = ("1 cell is", "its row") if count == 1 else (f"{count} cells are", "their rows")
    return f'in column {column!r} {cells} {what}, and {policy} = "zero-vector" leaves {rows} out'


def why_most_are_unusable(schema: Schema, tallies: Sequence[Tally], *, rows: int, usable: int) -> str | None:
    """A clause that says so with the main cause, or None if at least half of the rows are usable."""
    if 2 * usable >= rows:
        return None
    counted = f"only {usable} of {rows} rows are usable" if usable else "no row is usable"
    return f"{counted}: {main_cause(schema, tallies)}"


def _causes(schema: Schema, tallies: Sequence[Tally]) -> Iterator[tuple[int, str, str, str]]:
    """For each column and policy: how many cells it concerned, the column, what they are, and the policy's key."""
    for feature, tally in zip(schema.features, tallies, strict=False):
        yield tally.empty, feature.column, "empty", "missing"
        yield tally.zero_vectors - tally.empty, feature.column, *_other_policy(feature)
    for tally in tallies[len(schema.features) :]:
        what, column = "in neither positive nor negative of the schema's label", schema.label.column
        yield tally.empty, column, "empty", "label.missing"
        yield tally.zero_vectors - tally.empty, column, what, "label.missing"


def _other_policy(feature: Feature) -> tuple[str, str]:
    """What a cell is that is not empty and makes its row a zero vector, and the policy's key."""
    match feature:
        case BooleanFeature():
            return "in neither true nor false of the schema", "unknown"
        case CategoryFeature():
            return "not among the schema's values", "unknown"
        case _:
            return "beyond the schema's bounds", "out_of_bounds"
