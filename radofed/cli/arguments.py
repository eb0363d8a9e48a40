"""Options that several commands read in the same way."""

from typing import Annotated

import typer

Timeout = Annotated[
    float | None, typer.Option(help="Longest wait, in seconds; the query continues. Default: no limit.")
]

LabelColumn = Annotated[
    str | None,
    typer.Option("--label", help="The label's column. `schema infer` takes the last one if it is left out."),
]
Positive = Annotated[
    list[str] | None, typer.Option(help="A positive value of the label; repeatable, one value a time.")
]

LISTED = 20
"""How many queries a table has, unless --limit says otherwise."""

Limit = Annotated[
    int | None,
    typer.Option(min=0, help=f"Most queries to show, newest first. Default: {LISTED}; all with --format json."),
]
