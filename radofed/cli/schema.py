"""`rado schema`: draft and check the file by which all parties encode their rows."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from dpcore.errors import ConfigurationError
from radobase.printing import in_lines
from radofed.cli.framework import check_new, command, group
from radofed.cli.output import Output, Result

if TYPE_CHECKING:
    from parties.data.schema_draft import AskedLabel
    from radobase.tables.database_source import DatabaseSource
    from radobase.tables.parquet_table import FileList

app = group("Draft and check schemas: how columns become coordinates.")

LabelColumn = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        help="The label's column, by default the last one. Repeatable: a schema of several labels, of which each query "
        "names one. Then --positive, --target, --exposure and --event are written COLUMN=VALUE, with the label's "
        "column.",
    ),
]
Positive = Annotated[
    list[str] | None, typer.Option(help="A positive value of the label; repeatable, one value a time.")
]


@command(app, "infer")
def infer(
    output: Output,
    file: Annotated[
        Path | None, typer.Argument(help="A CSV or Parquet file, or a directory of Parquet files.", show_default=False)
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="A party.toml, instead of a file: read the table that it names, such as a database's."),
    ] = None,
    label: LabelColumn = None,
    positive: Positive = None,
    id_column: Annotated[
        str | None, typer.Option(help="The column of the rows' ids, no feature. Default: the id_column of --config.")
    ] = None,
    epoch_column: Annotated[
        str | None,
        typer.Option(help="The column of the rows' epochs, no feature. Default: the epoch_column of --config."),
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            help="Type of the label: two-classes; classes, all values of its column; number; count; or event, a "
            "time to an event. Default: two-classes."
        ),
    ] = None,
    exposure: Annotated[
        list[str] | None,
        typer.Option(help="With --target count: the column of what it is counted over, such as a time."),
    ] = None,
    event: Annotated[
        list[str] | None,
        typer.Option(
            help="With --target event: the column that says whether the event happened at the label's time. --positive "
            "names the texts that mean so."
        ),
    ] = None,
    bounds: Annotated[
        list[str] | None,
        typer.Option(help="The domain's bounds of a number or date, COLUMN=FROM:TO; repeatable. Default: quantiles."),
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(help="A column to leave out; repeatable.", metavar="COLUMN")
    ] = None,
    category: Annotated[
        list[str] | None,
        typer.Option(
            help="A column to take as a category, such as codes that are numbers, COLUMN or COLUMN=VALUE,VALUE; "
            "repeatable. Default of the values: all that the column has.",
            metavar="COLUMN[=VALUES]",
        ),
    ] = None,
    prefix: Annotated[
        list[str] | None,
        typer.Option(
            help="A column of codes to take as a category by their first characters, COLUMN=NUMBER; repeatable. "
            "--category lists the values.",
            metavar="COLUMN=NUMBER",
        ),
    ] = None,
    weight: Annotated[
        str | None,
        typer.Option(
            help="A column of weights from 0 to a bound, by which rows count in moments and gradients.",
            metavar="COLUMN=UPPER",
        ),
    ] = None,
    unit: Annotated[
        list[str] | None,
        typer.Option(
            help="The unit of a number, COLUMN=UNIT; repeatable. A draft states no unit by itself.",
            metavar="COLUMN=UNIT",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="The schema's name, which its digest covers. Default: records, for every table.")
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the schema to this new file. Default: print it.")
    ] = None,
) -> Result:
    """Draft a schema from a table.

    Numbers and dates are bounded by quantiles and clipped, and no policy refuses a record. The bounds and values depend
    on the data and are not private: correct them before the parties agree on the draft.
    """
    from parties.data.schema_draft import (
        DRAFT_NAME,
        bounded_shared,
        infer_shared,
        parsed,
        parsed_category,
        parsed_prefix,
        parsed_unit,
        parsed_weight,
        with_units,
    )

    if to is not None:
        check_new(to)
    given = {column: (lower, upper) for column, lower, upper in map(parsed, bounds or ())}
    table, left_out = _table(file, config, {IDS: id_column, EPOCHS: epoch_column})
    labels = _asked_labels(label or [], positive=positive, target=target, exposure=exposure, event=event)
    options: dict[str, Any] = {"name": name or DRAFT_NAME, "left_out": left_out}
    options["excluded"] = tuple(dict.fromkeys(exclude or ()))
    options["weight"] = None if weight is None else parsed_weight(weight)
    options["categories"] = _by_column("category", map(parsed_category, category or ()))
    options["prefixes"] = _by_column("prefix", map(parsed_prefix, prefix or ()))
    drafted, notes = infer_shared(table, labels, bounded=given, **options)
    drafted = with_units(bounded_shared(drafted, given), _by_column("unit", map(parsed_unit, unit or ())))
    text, d = drafted.to_toml(notes), drafted.first.d
    data = {"schema": text, "digest": drafted.digest, "d": d, "notes": notes, "file": to}
    if to is None:
        return Result(data, in_lines(text.split("\n")))
    to.write_text(text, encoding="utf-8")
    for note in notes:
        output.note(note)
    return Result(data, f"{to}: {d} coordinates; read it, correct it, and give every party the same file")


def _asked_labels(columns: list[str], **given: list[str] | None) -> "list[AskedLabel]":
    """What is said of each label. given: the texts of each option, by its name. Raises ConfigurationError."""
    from dpcore.records.features.labels import LABEL_TYPES, Label
    from parties.data.schema_draft import AskedLabel

    texts = {name: values or [] for name, values in given.items()}
    if len(set(columns)) < len(columns):
        raise ConfigurationError("a label is named twice; name each column once")
    if len(columns) < 2:
        said = [(columns[0] if columns else None, texts)]
    else:
        said = [(column, _of_label(column, columns, texts)) for column in columns]
    found = []
    for column, of_label in said:
        if many := next((name for name, values in of_label.items() if name != "positive" and len(values) > 1), None):
            raise ConfigurationError(f"--{many} is given twice for one label; give it once")
        target, exposure, event = (next(iter(of_label[name]), None) for name in ("target", "exposure", "event"))
        if target not in (None, *LABEL_TYPES):
            raise ConfigurationError(f"no type of label is called {target!r}; choose {' or '.join(LABEL_TYPES)}")
        found.append(AskedLabel(column, of_label["positive"] or None, target or Label.type, exposure, event))
    return found


def _of_label(column: str, columns: list[str], texts: dict[str, list[str]]) -> dict[str, list[str]]:
    """Of one of several labels, by option. Raises ConfigurationError for a text that names no label."""
    for name, values in texts.items():
        if odd := next((text for text in values if not text.startswith(tuple(f"{each}=" for each in columns))), None):
            known = ", ".join(columns)
            raise ConfigurationError(f"--{name} {odd!r} is of none of the labels {known}: write COLUMN=VALUE")
    start = f"{column}="
    return {
        name: [text.removeprefix(start) for text in values if text.startswith(start)] for name, values in texts.items()
    }


Given = TypeVar("Given")


def _by_column(option: str, given: Iterable[tuple[str, Given]]) -> dict[str, Given]:
    """What an option gives for each column. Raises ConfigurationError if one column is named twice."""
    found: dict[str, Given] = {}
    for column, value in given:
        if column in found:
            raise ConfigurationError(f"{option} {column!r} is named twice; name it once, with all that it has")
        found[column] = value
    return found


IDS, EPOCHS = "the ids of rows", "the epochs of rows"
"""What columns hold that are no features."""


def _table(
    file: Path | None, config: Path | None, given: dict[str, str | None]
) -> tuple["Path | FileList | DatabaseSource", dict[str, str]]:
    """The table to draft from, and what its columns hold that are no features. given: columns, by what they hold."""
    if file is not None and config is None:
        return file, _left_out(given)
    if config is None or file is not None:
        raise ConfigurationError("name either a file, or a party's configuration by --config")
    from parties.config import PartyConfig

    loaded = PartyConfig.load(config)
    named = {IDS: loaded.id_column, EPOCHS: loaded.epoch_column}
    return loaded.table, _left_out({what: given[what] or column for what, column in named.items()})


def _left_out(columns: dict[str, str | None]) -> dict[str, str]:
    """What each column holds that is named. Raises ConfigurationError if one holds both."""
    if columns[IDS] is not None and columns[IDS] == columns[EPOCHS]:
        raise ConfigurationError(
            f"column {columns[IDS]!r} is named for ids and for epochs: an epoch has many rows, so name two columns"
        )
    return {column: what for what, column in columns.items() if column is not None}


@command(app, "check")
def check(
    output: Output,
    schema: Annotated[Path, typer.Argument(help="The schema, a TOML file.", show_default=False)],
    data: Annotated[
        Path | None, typer.Argument(help="A CSV or Parquet file to read with it.", show_default=False)
    ] = None,
    recode: Annotated[
        Path | None,
        typer.Option(help="A recode file: what a party's table writes otherwise than the schema.", show_default=False),
    ] = None,
) -> Result:
    """Check a schema, and a table against it.

    Prints the digest that all parties must share, and a warning if a policy is "refuse": a record that it refuses keeps
    its party from taking part, which others can see. Of a table, it counts the cells that each policy changes, by
    column, what loses most first. With --recode, it tests the party's recode file too.
    """
    from dpcore.records.shared_schema import schema_words
    from parties.data.dataset import check as check_data
    from parties.data.row_guard import advice, refusing_fields
    from radobase.schema_files import load_shared
    from radobase.tables.recoding import load_recode

    shared = load_shared(schema)
    loaded = shared.first
    recoding = None if recode is None else load_recode(recode, shared)
    lines = [
        f"{schema}: schema {schema_words(shared)}",
        f"sensitive features that a query may name: {', '.join(loaded.boolean_coordinates) or 'none'}",
    ]
    found = {
        "name": loaded.name,
        "digest": shared.digest,
        "labels": shared.labels,
        "coordinates": loaded.coordinates,
        "boolean_coordinates": loaded.boolean_coordinates,
    }
    if warning := advice(shared):
        output.note(f"warning: {warning}")
    found["refusing"] = refusing_fields(shared)
    if recoding is not None:
        found["recode_digest"] = recoding.digest
        lines.append(f"{recode}: recodes {', '.join(recoding.columns) or 'no column'}; digest {recoding.digest.hex()}")
    if data is None:
        return Result(found, in_lines(lines))
    output.note(f"reading {data} ...")
    report = check_data(shared, data, recode=recoding)
    counts = {"rows": report.rows, "zero_vectors": report.zero_vectors, "warnings": report.warnings}
    counts |= {} if recoding is None else {"recoded": report.recoded}
    counts |= {"usable_by_label": report.usable_by_label} if report.others else {}
    changes = [change.to_dict() for change in report.all_changes]
    return Result({**found, **counts, "changes": changes}, in_lines([*lines, *report.sentences()]))


@command(app, "compare")
def compare(
    output: Output,
    first: Annotated[Path, typer.Argument(help="A schema, such as one party's draft.", show_default=False)],
    others: Annotated[list[Path], typer.Argument(help="Those of other parties.", show_default=False)],
) -> Result:
    """Compare the drafts of several parties, before they agree on one schema.

    Points out columns that seem to be in two units, by bounds of which one pair is 10, 100, 1,000 or 1,000,000 times
    the other, 2.2 or 2.54 times, or in degrees Fahrenheit, and by headers and stated units. Then lists each field that
    differs. Nothing is changed.
    """
    from parties.data.draft_comparison import compared
    from radobase.schema_files import load_shared

    mine, lines, found = load_shared(first), [], []
    for other in others:
        units, fields = compared(mine, load_shared(other))
        found.append({"file": other, "units": units, "fields": fields})
        lines += [f"{first} and {other}: {len(fields)} fields differ", *(f"warning: {each}" for each in units), *fields]
    del output
    return Result({"first": first, "others": found}, in_lines(lines))
