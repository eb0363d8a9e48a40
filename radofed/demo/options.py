"""The options of `rado demo`."""

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from dpcore.declared import Declared, Option
from dpcore.errors import ConfigurationError

if TYPE_CHECKING:
    from dpcore.records.schema import Schema

Split = Literal["iid", "label-skew"]

DELTA = Fraction(1, 1_000_000)
"""The delta of every epsilon in the demo."""


@dataclass(frozen=True, kw_only=True)
class DemoFields(Declared):
    """What the demo has, as options and as a request."""

    parties: Annotated[int, Option("Number of parties.", at_least=2, at_most=50)] = 4
    rados: Annotated[int, Option("Number of rados in the second part.", at_least=2)] = 1000
    split: Annotated[Split, Option("With --data: how rows are split over parties, iid or label-skew.")] = "label-skew"
    sensitive: Annotated[
        str | None, Option("The boolean feature that the second part protects.", default="the schema's first")
    ] = None
    epsilon_per_rado: Annotated[
        Fraction | None,
        Option("Second part: epsilon of one rado, by truncation (Algorithm 2).", default="4, without --data", above=0),
    ] = None
    data: Annotated[Path | None, Option("Your own CSV or Parquet file, instead of the demo's tables.")] = None
    keep: Annotated[Path | None, Option("Keep keys, configurations, logs and models in this new directory.")] = None


@dataclass(frozen=True, kw_only=True)
class DemoCommandOptions(DemoFields):
    """The options of `rado demo`."""

    schema: Annotated[
        Path | None, Option("With --data: its schema file.", default="drafted as by `rado schema infer`")
    ] = None
    label: Annotated[str | None, Option("Without --schema: the label's column.", default="the last one")] = None
    positive: Annotated[tuple[str, ...], Option("Without --schema: a positive value of the label; repeatable.")] = ()
    write_data: Annotated[
        Path | None, Option("Run nothing: write the made-up patients of the first part to this new CSV file.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class DemoOptions(DemoFields):
    """What to demonstrate. Raises ConfigurationError if the options contradict each other."""

    schema: "Schema | None" = None
    """Of `data`: both are the user's own, or neither."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.data is None) != (self.schema is None):
            raise ConfigurationError("a schema is of a table of your own: give --data with --schema, or neither")
        if self.keep is not None and self.keep.exists():
            raise ConfigurationError(f"{self.keep}: already exists; give another directory")
