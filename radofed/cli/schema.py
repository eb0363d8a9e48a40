"""`rado schema`: draft and check the file by which all parties encode their rows."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpcore.errors import ConfigurationError
from radobase.printing import in_lines
from radofed.cli.framework import check_new, command, group
from radofed.cli.output import Output, Result

if TYPE_CHECKING:
    from radobase.tables.database_source import DatabaseSource

app = group("Draft and check schemas: how columns become coordinates.")

LabelColumn = Annotated[
    str | None, typer.Option("--label", help="The label's column. `schema infer` takes the last one if it is left out.")
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
        str | None,
        typer.Option(
            help="Type of the label: two-classes; classes, all values of its column; number; count; or event, a "
            "time to an event. Default: two-classes."
        ),
    ] = None,
    exposure: Annotated[
        str | None, typer.Option(help="With --target count: the column of what it is counted over, such as a time.")
    ] = None,
    event: Annotated[
        str | None,
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
    from dpcore.records.features.labels import LABEL_TYPES, Label
    from parties.data.schema_draft import DRAFT_NAME, bounded, parsed, parsed_category
    from parties.data.schema_draft import infer as draft

    if to is not None:
        check_new(to)
    given = {column: (lower, upper) for column, lower, upper in map(parsed, bounds or ())}
    table, left_out = _table(file, config, {IDS: id_column, EPOCHS: epoch_column})
    if target not in (None, *LABEL_TYPES):
        raise ConfigurationError(f"no type of label is called {target!r}; choose {' or '.join(LABEL_TYPES)}")
    kind, called = target or Label.type, name or DRAFT_NAME
    options: dict[str, Any] = {"target": kind, "name": called, "left_out": left_out, "exposure": exposure}
    options |= {"event": event, "excluded": tuple(dict.fromkeys(exclude or ()))}
    options["categories"] = _categories(map(parsed_category, category or ()))
    schema, notes = draft(table, label, positive, bounded=given, **options)
    schema = bounded(schema, given)
    text = schema.to_toml(notes)
    data = {"schema": text, "digest": schema.digest, "d": schema.d, "notes": notes, "file": to}
    if to is None:
        return Result(data, in_lines(text.split("\n")))
    to.write_text(text, encoding="utf-8")
    for note in notes:
        output.note(note)
    return Result(data, f"{to}: {schema.d} coordinates; read it, correct it, and give every party the same file")


def _categories(given: Iterable[tuple[str, tuple[str, ...] | None]]) -> dict[str, tuple[str, ...] | None]:
    """The values of each category. Raises ConfigurationError if one column is named twice."""
    found: dict[str, tuple[str, ...] | None] = {}
    for column, values in given:
        if column in found:
            raise ConfigurationError(f"category {column!r} is named twice; name it once, with all of its values")
        found[column] = values
    return found


IDS, EPOCHS = "the ids of rows", "the epochs of rows"
"""What columns hold that are no features."""


def _table(
    file: Path | None, config: Path | None, given: dict[str, str | None]
) -> tuple["Path | DatabaseSource", dict[str, str]]:
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
    from parties.data.dataset import check as check_data
    from parties.data.row_guard import advice, refusing_fields
    from radobase.schema_files import load_schema
    from radobase.tables.recoding import load_recode

    loaded = load_schema(schema)
    recoding = None if recode is None else load_recode(recode, loaded)
    lines = [
        f"{schema}: schema {loaded.name!r}, {loaded.d} coordinates, digest {loaded.digest.hex()}",
        f"sensitive features that a query may name: {', '.join(loaded.boolean_coordinates) or 'none'}",
    ]
    found = {
        "name": loaded.name,
        "digest": loaded.digest,
        "coordinates": loaded.coordinates,
        "boolean_coordinates": loaded.boolean_coordinates,
    }
    if warning := advice(loaded):
        output.note(f"warning: {warning}")
    found["refusing"] = refusing_fields(loaded)
    if recoding is not None:
        found["recode_digest"] = recoding.digest
        lines.append(f"{recode}: recodes {', '.join(recoding.columns) or 'no column'}; digest {recoding.digest.hex()}")
    if data is None:
        return Result(found, in_lines(lines))
    output.note(f"reading {data} ...")
    report = check_data(loaded, data, recode=recoding)
    counts = {"rows": report.rows, "zero_vectors": report.zero_vectors, "warnings": report.warnings}
    counts |= {} if recoding is None else {"recoded": report.recoded}
    changes = [change.to_dict() for change in report.changes]
    return Result({**found, **counts, "changes": changes}, in_lines([*lines, *report.sentences()]))
