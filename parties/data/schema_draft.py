"""Drafts a schema from a file, for a person to revise. A draft depends on the data; a schema in use must not.

There is one rule, for `rado schema infer` and for simulations. A number is bounded by two quantiles, and clipped, since
a few far values would otherwise leave the others a small part of the range.

A draft refuses no record that it can read: an unlisted text is 0 in every indicator of its category, and any other cell
that cannot be encoded makes its row a zero vector. With `refuse`, one such cell keeps a party from starting, and others
see its absence: the protected record then decides who takes part.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from dpcore.errors import ConfigurationError
from dpcore.numbers.rationals import exact_number
from dpcore.records.features import (
    Classes,
    Count,
    Day,
    EventTime,
    Feature,
    Label,
    Limit,
    Number,
    Target,
    close_match,
    measured,
    nearest,
)
from dpcore.records.features.labels import MOST_CLASSES
from dpcore.records.schema import Schema
from dpcore.records.shared_schema import SharedSchema
from dpcore.records.texts import DRAFTED_TEXTS
from dpcore.records.weight import NO_WEIGHT, Weight
from parties.data.draft_category import draft_category
from parties.data.draft_columns import (
    FORM,
    MOST_TEXTS,
    Seen,
    alike,
    counted,
    is_number,
    may_mark_no_value,
    spellings,
    true_of,
)
from parties.data.draft_event import draft_event
from parties.data.draft_features import draft_feature
from parties.data.draft_measured import draft_count, draft_number
from radobase.printing import amount, listed
from radobase.tables.tables import Table, TableSource, no_such_column, open_table

# The label of a drafted schema: which texts are positive, which negative, which rows are left out, with counts.
#
# A row is left out if its label is not understood. A wrong label would be learned, and a lost row is only a lost row.


_OPPOSITES = [("yes", "no"), ("y", "n"), ("true", "false"), ("t", "f"), ("on", "off"), ("positive", "negative")]
_OPPOSITES += [("pos", "neg"), ("+", "-"), ("ja", "nein"), ("j", "n"), ("oui", "non"), ("si", "no"), ("sí", "no")]
#: Share of the labelled rows from which on two texts are the classes, and the others are not understood.
_TWO_CLASSES = 0.95


def draft_label(seen: Seen, positive: Sequence[str] | None, notes: list[str]) -> Label:
    """The label, with notes on each class. positive: its texts; without, the column must have two values.

    Marks for missing values are in no class, and neither are texts that are not understood. Spellings of a positive
    text are positive. Raises ConfigurationError if a class is empty, or has too many texts to be listed.
    """
    if seen.unreadable:
        raise ConfigurationError(f"the label's column {seen.name!r}: {seen.unreadable}")
    positive = None if positive is None else [*dict.fromkeys(map(FORM, positive))]
    if positive is None:
        positive = _only_two(seen, notes)
    elif seen.overflowed:
        raise ConfigurationError(
            f"the label's column {seen.name!r} has over {MOST_TEXTS} different values, and a draft lists those of both "
            "classes; make it a column of two values, or write the schema by hand"
        )
    if absent := [text for text in positive if text not in seen.counts]:
        raise _never(seen, absent[0])
    common = set(map(alike, positive))
    spelled = [text for text in seen.counts if text not in positive and alike(text) in common]
    rest = [text for text in seen.counts if text not in positive and text not in spelled]
    marks = _marks(seen, rest)
    candidates = [text for text in rest if text not in marks]
    unclear = _not_understood(seen, [*positive, *spelled], candidates)
    negative = [text for text in candidates if text not in unclear]
    if not negative:
        raise _no_negative(seen, rest)
    _say(seen, positive, spelled, negative, notes)
    _say_left_out(seen, marks, unclear, notes)
    return Label(column=seen.name, positive=(*positive, *spelled), negative=tuple(negative), missing="zero-vector")


def draft_classes(seen: Seen, notes: list[str]) -> Classes:
    """The label of several classes: all texts of the column, in order, but marks for missing values, with notes.

    Of several spellings of a text the most frequent is a class. Raises ConfigurationError for too few or many classes.
    """
    if seen.unreadable:
        raise ConfigurationError(f"the label's column {seen.name!r}: {seen.unreadable}")
    marks = [] if seen.overflowed else _marks(seen, list(seen.counts))
    groups = spellings(sorted(text for text in seen.counts if text not in marks))
    if seen.overflowed or not 2 <= len(groups) <= MOST_CLASSES:
        many = f"over {MOST_TEXTS}" if seen.overflowed else len(groups)
        raise ConfigurationError(
            f"the label's column {seen.name!r} has {many} different values, and a label has 2 to {MOST_CLASSES} "
            "classes; specify which column is the label"
        )
    values = [max(group, key=lambda text: seen.counts[text]) for group in groups.values()]
    values.sort(key=lambda text: (0, float(text), text) if is_number(text) else (1, 0.0, text))
    rest = [text for group in groups.values() for text in group if text not in values]
    notes.append(f"The label {seen.name!r} has {len(values)} classes: {counted(values, seen.counts, 'row')}.")
    _say_left_out(seen, marks, rest, notes)
    return Classes(column=seen.name, values=tuple(values), missing="zero-vector", unlisted="zero-vector")


def _only_two(seen: Seen, notes: list[str]) -> Sequence[str]:
    """The positive texts of a column with two values, beside marks for missing values."""
    marks = [] if seen.overflowed else _marks(seen, list(seen.counts))
    groups = spellings(sorted(text for text in seen.counts if text not in marks))
    if seen.overflowed or len(groups) != 2:
        beside = f" beside marks for missing values, {counted(marks, seen.counts)}" if marks else ""
        many = "many" if seen.overflowed else len(groups)
        raise ConfigurationError(
            f"the label's column {seen.name!r} has {many} different values{beside}, "
            "not two; specify which column is the label, and which of its values are positive"
        )
    return true_of(seen, groups.values(), notes)


def _marks(seen: Seen, texts: Collection[str]) -> list[str]:
    """The texts that mark a missing label. A minus beside a plus is a class."""
    return [text for text in texts if may_mark_no_value(text) and not (text == "-" and "+" in seen.counts)]


def _not_understood(seen: Seen, positive: Sequence[str], others: Sequence[str]) -> list[str]:
    """The texts that are probably not the other class: numbers among words, 01 beside 1, or rare beside two classes."""
    equal = {float(text) for text in positive if is_number(text)}
    nearly = {text for text in others if is_number(text) and float(text) in equal}
    others = [text for text in others if text not in nearly]
    numeric = set(filter(is_number, others))
    is_of_kind = {text for text in others if (text in numeric) == all(map(is_number, positive))}
    kept = is_of_kind or set(others)
    groups = spellings(text for text in others if text in kept)
    opposites = {
        second for pair in _OPPOSITES for first, second in (pair, pair[::-1]) if first in set(map(alike, positive))
    }
    found = [key for key in groups if key in opposites]
    size = {key: sum(seen.counts[text] for text in group) for key, group in groups.items()}
    labelled = sum(size.values()) + sum(seen.counts[text] for text in positive)
    if not found and size:
        largest = max(size, key=size.__getitem__)
        if labelled - sum(size.values()) + size[largest] >= _TWO_CLASSES * labelled:
            found = [largest]
    classes = {text for key in found or groups for text in groups[key]}
    return [*nearly, *(text for text in others if text not in classes)]


def _say(
    seen: Seen, positive: Sequence[str], spelled: Sequence[str], negative: Sequence[str], notes: list[str]
) -> None:
    both = [counted(texts, seen.counts, "row") for texts in ([*positive, *spelled], negative)]
    notes.append(f"The label {seen.name!r} is positive where it is {both[0]}, and negative where it is {both[1]}.")
    same = (group for group in spellings([*positive, *spelled, *negative]).values() if len(group) > 1)
    notes += [
        f"{seen.name!r} has spellings of one text, {counted(group, seen.counts, 'row')}: the draft takes them for one "
        "value. If they are not, correct positive and negative."
        for group in same
    ]


def _say_left_out(seen: Seen, marks: Sequence[str], unclear: Sequence[str], notes: list[str]) -> None:
    if seen.missing:
        rows = "1 row has" if seen.missing == 1 else f"{seen.missing} rows have"
        notes.append(f"{rows} no label in {seen.name!r}: a zero vector each.")
    for texts, what in (
        (marks, "a mark for a missing value"),
        (unclear, "in neither class as far as a draft can tell"),
    ):
        if texts:
            notes.append(
                f"{seen.name!r} is {counted(texts, seen.counts, 'row')}: {what}. These rows become zero vectors. "
                "If such a text is a class, add it to the label's positive or negative."
            )


def _never(seen: Seen, text: str) -> ConfigurationError:
    near = next((other for other in seen.counts if alike(other) == alike(text)), None) or close_match(text, seen.counts)
    hint = "check the values of the column" if near is None else f"did you mean {near!r}?"
    if "," in text and all(part.strip() in seen.counts for part in text.split(",")):
        hint = "give each value on its own: --positive A --positive B"
    return ConfigurationError(f"column {seen.name!r} never has the positive value {text!r}; {hint}")


def _no_negative(seen: Seen, rest: Sequence[str]) -> ConfigurationError:
    why = "no other value than the positive ones"
    if rest:
        why = f"only {counted(rest, seen.counts, 'row')} beside the positive values, which mark missing values"
    return ConfigurationError(
        f"the label's column {seen.name!r} has {why}, so that no row is negative; write the other class as a text of "
        "its own, such as no, or choose other positive values"
    )


DRAFT_NAME = "records"
"""The same for every table: the digest covers a schema's name, and parties' files have different names."""


def infer(
    source: TableSource,
    label_column: str | None = None,
    positive: Sequence[str] | None = None,
    *,
    target: str = Label.type,
    name: str = DRAFT_NAME,
    left_out: Mapping[str, str] = MappingProxyType({}),
    bounded: Collection[str] = (),
    exposure: str | None = None,
    event: str | None = None,
    excluded: Collection[str] = (),
    categories: Mapping[str, Sequence[str] | None] = MappingProxyType({}),
    prefixes: Mapping[str, int] = MappingProxyType({}),
) -> tuple[Schema, list[str]]:
    """Draft a schema called `name` from a table, with notes for the person who revises it.

    - A column of numbers becomes a real, bounded by quantiles and clipped.
    - A column of dates becomes a date, bounded by the months of quantiles.
    - A column with two values becomes a boolean, one with up to 30 texts a category.
    - Others are left out with a note, such as ids and free text, and so are the columns `left_out`.

    left_out: what each of them holds, in words. excluded: columns that are left out as asked. categories: columns that
    become categories whatever they hold, with their values; None for all that they have. prefixes: columns that become
    categories by so many first characters of their texts.

    bounded: columns whose bounds will be replaced. label_column: None for the last one that is not left out. positive:
    None only if the label has two values. target: the label's type; "classes" takes all values of its column.

    exposure: the column that a count is counted over. event: of a time to an event, the column that says whether it
    happened; `positive` are then the texts that mean so.

    Raises DataError for a file that cannot be read, ConfigurationError if no label or no feature can be drafted.
    """
    asked = AskedLabel(label_column, positive, target, exposure, event)
    shared, notes = infer_shared(
        source,
        [asked],
        name=name,
        left_out=left_out,
        bounded=bounded,
        excluded=excluded,
        categories=categories,
        prefixes=prefixes,
    )
    return shared.first, notes


@dataclass(frozen=True)
class AskedLabel:
    """What is known of a label that is drafted; the arguments of `infer` say what each is."""

    column: str | None = None
    positive: Sequence[str] | None = None
    target: str = Label.type
    exposure: str | None = None
    event: str | None = None


def infer_shared(
    source: TableSource,
    labels: Sequence[AskedLabel],
    *,
    name: str = DRAFT_NAME,
    left_out: Mapping[str, str] = MappingProxyType({}),
    bounded: Collection[str] = (),
    excluded: Collection[str] = (),
    categories: Mapping[str, Sequence[str] | None] = MappingProxyType({}),
    prefixes: Mapping[str, int] = MappingProxyType({}),
    weight: tuple[str, float] | None = None,
) -> tuple[SharedSchema, list[str]]:
    """As `infer`, for one label or several, which are called as their columns. Two of one column are refused.

    weight: the column of the rows' weights, and their upper bound.
    """
    if weight is not None:
        left_out = {**left_out, weight[0]: "the weights of rows"}
    table = open_table(source)
    notes = [f"{column!r} is left out: it holds {what}, and no feature." for column, what in left_out.items()]
    notes += [f"{column!r} is left out, as asked." for column in excluded]
    left_out = {**dict.fromkeys(excluded, "what was to be excluded"), **left_out}
    categories = {**dict.fromkeys(prefixes), **categories}
    columns = [_label_column(table, each.column, left_out, notes) for each in labels]
    if twice := next((column for column in columns if columns.count(column) > 1), None):
        raise ConfigurationError(f"label {twice!r} is named twice; name it once, and write a second one by hand")
    seen = _read(table, [column for column in table.columns if column])
    drafted_labels: dict[str, Target] = {}
    for column, asked in zip(columns, labels, strict=True):
        if asked.target not in (Label.type, EventTime.type) and asked.positive:
            raise ConfigurationError(f"a label of {asked.target} has no positive values: leave them or the target out")
        other = _other_column(table, asked.target, asked.exposure, asked.event)
        if other in left_out:
            raise ConfigurationError(
                f"column {other!r} holds {left_out[other]}, so it cannot be of the label: name another"
            )
        drafted_labels[column] = _label(seen, column, asked.positive, asked.target, bounded, other, notes)
        _check_categories(table, categories, drafted_labels[column], left_out)
    for name_of_column in (*(own for each in drafted_labels.values() for own in each.columns), *left_out):
        seen.pop(name_of_column, None)
    features = _features(table, seen, categories, prefixes, bounded, notes)
    drafted = [each.column for each in features if any(group.bounds is not None for group in each.groups)]
    notes.insert(0, _privacy_note([column for column in drafted if column not in bounded], bool(bounded)))
    first = Schema(name=name, label=drafted_labels[columns[0]], features=tuple(features), texts=DRAFTED_TEXTS)
    if weight is not None:
        counted = Weight(
            column=weight[0], upper=weight[1], missing=NO_WEIGHT, unreadable=NO_WEIGHT, out_of_bounds="clip"
        )
        first = replace(first, weight=counted)
        notes.append(f"Rows count by {weight[0]!r}, up to {weight[1]:g}: more is clipped, and no weight is 0.")
    return SharedSchema({column: replace(first, label=each) for column, each in drafted_labels.items()}), notes


def _features(
    table: Table,
    seen: Mapping[str, Seen],
    categories: Mapping[str, Sequence[str] | None],
    prefixes: Mapping[str, int],
    bounded: Collection[str],
    notes: list[str],
) -> list[Feature]:
    """The features of the columns that are neither the label's nor left out. Raises ConfigurationError for none."""
    before = len(notes)
    made = (
        draft_category(one, categories[one.name], notes, prefixes.get(one.name))
        if one.name in categories
        else _feature(table, one, notes, bounded)
        for one in seen.values()
    )
    features = [feature for feature in made if feature is not None]
    notes += [f"The frame's index {name!r} is no column." for name in table.index if name not in table.columns]
    if unnamed := table.columns.count(""):
        notes.append(f"Left out, for want of a header: {amount(unnamed, 'column')}.")
    if not features:
        why = "".join(f"\n  {note}" for note in notes[before:])
        raise ConfigurationError(
            f"{table.path}: no column besides the label can be a feature; correct the table, or write the "
            f"schema by hand{why}"
        )
    return features


def _label_column(table: Table, given: str | None, left_out: Mapping[str, str], notes: list[str]) -> str:
    """The label's column. Raises DataError if no column has a header, or a name is unknown; ConfigurationError."""
    named = [column for column in table.columns if column]
    if not named:
        raise table.error("no column has a header; write one")
    if odd := next((column for column in left_out if column not in named), None):
        raise no_such_column(table, odd)
    rest = [column for column in named if column not in left_out]
    if not rest:
        raise table.error("every column is left out, so none can be the label; name fewer")
    if given is None:
        notes.append(f"The draft takes the last column, {rest[-1]!r}, as the label.")
        return rest[-1]
    if given not in named:
        raise no_such_column(table, given)
    if given in left_out:
        raise ConfigurationError(
            f"column {given!r} holds {left_out[given]}, so it cannot be the label: name another column"
        )
    return given


def _check_categories(table: Table, categories: Collection[str], label: Target, left_out: Mapping[str, str]) -> None:
    """Raise DataError for a category that is no column, ConfigurationError for one that is no feature."""
    for column in categories:
        if column not in table.columns:
            raise no_such_column(table, column)
        if column in label.columns:
            raise ConfigurationError(
                f"category {column!r} is the label's column; choose the target classes for its values"
            )
        if column in left_out:
            raise ConfigurationError(f"category {column!r} holds {left_out[column]}, so it is no feature; leave it out")


def _other_column(table: Table, target: str, exposure: str | None, event: str | None) -> str | None:
    """The label's second column: of the exposure, or of the event. Raises ConfigurationError if it does not fit."""
    if exposure is not None and target != Count.type:
        raise ConfigurationError("an exposure is of a count: choose the target count, or leave the exposure out")
    if (event is None) != (target != EventTime.type):
        raise ConfigurationError(
            "a time to an event has a second column, which says whether it happened: give the target "
            "event and the event's column"
        )
    other = event if exposure is None else exposure
    if other is not None and other not in table.columns:
        raise no_such_column(table, other)
    return other


def _label(
    seen: Mapping[str, Seen],
    name: str,
    positive: Sequence[str] | None,
    target: str,
    bounded: Collection[str],
    other: str | None,
    notes: list[str],
) -> Target:
    """The label of this type. other: as of `_other_column`. Other arguments and errors as of `infer`."""
    match target:
        case Classes.type:
            return draft_classes(seen[name], notes)
        case Number.type:
            return draft_number(seen[name], notes)
        case Count.type:
            over = None if other is None else seen[other]
            return draft_count(seen[name], over, notes, is_bounded=other in bounded)
        case EventTime.type:
            assert other is not None, "a time to an event has a column of the event"
            return draft_event(seen[name], seen[other], positive, notes)
        case _:
            return draft_label(seen[name], positive, notes)


def _read(table: Table, columns: Sequence[str]) -> dict[str, Seen]:
    """The statistics of each column."""
    seen = {column: Seen(column) for column in columns}
    for batch in table.batches(columns):
        for column, stats in seen.items():
            stats.add(batch.column(column))
    if not seen[columns[0]].rows:
        raise table.error("there is a header but no rows; give a table with at least one row")
    return seen


def _feature(table: Table, seen: Seen, notes: list[str], bounded: Collection[str]) -> Feature | None:
    place = ""
    if seen.first_text is not None and seen.numbers:
        found = table.error("", row=seen.first_text)
        place = f"row {found.row}" if found.line is None else f"line {found.line}"
    return draft_feature(seen, notes, is_index=seen.name in table.index, is_bounded=seen.name in bounded, place=place)


def _privacy_note(by_quantiles: Sequence[str], some_are_given: bool) -> str:
    """by_quantiles: columns whose bounds are quantiles of the data."""
    private = "values and imputed values are not private, and no figure counts them."
    agree = "Give every party the same file."
    if not by_quantiles:
        return f"This draft depends on the data: its {private} {agree}"
    whose = f"the bounds of {listed(list(map(repr, by_quantiles)))}" if some_are_given else "its bounds"
    return (
        f"This draft depends on the data: {whose} (0.5 % and 99.5 % quantiles, beyond which numbers are clipped), "
        f"{private} Replace the bounds by limits of the domain that all parties agree on. {agree}"
    )


def parsed_category(text: str) -> tuple[str, tuple[str, ...] | None]:
    """The column and the values of "COLUMN=VALUE,VALUE", None without values. Raises ConfigurationError."""
    column, equals, values = text.rpartition("=")
    if not equals:
        return text, None
    found = [value.strip() for value in values.split(",")]
    if not column or not all(found) or len(set(found)) < len(found):
        raise ConfigurationError(
            f"category {text!r}: write COLUMN, or COLUMN=VALUE,VALUE with different values, such as stage=1,2,3,4"
        )
    return column, tuple(found)


def parsed_prefix(text: str) -> tuple[str, int]:
    """The column and the number of characters of "COLUMN=NUMBER". Raises ConfigurationError."""
    column, _, number = text.rpartition("=")
    if not column or not (number.isascii() and number.isdecimal()) or not 1 <= len(number) <= 3:
        raise ConfigurationError(f"prefix {text!r}: write COLUMN=NUMBER, such as diagnosis=3")
    return column, int(number)


def parsed_weight(text: str) -> tuple[str, float]:
    """The column and the upper bound of "COLUMN=UPPER". Raises ConfigurationError."""
    column, _, upper = text.rpartition("=")
    try:
        if not column:
            raise ValueError("no column")
        return column, float(exact_number(upper))
    except (ValueError, ZeroDivisionError, OverflowError) as error:
        raise ConfigurationError(f"weight {text!r}: write COLUMN=UPPER, such as weight=5") from error


# Bounds of the domain in a drafted schema, in place of those that its data suggest.


def parsed(text: str) -> tuple[str, Limit, Limit]:
    """The column, the lower and the upper bound of "COLUMN=LOWER:UPPER". Raises ConfigurationError."""
    column, _, bounds = text.rpartition("=")
    lower, _, upper = bounds.partition(":")
    try:
        return column, _limit(lower), _limit(upper)
    except (ValueError, ZeroDivisionError, OverflowError) as error:
        raise ConfigurationError(
            f"bounds {text!r}: write COLUMN=LOWER:UPPER, such as age=0:120 or admitted=2019-01-01:2024-12-31"
        ) from error


def _limit(text: str) -> Limit:
    return float(exact_number(text)) if Day.of(text) is None else text


def bounded(draft: Schema, bounds: Mapping[str, tuple[Limit, Limit]]) -> Schema:
    """The draft with these bounds, by column. A value that it imputes is moved to the nearest within them.

    Raises ConfigurationError for a column that is no number or date of the draft, or has bounds of the other type,
    SchemaFieldError for bounds that are none.
    """
    numbers = {group.column for group in draft.numbers}
    label: Target = draft.label
    for column in bounds:
        if column in label.columns and label.coding.is_measured:
            label = measured(label, "a label's bounds").with_bounds(column, *_two_numbers(column, bounds[column]))
        elif column not in numbers:
            known = [*numbers, *(label.columns if label.coding.is_measured else ())]
            hint = nearest(column, known) if known else "it has none at all"
            raise ConfigurationError(f"bounds of {column!r}: the draft has no such number; {hint}")

    def with_bounds(feature: Feature) -> Feature:
        try:
            return feature.with_bounds(*bounds[feature.column])
        except TypeError as error:
            raise ConfigurationError(f"bounds of {feature.column!r}: {error}") from error

    changed = (with_bounds(feature) if feature.column in bounds else feature for feature in draft.features)
    return replace(draft, label=label, features=tuple(changed))


def bounded_shared(draft: SharedSchema, bounds: Mapping[str, tuple[Limit, Limit]]) -> SharedSchema:
    """As `bounded`, for each label. Bounds of one label's columns are for that label alone."""

    def own(schema: Schema) -> Schema:
        others = {column for each in draft.schemas for column in each.label.columns} - {*schema.label.columns}
        return bounded(schema, {column: given for column, given in bounds.items() if column not in others})

    return SharedSchema({name: own(schema) for name, schema in draft.by_label.items()})


def _two_numbers(column: str, bounds: tuple[Limit, Limit]) -> tuple[float, float]:
    lower, upper = bounds
    if isinstance(lower, str) or isinstance(upper, str):
        raise ConfigurationError(f"bounds of {column!r}: it is a column of numbers, so give two numbers")
    return lower, upper


# Units, which a draft states only if a person does.


def parsed_unit(text: str) -> tuple[str, str]:
    """The column and the unit of "COLUMN=UNIT". Raises ConfigurationError."""
    column, _, unit = text.rpartition("=")
    if not column or not unit.strip():
        raise ConfigurationError(f"unit {text!r}: write COLUMN=UNIT, such as weight=kg")
    return column, unit.strip()


def with_units(drafted: SharedSchema, units: Mapping[str, str]) -> SharedSchema:
    """The draft with these units, by column. Raises ConfigurationError for a column that is no number of the draft."""
    numbers = {each.name: each for each in drafted.first.numbers if not each.is_named}
    labels = {name: each.label for name, each in drafted.by_label.items() if isinstance(each.label, Number)}
    known = [*(each.column for each in numbers.values()), *(each.column for each in labels.values())]
    if odd := next((column for column in units if column not in known), None):
        raise ConfigurationError(f"unit of {odd!r}: it is no number of the draft; {nearest(odd, known)}")
    stated: dict[str, Feature] = {
        name: replace(each, unit=units[each.column]) for name, each in numbers.items() if each.column in units
    }
    features = tuple(stated.get(each.name, each) for each in drafted.first.features)
    of_labels: dict[str, Target] = {
        name: replace(each, unit=units[each.column]) for name, each in labels.items() if each.column in units
    }
    return SharedSchema(
        {
            name: replace(each, features=features, label=of_labels.get(name, each.label))
            for name, each in drafted.by_label.items()
        }
    )
