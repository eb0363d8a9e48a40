"""The study that a learner asks for: the `[study]` table of its configuration, or a file of its own."""

import datetime as dt
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, model_validator

from radobase.configuration import Configuration
from wire.errors import WireError
from wire.study import Study, day_of


def _day(value: Any) -> dt.date:
    """Of TOML, a date with or without quotation marks."""
    if type(value) is dt.date:
        return value
    try:
        return day_of(str(value))
    except WireError:
        raise ValueError("write a date, such as 2026-11-01") from None


Day = Annotated[dt.date, BeforeValidator(_day)]
"""A day, in UTC."""


class StudyTable(Configuration):
    """A study, as each query of it states it: signed, and shown to the people who decide at a party."""

    protocol_number: str
    """Number under which the study is known, such as to an ethics board, character by character as the parties have it.
    At most 60 characters. A party's budget for the study goes by it."""
    purpose: str
    """What the study is to find out. At most 200 characters, as all other texts."""
    organisation: str
    """This learner's organisation."""
    person_in_charge: str
    """Who answers for the study there."""
    begins: Day
    """First day on which it asks, in UTC, such as `2026-11-01`."""
    ends: Day
    """Last day on which it asks."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        try:
            self.study()
        except WireError as error:
            raise ValueError(error.detail) from error
        return self

    def study(self) -> Study:
        """What queries state of it."""
        return Study(**dict(self))


def load_study(path: Path | str) -> Study:
    """The study of a file. Raises ConfigurationError."""
    return StudyTable.load(Path(path)).study()
