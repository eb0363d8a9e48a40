"""`rado demo`: a whole federation on this machine, from keys to trained models."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from radofed.cli.framework import check_directory, check_new, command
from radofed.cli.output import Output, Result

if TYPE_CHECKING:
    from dpcore.records.schema import Schema

# ruff: noqa: PLC0415  (a command imports what it needs when it runs, so that help is fast)


def demo(
    output: Output,
    data: Annotated[
        Path | None, typer.Option(help="Your own CSV or Parquet file, instead of the demo's tables.")
    ] = None,
    schema: Annotated[
        Path | None, typer.Option(help="With --data: its schema file. Default: drafted as by `rado schema infer`.")
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="Without --schema: the label's column. Default: the last one.")
    ] = None,
    positive: Annotated[
        list[str] | None, typer.Option(help="Without --schema: a positive value of the label; repeatable.")
    ] = None,
    parties: Annotated[int, typer.Option(help="Number of parties, 2 to 50.")] = 4,
    rados: Annotated[int, typer.Option(help="Number of rados in the second part.")] = 1000,
    split: Annotated[
        str, typer.Option(help="With --data: how rows are split over parties, iid or label-skew.")
    ] = "label-skew",
    sensitive: Annotated[
        str | None, typer.Option(help="The boolean feature that the second part protects. Default: the schema's first.")
    ] = None,
    epsilon_per_rado: Annotated[
        str | None,
        typer.Option(
            help="Second part: epsilon of one rado, by truncation (Algorithm 2); exact. Default: 4, without --data."
        ),
    ] = None,
    keep: Annotated[
        Path | None, typer.Option(help="Keep keys, configurations, logs and models in this new directory.")
    ] = None,
    write_data: Annotated[
        Path | None,
        typer.Option(help="Run nothing: write the made-up patients of the first part to this new CSV file."),
    ] = None,
) -> Result:
    """Run a whole federation on this machine.

    A coordinator, parties and a learner train models without sharing a row. The first part trains newton on synthetic
    patients and protects whole records at epsilon 1. The second trains on rados by DP-FEAT, from handwritten digits.
    With --data both parts use your own table.
    """
    if write_data is not None:
        return _written(write_data)

    from dpcore.errors import ConfigurationError
    from radobase.options import exact_or_none
    from radofed.demo.options import DemoOptions
    from radofed.demo.report import report
    from radofed.demo.run import run_demo

    if split not in ("iid", "label-skew"):
        raise ConfigurationError(f"--split {split!r}: choose iid or label-skew")
    options = DemoOptions(
        data=data,
        schema=_schema(output, data, schema, label, positive),
        parties=parties,
        rados=rados,
        split="iid" if split == "iid" else "label-skew",
        sensitive=sensitive,
        epsilon_per_rado=exact_or_none(epsilon_per_rado, "epsilon-per-rado"),
        keep=None if keep is None else keep.absolute(),
    )
    result = run_demo(options, output.note)
    return Result(result.to_dict(), report(result))


def _schema(
    output: Output, data: Path | None, file: Path | None, label: str | None, positive: list[str] | None
) -> "Schema | None":
    """The schema of the user's table: its file's, or a draft, whose notes are printed; None without a table."""
    from dpcore.errors import ConfigurationError
    from parties.data.schema_draft import infer
    from radobase.files.schemas import load_schema

    if file is not None or data is None:
        if label is not None or positive:
            raise ConfigurationError("--label and --positive are for a table without a schema: leave them out")
        return None if file is None else load_schema(file)
    draft, notes = infer(data, label, positive or None)
    for note in notes:
        output.note(note)
    return draft


def _written(to: Path) -> Result:
    from radofed.demo.patients import schema, table

    check_new(to)
    check_directory(to)
    table().write(None, to)
    label = schema().label
    data = {"file": to, "label": label.column, "positive": label.positive}
    return Result(data, f"{to}: made-up patients; the label is {label.column}, positive {', '.join(label.positive)}")


def add_to(app: typer.Typer) -> None:
    """Make this a command of the given group."""
    command(app, "demo")(demo)
