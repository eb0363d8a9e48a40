"""What an honest party sends in an attempt, as forms over unknowns.

The forms are those of the code: dpcore.paillier.packing (slots), masks and tag. Every rule of the protocol whose
absence was or would be a fault is a parameter, with today's protocol as default. So that model and code do not drift
apart, tests/end_to_end/test_forms_of_uploads.py decrypts real uploads and compares each plaintext with its form.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from dpcore.research.who_learns_what.forms import ZERO, Form, Unknown, total

CHECK, TAG = "check", "tag"
"""Places besides those of the values, which are "1", "2" and so on."""


class Kind(StrEnum):
    """Of unknowns."""

    DATA = "data"
    """What a party adds to a value of every total: the same in all attempts."""
    NOISE = "noise"
    """What it adds in one attempt: shares of noise, rado signatures that are drawn afresh."""
    ROWS = "rows"
    """Its row count, which it signs and all members see."""
    OFFSET = "offset"
    """2^(w-1), which makes what travels positive."""
    MASK = "mask"
    """What two members derive for one slot or for tags."""
    PAD = "pad"
    """What a member and the learner derive for the tag."""
    ALPHA = "alpha"
    """The tag's coefficient."""


@dataclass(frozen=True)
class Protocol:
    """The rules."""

    values: int = 2
    """Of one ciphertext, at least 2 (see `dpcore.research.who_learns_what.learning`)."""
    has_tag: bool = True
    """Whether totals carry a tag (feature bound-totals)."""
    commits_seeds: bool = True
    """Whether the query commits to one seed, so that every party has the same coefficient."""
    seeds_for_roster: bool = False
    """Whether the learner seals the seed to parties that it has not accepted."""
    unmasked: frozenset[tuple[str, str]] = frozenset()
    """Pairs of members (lesser name, greater name) that do not mask."""
    masks_tags: bool = True
    """Whether tags are masked."""
    masks_name_attempt: bool = True
    """Whether masks differ between attempts (fresh keys, and the attempt in the derivation)."""
    masks_name_cohort: bool = True
    """Whether masks differ between cohorts."""
    pads_name_attempt: bool = True
    """Whether pads differ between attempts and cohorts."""

    @property
    def places(self) -> tuple[str, ...]:
        """Of the values."""
        return tuple(str(place) for place in range(1, self.values + 1))


TODAY = Protocol()


@dataclass(frozen=True)
class Shown:
    """What a sender shows one recipient in one attempt."""

    attempt: int
    """Its number; those of one query and of several are alike here."""
    members: frozenset[str]
    """Of the cohort that it is shown."""
    variant: int = 0
    """Distinguishes whatever else enters the cohort's digest: the mask keys of colluding members, members that nobody
    accepted, row counts, the query itself."""
    seed: int = 0
    """Which seed was sealed for it."""

    @property
    def digest(self) -> str:
        """Equal for two recipients exactly if attempt, members and variant are."""
        return f"{self.attempt}:{self.cohort}"

    @property
    def cohort(self) -> str:
        """The digest without the attempt."""
        return f"{'+'.join(sorted(self.members))}:{self.variant}"


@dataclass(frozen=True)
class Upload:
    """The plaintexts that a party sends.

    Nothing else of what it sends depends on its values: an acceptance has its row count, which is public, and the
    public half of a fresh key; a receipt has digests of what was sent and of the cohort.
    """

    party: str
    shown: Shown
    slots: tuple[Form, ...]
    """Check slot first, then the values."""
    tag: Form | None
    """None without the feature."""


def contribution(party: str, place: str, shown: Shown) -> Form:
    """One value that a party adds to a total: of its data, and what it draws afresh in every attempt."""
    return Form.of(Unknown(Kind.DATA, party, place)) + Form.of(Unknown(Kind.NOISE, party, place, str(shown.attempt)))


def alpha(shown: Shown, protocol: Protocol) -> Form:
    """The tag's coefficient, as a recipient of this derives it."""
    seed = 0 if protocol.commits_seeds else shown.seed
    return Form.of(Unknown(Kind.ALPHA, str(seed), "", str(shown.attempt)))


def polynomial(values: tuple[Form, ...], coefficient: Form) -> Form:
    """Alpha v_1 + alpha^2 v_2 + ..."""
    result = ZERO
    for value in reversed(values):
        result = (result + value) * coefficient
    return result


def pad(party: str, shown: Shown, protocol: Protocol) -> Form:
    """The pad of a member's tag, which the learner derives too."""
    return Form.of(Unknown(Kind.PAD, party, "", shown.digest if protocol.pads_name_attempt else ""))


def mask(party: str, place: str, shown: Shown, protocol: Protocol) -> Form:
    """A member's mask of one slot, or of its tag."""
    return total(_masks(party, place, shown, protocol))


def _masks(party: str, place: str, shown: Shown, protocol: Protocol) -> Iterator[Form]:
    cohort = shown.cohort if protocol.masks_name_cohort else ""
    derived_for = f"{shown.attempt if protocol.masks_name_attempt else 0}:{cohort}"
    for peer in sorted(shown.members - {party}):
        lesser, greater = sorted((party, peer))
        if (lesser, greater) not in protocol.unmasked:
            stream = Form.of(Unknown(Kind.MASK, f"{lesser}+{greater}", place, derived_for))
            yield stream if party == lesser else -stream


def pair_of(unknown: Unknown) -> tuple[str, str]:
    """The two members that derive a mask."""
    lesser, greater = unknown.of.split("+")
    return lesser, greater


@lru_cache(1 << 12)
def upload(party: str, shown: Shown, protocol: Protocol = TODAY) -> Upload:
    """What an honest party sends for what it was shown."""
    offset = Form.of(Unknown(Kind.OFFSET))
    values = tuple(contribution(party, place, shown) for place in protocol.places)
    bare = (Form.of(Unknown(Kind.ROWS, party)), *values)
    places = (CHECK, *protocol.places)
    slots = tuple(
        value + offset + mask(party, place, shown, protocol) for value, place in zip(bare, places, strict=True)
    )
    if not protocol.has_tag:
        return Upload(party, shown, slots, None)
    tag = pad(party, shown, protocol) + polynomial(values, alpha(shown, protocol))
    return Upload(party, shown, slots, tag + mask(party, TAG, shown, protocol) if protocol.masks_tags else tag)
