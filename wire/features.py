"""Features: optional parts of the protocol, which every party states for its own node, and which a query names.

Unknown fields are refused, so a new field may only reach nodes that know it. A party signs the features of its node. A
query has all usual features of its version: parties and coordinator refuse one without them, so neither a learner nor a
coordinator that withholds statements can weaken a query. A learner refuses to plan if too few parties for a cohort have
them. A feature that changes what is asked is used where it is asked, and never left out.
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
_NAME = re.compile(r"[a-z0-9-]{1,63}")


class Feature(StrEnum):
    """The features of this version. The value is the name that travels."""

    BOUND_TOTALS = "bound-totals"
    """The total carries a tag that binds it to query, attempt and cohort (Query.binding)."""
    COMMITTED_SEEDS = "committed-seeds"
    """The query commits to the seed of its tag (Binding.commitment), so that all parties have the same."""
    QUORUM_WAIT = "quorum-wait"
    """Once enough parties for a cohort have accepted, or are ready, the others have Query.quorum_wait_s left."""
    SIGNED_RETRIES = "signed-retries"
    """A second attempt needs the learner's signed Retry."""
    FRESH_ROSTERS = "fresh-rosters"
    """Acceptances carry the newest roster version that the party has."""
    DECISIONS = "decisions"
    """A party may say that a person has to decide before it answers."""
    LEDGER_HEADS = "ledger-heads"
    """Acceptances and receipts carry the head of the party's ledger, and parties witness one another's."""
    WITNESSED_ATTEMPTS = "witnessed-attempts"
    """A witness shows every attempt that it was in a cohort with (Witness.in_cohorts), not the newest alone."""
    HELD_BACK = "held-back"
    """The query is about a part of each party's rows (Query.held_back). Other queries do not name it."""
    FEATURE_MAPS = "feature-maps"
    """Records are mapped before they are clipped (Query.feature_map). Other queries do not name it."""

    QUESTION = "question"
    """The query only asks whether parties would accept it: none reserves or charges. Others do not name it."""
    PURPOSE = "purpose"
    """The query says what its answer is for (Query.purpose). Other queries do not name it."""


OWN_FEATURES: tuple[str, ...] = tuple(sorted(feature.value for feature in Feature))
"""The features of a node of this version."""

ON_REQUEST = frozenset(
    {Feature.QUORUM_WAIT, Feature.HELD_BACK, Feature.FEATURE_MAPS, Feature.QUESTION, Feature.PURPOSE}
)
"""Features that a query names only if it needs them."""

USUAL_FEATURES: tuple[str, ...] = tuple(name for name in OWN_FEATURES if name not in ON_REQUEST)
"""The features of every query of this version."""


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


Stated = Mapping[str, frozenset[str] | None]
"""What each party of a roster states, by name; None for a party that states nothing: an older node, or a new member."""


def check_cohort_able(features: Iterable[str], cohort_min: int, stated: Stated) -> None:
    """Raise WireError(FEATURE_MISSING) if so many parties state that they lack a feature that no cohort can form."""
    lacking = {
        name: sorted(set(features) - own) for name, own in stated.items() if own is not None and set(features) - own
    }
    if len(stated) - len(lacking) < cohort_min:
        who = "; ".join(f"{name} lacks {', '.join(missing)}" for name, missing in lacking.items())
        raise WireError(Code.FEATURE_MISSING, f"A cohort needs {cohort_min} parties, and {who}.")
