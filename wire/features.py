"""Features: what a node can do, by name. Every party states those of its node, and a query names those that it uses.

Unknown fields are refused, so what a version adds may only reach nodes that know it: it gets a name here. All that
version 0.3.0 can do is one feature, `BASE`. A node refuses a query without it, which an older node sent, and a query
with a name that it does not know.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from rado.v1 import roster_pb2
from wire.envelopes import Envelope, Kind, Signable
from wire.errors import Code, WireError
from wire.roster import Member, Roster, open_from_party

MAX_FEATURES = 64
BASE_VERSION = "0.3.0"
_NAME = re.compile(r"[a-z0-9-]{1,63}")


class Feature(StrEnum):
    """The features of this version. The value is the name that travels."""

    BASE = "base-0-3"
    """Everything that version 0.3.0 can do. Every query names it."""
    QUESTION = "question"
    """The query only asks whether parties would accept it: none reserves or charges."""


OWN_FEATURES: tuple[str, ...] = tuple(sorted(feature.value for feature in Feature))
"""The features of a node of this version."""


def check_features(names: Iterable[str]) -> tuple[str, ...]:
    """The names, if they are well formed. Raises WireError(MESSAGE_MALFORMED)."""
    features = tuple(names)
    well_formed = all(_NAME.fullmatch(name) for name in features)
    if len(features) > MAX_FEATURES or list(features) != sorted(set(features)) or not well_formed:
        raise WireError(Code.MESSAGE_MALFORMED, "A list of features is not well formed.")
    return features


@dataclass(frozen=True)
class Features(Signable[roster_pb2.Features]):
    """What a party's node can do. version: of its program, for people."""

    KIND: ClassVar[Kind] = Kind.FEATURES
    federation: str
    party: str
    features: tuple[str, ...]
    version: str
    signed_at_unix_s: int

    def __post_init__(self) -> None:
        check_features(self.features)
        if len(self.version) > 64 or not self.version.isprintable():
            raise WireError(Code.MESSAGE_MALFORMED, "A version has at most 64 printable characters.")


def open_features(envelope: Envelope, roster: Roster) -> tuple[Features, Member]:
    """The verified statement of a party of the roster, and the party. Raises WireError."""
    statement = Features.from_bytes(envelope.payload)
    if statement.federation != roster.federation:
        raise WireError(Code.FEDERATION_MISMATCH)
    return statement, open_from_party(envelope, Kind.FEATURES, statement.party, roster)


def check_known(names: Iterable[str]) -> None:
    """Raise WireError(FEATURE_MISSING) if this node is too old for a query with these features, or the query for it."""
    if Feature.BASE not in names:
        raise WireError(Code.FEATURE_MISSING, too_old("The learner's node"))
    if missing := sorted(set(names) - set(OWN_FEATURES)):
        raise WireError(Code.FEATURE_MISSING, f"Missing here: {', '.join(missing)}.")


def too_old(node: str, version: str = "") -> str:
    """The sentence that refuses a node without `BASE`. version: that it states."""
    has = f"has version {version}" if version else f"is older than {BASE_VERSION}"
    return f"{node} {has}: upgrade it to {BASE_VERSION} or newer."


Stated = Mapping[str, frozenset[str] | None]
"""What each party of a roster states, by name; None for a party that states nothing, such as a new member."""


def check_cohort_able(features: Iterable[str], cohort_min: int, stated: Stated) -> None:
    """Raise WireError(FEATURE_MISSING) if so many parties state that they lack a feature that no cohort can form."""
    lacking = {
        name: sorted(set(features) - own) for name, own in stated.items() if own is not None and set(features) - own
    }
    if len(stated) - len(lacking) < cohort_min:
        who = "; ".join(f"{name} lacks {', '.join(missing)}" for name, missing in lacking.items())
        raise WireError(Code.FEATURE_MISSING, f"A cohort needs {cohort_min} parties, and {who}: upgrade their nodes.")
