"""`rado demo`: a whole federation on this machine, from keys to trained models."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dpcore.declared import values_of
from radofed.cli.framework import check_directory, check_new
from radofed.cli.output import Output, Result
from radofed.demo.options import DemoCommandOptions, DemoFields, DemoOptions

if TYPE_CHECKING:
    from dpcore.records.schema import Schema


def demo(output: Output, options: DemoCommandOptions) -> Result:
    """Run a whole federation on this machine.

    A coordinator, parties and a learner train models without sharing a row. The first part trains newton on synthetic
    patients and protects whole records at epsilon 1. The second trains on rados by DP-FEAT, from handwritten digits.
    With --data both parts use your own table.
    """
    if options.write_data is not None:
        return _written(options.write_data)

    from radofed.demo.child import begin

    demonstrated = DemoOptions(**values_of(options, DemoFields), schema=_schema(output, options))
    if demonstrated.keep is not None:
        demonstrated = replace(demonstrated, keep=demonstrated.keep.absolute())
    begin()

    from radofed.demo.run import report, run_demo

    result = run_demo(demonstrated, output.note)
    return Result(result.to_dict(), report(result))


def _schema(output: Output, options: DemoCommandOptions) -> "Schema | None":
    """The schema of the user's table: its file's, or a draft, whose notes are printed; None without a table."""
    if options.schema is not None or options.data is None:
        from dpcore.errors import ConfigurationError
        from radobase.schema_files import load_schema

        if options.label is not None or options.positive:
            raise ConfigurationError("--label and --positive are for a table without a schema: leave them out")
        return None if options.schema is None else load_schema(options.schema)

    from parties.data.schema_draft import infer

    draft, notes = infer(options.data, options.label, options.positive or None)
    for note in notes:
        output.note(note)
    return draft


def _written(to: Path) -> Result:
    from dpcore.records.features import two_classes
    from radofed.demo.tables import schema, table

    check_new(to)
    check_directory(to)
    table().write(None, to)
    label = two_classes(schema().label, "the made-up table")
    data = {"file": to, "label": label.column, "positive": label.positive}
    return Result(data, f"{to}: made-up patients; the label is {label.column}, positive {', '.join(label.positive)}")
