"""The label of a drafted schema that is a number or a count, and what is said of it, with counts.

Its bounds are the least and the greatest number of the table, not quantiles: labels beyond quantiles are clipped, and
with them every mean would move. Whoever revises the draft replaces them by limits of the domain.
"""

import numpy as np

from dpcore.errors import ConfigurationError
from dpcore.records.features import Count, Number
from parties.data.draft_columns import Seen
from parties.data.draft_features import near_number
from radobase.printing import amount

_SKEWED = 4.0
"""A scale of logarithms is drafted if all numbers are positive and the largest is so many medians: ratios matter."""


def draft_number(seen: Seen, notes: list[str]) -> Number:
    """The label that is a number, with notes. Raises ConfigurationError for no numbers, or a single one."""
    _check_numbers(seen)
    _check_varies(seen)
    is_log = seen.lowest > 0 and seen.highest >= _SKEWED * float(np.median(seen.sample))
    notes.append(f"The label {seen.name!r} is a number from {seen.lowest:g} to {seen.highest:g}, its extremes.")
    if is_log:
        notes.append(
            f"The largest {seen.name!r} is far above its median, so its logarithm is learned, and predictions are "
            "medians: set log = false in the label for means."
        )
    _say_unread(seen, notes)
    return Number(
        column=seen.name,
        lower=seen.lowest,
        upper=seen.highest,
        log=is_log,
        missing="zero-vector",
        unreadable="zero-vector",
        out_of_bounds="clip",
    )


def draft_count(seen: Seen, exposure: Seen | None, notes: list[str], *, is_bounded: bool) -> Count:
    """The label that is a count, with notes. is_bounded: a person gave the bounds of the exposure.

    Raises ConfigurationError for no counts, a single one, or an exposure that is not positive.
    """
    _check_numbers(seen)
    if seen.lowest < 0 or not seen.whole:
        found = f"the number {seen.lowest:g}" if seen.lowest < 0 else "numbers with fractions"
        raise ConfigurationError(
            f"the label's column {seen.name!r} has {found}, and a count is a whole number from 0 on; choose the "
            "target number"
        )
    _check_varies(seen)
    notes.append(f"The label {seen.name!r} is a count up to {seen.highest:g}.")
    _say_unread(seen, notes)
    label = Count(
        column=seen.name,
        upper=int(seen.highest),
        missing="zero-vector",
        unreadable="zero-vector",
        out_of_bounds="clip",
    )
    if exposure is None:
        return label
    _check_numbers(exposure, what="exposure", fix="name another")
    if exposure.lowest <= 0 and not is_bounded:
        raise ConfigurationError(
            f"the exposure's column {exposure.name!r} has the number {exposure.lowest:g}, and an exposure is positive: "
            f"correct the table, or give its bounds to rado schema infer (--bounds {exposure.name}=FROM:TO), and rows "
            "without exposure become zero vectors"
        )
    lower, upper = (exposure.lowest, exposure.highest) if exposure.lowest > 0 else (1.0, 2.0)
    if not is_bounded:
        _check_varies(exposure)
        notes.append(f"It is counted over {exposure.name!r}, from {lower:g} to {upper:g}.")
    return label.over(exposure.name, lower, max(upper, 2 * lower) if is_bounded else upper)


def _check_numbers(seen: Seen, *, what: str = "label", fix: str = "choose another target") -> None:
    if seen.unreadable or not len(seen.sample):
        near = "" if seen.unreadable else near_number(seen)
        why = near or f"{seen.unreadable or 'no cell is a finite number'}; {fix}"
        raise ConfigurationError(f"the column {seen.name!r} is no {what} of numbers: {why}")


def _check_varies(seen: Seen) -> None:
    if seen.lowest == seen.highest:
        raise ConfigurationError(
            f"the column {seen.name!r} has one value, {seen.lowest:g}, and nothing can be learned of it; choose another"
        )


def _say_unread(seen: Seen, notes: list[str]) -> None:
    if lost := seen.rows - seen.finite.count:
        rows = "1 row has" if lost == 1 else f"{lost} rows have"
        notes.append(f"{rows} no finite number in {seen.name!r}, of {amount(seen.rows, 'row')}: a zero vector each.")
