"""Categories that a person asks for in a draft: of codes that are numbers, of listed values, or by a prefix."""

from collections.abc import Sequence

from dpcore.errors import ConfigurationError
from dpcore.records.features import Missing
from dpcore.records.schema import CategoryFeature
from parties.data.draft_columns import MOST_TEXTS, Seen, spellings, starts
from parties.data.draft_features import category_of_texts, feature_name, imputes
from radobase.printing import amount, listed


def draft_category(
    seen: Seen, values: Sequence[str] | None, notes: list[str], prefix: int | None = None
) -> CategoryFeature:
    """The category that a person asked for, of codes or texts. values: None for all that the column has.

    prefix: how many first characters of a cell are its value; None: all.

    Raises ConfigurationError if the column cannot be read as texts, or has too many or too few to take all.
    """
    if seen.unreadable:
        raise ConfigurationError(f"category {seen.name!r}: {seen.unreadable}")
    if prefix is not None:
        return _by_prefix(seen, values, notes, prefix)
    if values is None:
        if seen.overflowed or not seen.present:
            many = f"over {MOST_TEXTS} different texts" if seen.overflowed else "no text"
            raise ConfigurationError(f"category {seen.name!r} has {many}; list its values: {seen.name}=VALUE,VALUE")
        return category_of_texts(seen, spellings(sorted(seen.counts)), notes)
    if not seen.overflowed:
        if absent := [value for value in values if not seen.counts[value]]:
            notes.append(f"{seen.name!r} never has {listed(list(map(repr, absent)))} in this table.")
        others = sum(count for text, count in seen.counts.items() if text not in values)
        if others:
            notes.append(
                f"{seen.name!r} has {amount(others, 'cell')} with another text than the listed ones: all indicators "
                'are then 0 (unknown = "zero").'
            )
    impute = max(values, key=seen.counts.__getitem__) if seen.missing and seen.present else None
    if impute is not None:
        notes.append(imputes(seen, impute, seen.missing))
    missing: Missing = "zero-vector" if impute is None else "impute"
    return CategoryFeature(
        name=feature_name(seen),
        column=seen.name,
        values=tuple(values),
        missing=missing,
        unknown="zero",
        impute=impute,
    )


def _by_prefix(seen: Seen, values: Sequence[str] | None, notes: list[str], prefix: int) -> CategoryFeature:
    begins = starts(seen, prefix)
    if values is None and seen.overflowed:
        notes.append(
            f"{seen.name!r} has over {MOST_TEXTS} different texts: the values are the first {prefix} characters of "
            "some of them; add those that are missing."
        )
    found = tuple(sorted(begins)) if values is None else tuple(values)
    impute = max(found, key=begins.__getitem__) if seen.missing and found else None
    if impute is not None:
        notes.append(imputes(seen, impute, seen.missing))
    missing: Missing = "zero-vector" if impute is None else "impute"
    name, column = feature_name(seen), seen.name
    return CategoryFeature(
        name=name, column=column, values=found, missing=missing, unknown="zero", impute=impute, prefix=prefix
    )
