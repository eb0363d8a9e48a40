"""The options of `rado demo`."""

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from dpcore.errors import ConfigurationError
from dpcore.records.schema import Schema
from radofed.demo.tables import Split

DELTA = Fraction(1, 1_000_000)
"""The delta of every epsilon in the demo."""


@dataclass(frozen=True)
class DemoOptions:
    """What to demonstrate.

    Raises ConfigurationError if the options contradict each other.
    """

    data: Path | None = None
    schema: Schema | None = None
    """The user's own, both or neither."""
    parties: int = 4
    rados: int = 1000
    split: Split = "label-skew"
    sensitive: str | None = None
    """By default the first boolean coordinate of the schema; if there is none, the design is plain."""
    epsilon_per_rado: Fraction | None = None
    """Of the part on rados."""
    keep: Path | None = None
    """The directory for all files, or None."""

    def __post_init__(self) -> None:
        if (self.data is None) != (self.schema is None):
            raise ConfigurationError("a schema is of a table of your own: give --data with --schema, or neither")
        if not 2 <= self.parties <= 50:
            raise ConfigurationError(f"{self.parties} parties: the demo runs 2 to 50 of them on this machine")
        if self.rados < 2:
            raise ConfigurationError(f"{self.rados} rados: ask for at least 2")
        if self.keep is not None and self.keep.exists():
            raise ConfigurationError(f"{self.keep}: already exists; give another directory")
