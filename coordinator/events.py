"""Events of a query, and the coordinator's actions on them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PartyAnswer:
    """A party's answer to one attempt."""

    digest: str
    """SHA-256 of the signed payload, in hexadecimal."""
    rows: int = 0
    """m_p, 0 if the party refused."""
    code: str = ""
    """Of the refusal, empty if it accepted."""

    @property
    def accepted(self) -> bool:
        """Whether the party will contribute."""
        return not self.code


@dataclass(frozen=True)
class Answered:
    """A party accepted or refused."""

    attempt: int
    party: str
    answer: PartyAnswer


@dataclass(frozen=True)
class BecamePending:
    """A person at the party has to decide before it answers."""

    attempt: int
    party: str


@dataclass(frozen=True)
class KeysShared:
    """A party dealt shares of its keys, because members may vanish."""

    attempt: int
    party: str
    digest: str
    """SHA-256 of the signed payload, in hexadecimal."""


@dataclass(frozen=True)
class UnmaskingGiven:
    """A survivor revealed what the learner needs to open the total."""

    attempt: int
    party: str
    digest: str
    """SHA-256 of the signed payload, in hexadecimal."""


@dataclass(frozen=True)
class BecameReady:
    """A party has spooled its contribution."""

    attempt: int
    party: str


@dataclass(frozen=True)
class ReceiptGiven:
    """A party uploaded everything."""

    attempt: int
    party: str
    digest: str
    """SHA-256 of the receipt's payload, in hexadecimal."""


@dataclass(frozen=True)
class UploadsLost:
    """Uploads of these parties are no longer on disk, after a backup was restored. Their receipts stand for nothing."""

    attempt: int
    parties: frozenset[str]


@dataclass(frozen=True)
class Added:
    """The total of this attempt is stored."""

    attempt: int


@dataclass(frozen=True)
class AddingFailed:
    """The total of this attempt cannot be computed."""

    attempt: int
    detail: str
    """A public sentence."""


@dataclass(frozen=True)
class Cancelled:
    """The learner cancelled the query."""


@dataclass(frozen=True)
class Retried:
    """The learner decided to make this attempt, after the one before it was lost."""

    attempt: int


@dataclass(frozen=True)
class Ticked:
    """Time has passed."""


@dataclass(frozen=True)
class Expelled:
    """A newer roster does not list these parties, or lists them with other keys than they answered with."""

    parties: frozenset[str]


PartyEvent = Answered | BecamePending | KeysShared | BecameReady | ReceiptGiven | UnmaskingGiven
"""What a party's signed statement becomes."""

Event = PartyEvent | UploadsLost | Added | AddingFailed | Cancelled | Retried | Ticked | Expelled


@dataclass(frozen=True)
class FixCohort:
    """The cohort of an attempt is fixed: members in the roster's order."""

    attempt: int
    members: tuple[str, ...]


@dataclass(frozen=True)
class StartAdding:
    """Multiply the cohort's uploads."""

    attempt: int


@dataclass(frozen=True)
class DropUploads:
    """Delete the uploads of this attempt: they are no longer needed."""

    attempt: int


@dataclass(frozen=True)
class Finished:
    """The query is in a terminal phase."""

    code: str
    """Empty if it is complete."""


Action = FixCohort | StartAdding | DropUploads | Finished
