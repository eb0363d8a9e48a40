"""The study that a query is part of, as its learner states it in the signed query: what, for whom, until when.

Nothing checks what it says. A party counts what is charged under its protocol number, and answers on its days only.
"""

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property
from typing import Annotated

from rado.v1 import query_pb2
from radobase.printing import json_text
from wire.codec import Travels, Wire
from wire.errors import Code, WireError
from wire.texts import MAX_PURPOSE, is_purpose

MAX_PROTOCOL_NUMBER = 60
"""The most characters of a protocol number."""
TEXTS = ("purpose", "protocol_number", "organisation", "person_in_charge")
"""The fields that are texts, in their order."""
TITLE = "study, as the learner states it, which nothing checks:"
_DOMAIN = b"rado.v1/study\0"
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def day_of(text: str) -> date:
    """The day that is written so. Raises WireError(QUERY_INVALID)."""
    try:
        if not _DAY.fullmatch(text):
            raise ValueError
        return date.fromisoformat(text)
    except ValueError:
        raise WireError(Code.QUERY_INVALID, "It must hold that a study's days are dates, such as 2026-11-01.") from None


_AS_DAY = Travels(write=date.isoformat, read=day_of)


def study_lines(study: "Study | None") -> list[str]:
    """What a query states of its study, for people; that it names none, if it names none."""
    return ["study: none is named"] if study is None else study.lines()


@dataclass(frozen=True)
class Study(Wire[query_pb2.Study]):
    """What a learner says of the study that it asks for. Raises WireError(QUERY_INVALID) if a text or a day is odd."""

    purpose: str
    """What it is to find out."""
    protocol_number: str
    """Under which it is known, such as to an ethics board. Its budget at a party goes by this number."""
    organisation: str
    """The learner's."""
    person_in_charge: str
    """Who answers for it there."""
    begins: Annotated[date, _AS_DAY]
    ends: Annotated[date, _AS_DAY]
    """The first and the last day on which it asks, in UTC."""

    def __post_init__(self) -> None:
        for name in TEXTS:
            most = MAX_PROTOCOL_NUMBER if name == "protocol_number" else MAX_PURPOSE
            text = getattr(self, name)
            if len(text) > most or not is_purpose(text):
                rule = f"1 to {most} printable characters, on one line, without outer spaces"
                raise WireError(Code.QUERY_INVALID, f"It must hold that {name} of a study has {rule}.")
        if self.ends < self.begins:
            raise WireError(Code.QUERY_INVALID, "It must hold that a study ends on a day that is not before its first.")

    @cached_property
    def digest(self) -> bytes:
        """What identifies it: SHA-256 of "rado.v1/study" 00 and its six texts, each after its length (32 bits)."""
        texts = [*(getattr(self, name) for name in TEXTS), self.begins.isoformat(), self.ends.isoformat()]
        parts = (text.encode() for text in texts)
        return hashlib.sha256(_DOMAIN + b"".join(len(part).to_bytes(4, "big") + part for part in parts)).digest()

    def to_dict(self) -> dict[str, str]:
        """All it says by name, and its digest, in JSON types."""
        texts = {name: getattr(self, name) for name in TEXTS}
        return {**texts, "begins": self.begins.isoformat(), "ends": self.ends.isoformat(), "digest": self.digest.hex()}

    @property
    def days(self) -> str:
        """From when to when, in words."""
        return f"{self.begins} to {self.ends}"

    @property
    def short(self) -> str:
        """Number and purpose in one line, quoted so that they look like nothing else."""
        return f"{json_text(self.protocol_number)}, {json_text(self.purpose)}"

    def lines(self) -> list[str]:
        """For people, one fact a line, after a title. Texts are quoted."""
        facts = {
            "protocol number": json_text(self.protocol_number),
            "purpose": json_text(self.purpose),
            "organisation": json_text(self.organisation),
            "person in charge": json_text(self.person_in_charge),
            "days (UTC)": self.days,
            "digest": self.digest.hex(),
        }
        return [TITLE, *(f"  {name}: {value}" for name, value in facts.items())]

    def ends_before(self, unix_s: float) -> bool:
        """Whether its last day is over at a time."""
        return datetime.fromtimestamp(unix_s, UTC).date() > self.ends

    def check_day(self, now_unix_s: float) -> None:
        """Raise WireError(STUDY_DATES) before its first and after its last day, in UTC."""
        today = datetime.fromtimestamp(now_unix_s, UTC).date()
        if today < self.begins:
            raise WireError(Code.STUDY_DATES, f"It begins on {self.begins}, and it is {today} (UTC).")
        if today > self.ends:
            raise WireError(Code.STUDY_DATES, f"It ended on {self.ends}, and it is {today} (UTC).")
