"""`rado demo`: a federation on this machine, from nothing to a table."""

from pathlib import Path
from typing import Annotated

import typer

from radofed.cli.framework import command
from radofed.cli.output import Output, Result

# ruff: noqa: PLC0415  (a command imports what it needs when it runs, so that help comes at once)


def demo(
    output: Output,
    data: Annotated[Path | None, typer.Option(help="Your own CSV or Parquet file, for both parts.")] = None,
    schema: Annotated[Path | None, typer.Option(help="Its schema.")] = None,
    parties: Annotated[int, typer.Option(help="Over how many parties the rows are split.")] = 4,
    rados: Annotated[int, typer.Option(help="How many rados the second part asks for.")] = 1000,
    split: Annotated[str, typer.Option(help="With --data: iid, or label-skew.")] = "label-skew",
    sensitive: Annotated[str | None, typer.Option(help="The boolean feature that the rados protect.")] = None,
    epsilon_per_rado: Annotated[str | None, typer.Option(help="Algorithm 2's epsilon, an exact decimal.")] = None,
    keep: Annotated[Path | None, typer.Option(help="Leave keys, configurations, logs and models there.")] = None,
) -> Result:
    """Run a coordinator, parties and a learner on this machine, and train models without sharing a row.

    First newton on made-up patients, with whole records protected at epsilon 1; then rados by DP-FEAT on handwritten
    digits. With --data both are of your own table.
    """
    from dpcore.errors import ConfigurationError
    from radofed.cli.arguments import exact
    from radofed.common.files.schemas import load_schema
    from radofed.demo.options import DemoOptions
    from radofed.demo.report import report
    from radofed.demo.run import run_demo

    if split not in ("iid", "label-skew"):
        raise ConfigurationError(f"--split {split!r}: choose iid or label-skew")
    options = DemoOptions(
        data=data,
        schema=None if schema is None else load_schema(schema),
        parties=parties,
        rados=rados,
        split="iid" if split == "iid" else "label-skew",
        sensitive=sensitive,
        epsilon_per_rado=None if epsilon_per_rado is None else exact(epsilon_per_rado, "epsilon-per-rado"),
        keep=None if keep is None else keep.absolute(),
    )
    result = run_demo(options, output.note)
    return Result(result.to_dict(), report(result))


def add_to(app: typer.Typer) -> None:
    """Make this a command of the given group."""
    command(app, "demo")(demo)
