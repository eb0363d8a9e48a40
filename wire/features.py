"""Features: what a node can do, by name. Every party states those of its node, and a query names those that it uses.

Unknown fields are refused, so what a version adds may only reach nodes that know it: it gets a name here. All that
version 0.3.0 can do is one feature, `BASE`. A node refuses a query without it, which an older node sent, and a query
with a name that it does not know.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from dpcore.records.schema import Schema
from dpcore.records.shared_schema import MOST_LABELS
from rado.v1 import roster_pb2
from wire.envelopes import KEY_BYTES, Envelope, MessageType, Signable
from wire.errors import Code, WireError
from wire.roster import Member, Roster, open_from_party

MAX_FEATURES = 64
MAX_SCHEMAS = 2 * MOST_LABELS
"""That a node states: each label with and without a weight."""
BASE_VERSION = "0.3.0"
_NAME = re.compile(r"[a-z0-9-]{1,63}")


class Feature(StrEnum):
    """The features of this version. The value is the name that travels."""

    BASE = "base-0-3"
    """Everything that version 0.3.0 can do. Every query names it."""
    QUESTION = "question"
    """The query only asks whether parties would accept it: none reserves or charges."""
    NUMBERS = "numbers"
    """The schema's label is a number or a count."""
    EVENT_TIMES = "event-times"
    """The schema's label is a time to an event."""
    COHORT_NOISE = "cohort-noise"
    """The noise is that of the cohort that answers (dpcore.accounting.cohorts)."""
    WEIGHTS = "weights"
    """The schema has a weight: moments and gradients count each record by it (dpcore.records.weight)."""
    CLASS_PRODUCTS = "class-products"
    """Moments have products of each class (dpcore.queries.class_moments)."""
    PERSONS = "persons"
    """Persons are the unit of privacy (dpcore.records.persons)."""
    CLASS_WEIGHTS = "class-weights"
    """A gradient weighs the classes of the label (dpcore.queries.gradient)."""
    MASK_GRAPH = "mask-graph"
    """Members share masks with some others, not with all (dpcore.paillier.mask_graph)."""
    SURVIVORS = "survivors"
    """Some members of a cohort may vanish, and the rest has a total (dpcore.paillier.survivors)."""
    STUDY = "study"
    """The query names the study that it is part of (wire.study)."""
    SHORT_OPENING = "short-opening"
    """The Paillier key has a subgroup that obfuscators are drawn from (dpcore.paillier.subgroup)."""
    TRAINING = "training"
    """The query names the training that it is a round of (wire.training)."""


OWN_FEATURES: tuple[str, ...] = tuple(sorted(feature.value for feature in Feature))
"""The features of a node of this version."""


def features_of(schema: Schema, *others: Feature) -> tuple[str, ...]:
    """The features of a query with this schema. others: that it has besides, whatever its schema."""
    coding = schema.label.coding
    used = [Feature.BASE, *others]
    used += [Feature.NUMBERS] if coding.is_measured else []
    used += [Feature.EVENT_TIMES] if coding.intervals else []
    used += [] if schema.weight is None else [Feature.WEIGHTS]
    return tuple(sorted(feature.value for feature in used))


def check_features(names: Iterable[str]) -> tuple[str, ...]:
    """The names, if they are well formed. Raises WireError(MESSAGE_MALFORMED)."""
    features = tuple(names)
    well_formed = all(_NAME.fullmatch(name) for name in features)
    if len(features) > MAX_FEATURES or list(features) != sorted(set(features)) or not well_formed:
        raise WireError(Code.MESSAGE_MALFORMED, "A list of features is not well formed.")
    return features


@dataclass(frozen=True)
class Features(Signable[roster_pb2.Features]):
    """What a party's node can do, and which schemas it answers about. version: of its program, for people."""

    KIND: ClassVar[MessageType] = MessageType.FEATURES
    federation: str
    party: str
    features: tuple[str, ...]
    version: str
    signed_at_unix_s: int
    schemas: tuple[bytes, ...] = ()
    """Digests, ascending; none if it states none."""
    columns: tuple[bytes, ...] = ()
    """`Schema.columns_digest` of these, ascending."""

    def __post_init__(self) -> None:
        check_features(self.features)
        for digests in (self.schemas, self.columns):
            well_formed = all(len(digest) == KEY_BYTES for digest in digests)
            if len(digests) > MAX_SCHEMAS or list(digests) != sorted(set(digests)) or not well_formed:
                raise WireError(Code.MESSAGE_MALFORMED, "A list of schemas is not well formed.")
        if len(self.version) > 64 or not self.version.isprintable():
            raise WireError(Code.MESSAGE_MALFORMED, "A version has at most 64 printable characters.")


def schemas_stated(schemas: Iterable[Schema]) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """`schemas` and `columns` of `Features` for a node with these schemas; it also answers without their weight."""
    answered = [each for own in schemas for each in (own, own.unweighted)]
    digests, columns = {each.digest for each in answered}, {each.columns_digest for each in answered}
    return tuple(sorted(digests)), tuple(sorted(columns))


def open_features(envelope: Envelope, roster: Roster) -> tuple[Features, Member]:
    """The verified statement of a party of the roster, and the party. Raises WireError."""
    statement = Features.from_bytes(envelope.payload)
    if statement.federation != roster.federation:
        raise WireError(Code.FEDERATION_MISMATCH)
    return statement, open_from_party(envelope, MessageType.FEATURES, statement.party, roster)


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


def features_lacking(features: Iterable[str], stated: Stated) -> tuple[str, ...]:
    """A clause for each party that states that it lacks a feature of a query. One that states nothing says nothing."""
    wanted = set(features)
    return tuple(
        f"{name} lacks {', '.join(sorted(wanted - own))}"
        for name, own in stated.items()
        if own is not None and wanted - own
    )


def check_cohort_able(features: Iterable[str], cohort_min: int, stated: Stated) -> None:
    """Raise WireError(FEATURE_MISSING) if so many parties state that they lack a feature that no cohort can form."""
    lacking = features_lacking(features, stated)
    if len(stated) - len(lacking) < cohort_min:
        who = "; ".join(lacking)
        raise WireError(Code.FEATURE_MISSING, f"A cohort needs {cohort_min} parties, and {who}: upgrade their nodes.")


def schema_lacking(schema: Schema, stated: Mapping[str, Features | None]) -> tuple[str, ...]:
    """A clause for each party that states that it does not answer about a schema: that it lacks the label, or other.

    stated: by party that is asked. One that states no schemas says nothing about them.
    """
    found = []
    for name, own in stated.items():
        if own is not None and own.schemas and schema.digest not in own.schemas:
            has_the_rest = schema.columns_digest in own.columns
            what = f"has no such label of column {schema.label.column!r}" if has_the_rest else "has another schema"
            found.append(f"{name} {what}")
    return tuple(found)


def check_schema_held(lacking: Sequence[str], cohort_min: int, asked: int) -> None:
    """Raise WireError(SCHEMA_MISMATCH) if so many of the asked parties lack a schema that no cohort can form."""
    if lacking and asked - len(lacking) < cohort_min:
        raise WireError(
            Code.SCHEMA_MISMATCH, f"A cohort needs {cohort_min} parties, and {'; '.join(lacking)}. Nothing was sent."
        )
