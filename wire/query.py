"""Queries of a learner. Every receiver checks them with one function."""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, ClassVar, cast

from dpcore.accounting.cohorts import Cohorts
from dpcore.accounting.protection import Setting
from dpcore.accounting.words import person
from dpcore.errors import PlanError, RadofedError, SchemaError, SlotOverflowError
from dpcore.numbers.fixed_point import Encoding, check_fits
from dpcore.paillier.packing import ciphertext_count
from dpcore.paillier.public import PublicKey
from dpcore.paillier.subgroup import Subgroup
from dpcore.paillier.survivors import MOST_SHARERS, is_enough, threshold
from dpcore.queries.kind import MAX_PARTIES, MAX_VALUES, QueryLimits
from dpcore.records.feature_map import FeatureMap
from dpcore.records.held_back import HeldBack
from dpcore.records.persons import Persons
from dpcore.records.records import Records
from dpcore.records.schema import Schema
from rado.v1 import query_pb2
from wire.binding import Binding
from wire.codec import Travels, Wire, codec, parse
from wire.envelopes import Envelope, MessageType, Signable
from wire.errors import Code, WireError
from wire.features import Feature, check_features
from wire.query_kinds import (
    KIND_FIELDS,
    feature_map_from_proto,
    feature_map_to_proto,
    has_class_products,
    has_class_weights,
    read_kind,
    write_kind,
)
from wire.query_kinds import AnyKind as QueryKind
from wire.request_fields import FEWEST_NEIGHBOURS
from wire.roster import Role, Roster, open_from
from wire.statements import ciphertexts_per_chunk
from wire.study import Study
from wire.texts import EPOCH_RULE, PURPOSE_RULE, is_epoch, is_purpose
from wire.training import Training

CLOCK_SKEW_S = 300
MAX_QUERY_BYTES = 512 * 1024
MAX_RETRY_BYTES = 1024
MAX_PHASE_S = 7 * 24 * 3600
MAX_ATTEMPTS = 100


_PERSONS = Travels(unknown="This version does not know the unit of privacy.", code=Code.QUERY_INVALID)
_HELD_BACK = Travels(unknown="This version does not know the part of the rows.", code=Code.QUERY_INVALID)


def _octets(number: int) -> bytes:
    """Big-endian without leading zeros."""
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def _number(octets: bytes, what: str) -> int:
    """Raises WireError(KEY_INVALID) for leading zeros: equal keys have equal bytes."""
    if octets[:1] == b"\0":
        raise WireError(Code.KEY_INVALID, f"The {what} has leading zeros.")
    return int.from_bytes(octets, "big")


@dataclass(frozen=True)
class PaillierKey(Signable[query_pb2.PaillierKey]):
    """A Paillier public key, certified by the learner's signing key, so that keys can rotate."""

    KIND: ClassVar[MessageType] = MessageType.PAILLIER_KEY
    learner: str
    public_key: Annotated[PublicKey, Travels(by_hand=("modulus", "subgroup"))]
    not_before_unix_s: int
    not_after_unix_s: int

    def to_proto(self) -> query_pb2.PaillierKey:
        """The message that travels."""
        message, subgroup = super().to_proto(), self.public_key.subgroup
        message.modulus = _octets(self.public_key.n)
        if subgroup is not None:
            message.subgroup.generator, message.subgroup.order_bits = _octets(subgroup.generator), subgroup.order_bits
        return message

    @classmethod
    def from_proto(cls, message: query_pb2.PaillierKey) -> "PaillierKey":
        """Raises WireError(KEY_INVALID) if the modulus or the subgroup is malformed or of the wrong length."""
        subgroup = None
        if message.HasField("subgroup"):
            subgroup = Subgroup(_number(message.subgroup.generator, "generator"), message.subgroup.order_bits)
        try:
            public_key = PublicKey(_number(message.modulus, "modulus"), subgroup)
        except (RadofedError, ValueError) as error:
            raise WireError(Code.KEY_INVALID, str(error)) from error
        return cast("PaillierKey", codec(cls).read(message, public_key=public_key))


@dataclass(frozen=True)
class Query(Wire[query_pb2.Query]):
    """A learner's query. Valid from construction: raises WireError(QUERY_INVALID or ENCODING_OVERFLOW) otherwise.

    Times are Unix seconds, durations seconds. Parties compute and charge epsilon at `delta`. Slots are planned for
    `max_rows` and `max_parties`, not for the cohort that forms.
    """

    federation: str
    learner: str
    nonce: bytes
    roster_version: int
    schema: Annotated[Schema, Travels(by_hand=("schema", "schema_digest"))]
    kind: Annotated[QueryKind, Travels(by_hand=KIND_FIELDS)]
    encoding: Encoding
    paillier_key: Envelope
    delta: Fraction
    max_rows: int
    max_parties: int
    cohort_min: int
    honest_parties: int
    created_at_unix_s: int
    not_after_unix_s: int
    answer_within_s: int
    prepare_within_s: int
    upload_within_s: int
    max_attempts: int
    binding: Binding
    """Of the total's tag to the parties that are asked."""
    features: tuple[str, ...] = (Feature.BASE.value,)
    """The names of wire.query that it uses."""
    quorum_wait_s: int = 0
    """How long the coordinator waits for further parties once there are enough for a cohort, 0 for as long as the phase
    lasts."""
    held_back: Annotated[HeldBack | None, _HELD_BACK] = None
    """The part of the rows that it is about; None for all."""
    feature_map: Annotated[FeatureMap | None, Travels(by_hand=("feature_map",))] = None
    """What records are mapped by before they are clipped; it fits the schema."""
    purpose: str = ""
    """What the learner says that the answer is for, which nothing checks; empty without one."""
    epoch: str | None = None
    """Of the rows that it is about, by name; None for all rows."""
    persons: Annotated[Persons | None, _PERSONS] = None
    """That persons are the unit of privacy; None for records."""
    noise_of_cohort: bool = False
    """Whether the noise is that of the cohort that answers; otherwise every share is for the smallest one."""
    mask_neighbours: int = 0
    """With how many others each member of a cohort shares masks; 0 for all others."""
    training: Training | None = None
    """The training that it is a round of; None without one."""
    may_vanish: int = 0
    """How many of the members that accepted may vanish afterwards, so that the rest still has a total."""
    study: Study | None = None
    """The study that it is part of, as the learner states it; None without one."""

    def __post_init__(self) -> None:
        checks = {
            "the nonce has 16 to 64 bytes": 16 <= len(self.nonce) <= 64,
            "delta is between 0 and 1": 0 < self.delta < 1,
            "max_rows is positive": self.max_rows >= 1,
            f"max_parties is from 1 to {MAX_PARTIES}": 1 <= self.max_parties <= MAX_PARTIES,
            "cohort_min is from 1 to max_parties": 1 <= self.cohort_min <= self.max_parties,
            "honest_parties is from 1 to cohort_min": 1 <= self.honest_parties <= self.cohort_min,
            "not_after is after created_at": self.not_after_unix_s > self.created_at_unix_s,
            "not_after has at most 63 bits": self.not_after_unix_s < 1 << 63,
            f"max_attempts is from 1 to {MAX_ATTEMPTS}": 1 <= self.max_attempts <= MAX_ATTEMPTS,
            f"quorum_wait_s is from 0 to {MAX_PHASE_S}": 0 <= self.quorum_wait_s <= MAX_PHASE_S,
            "its kind can be asked about a part of the rows": self.held_back is None or self.kind.takes_parts,
            PURPOSE_RULE: is_purpose(self.purpose) or not self.purpose,
            EPOCH_RULE: self.epoch is None or is_epoch(self.epoch),
            "its kind takes a feature map": self.feature_map is None or self.kind.takes_maps,
            "its predicates are about its feature map": self.kind.is_about(self.feature_map),
            "noise_of_cohort has its feature": self.noise_of_cohort == (Feature.COHORT_NOISE in self.features),
            "its kind's noise follows its cohorts": self.kind.cohorts == self._followed(),
            "mask_neighbours has its feature": (self.mask_neighbours > 0) == (Feature.MASK_GRAPH in self.features),
            f"mask_neighbours is even, from {FEWEST_NEIGHBOURS} to {MAX_PARTIES}, or 0": self.mask_neighbours == 0
            or (FEWEST_NEIGHBOURS <= self.mask_neighbours <= MAX_PARTIES and self.mask_neighbours % 2 == 0),
            "may_vanish has its feature": (self.may_vanish > 0) == (Feature.SURVIVORS in self.features),
            "if members may vanish, the noise is that of the smallest cohort": not (
                self.may_vanish and self.noise_of_cohort
            ),
            "if members may vanish, every two share masks": not (self.may_vanish and self.mask_neighbours),
            "as many may vanish as max_parties is above cohort_min": (
                self.may_vanish <= self.max_parties - self.cohort_min
            ),
            "honest_parties is above the square of may_vanish": not self.may_vanish
            or is_enough(
                self.cohort_min + self.may_vanish, self.cohort_min, colluders=self.cohort_min - self.honest_parties
            ),
            f"if members may vanish, max_parties is at most {MOST_SHARERS}": (
                not self.may_vanish or self.max_parties <= MOST_SHARERS
            ),
            "a study has its feature": (self.study is not None) == (Feature.STUDY in self.features),
            "products_of_each_class has its feature": (
                has_class_products(self.kind) == (Feature.CLASS_PRODUCTS in self.features)
            ),
            "persons have their feature": (self.persons is not None) == (Feature.PERSONS in self.features),
            "its kind has its unit of privacy": self.kind.persons == self.persons,
            "persons are at 1 to max_parties parties": self.persons is None or self.persons.parties <= self.max_parties,
            "persons who are at several parties are asked about in all epochs": (
                self.epoch is None or self.persons is None or self.persons.parties == 1
            ),
            "a training has its feature": (self.training is not None) == (Feature.TRAINING in self.features),
            "it is within the terms of its training": self.training is None or self._is_within(self.training),
            "class_weights has its feature": (has_class_weights(self.kind) == (Feature.CLASS_WEIGHTS in self.features)),
            f"the query's total has at most {MAX_VALUES} values": self.length <= MAX_VALUES,
            f"a query about a number or a count names the feature {Feature.NUMBERS.value}": (
                Feature.NUMBERS.value in self.features or not self.schema.label.coding.is_measured
            ),
            "its kind counts rows by the schema's weight": self.kind.is_weighted == (self.schema.weight is not None),
            f"a query about weights names the feature {Feature.WEIGHTS.value}": (
                Feature.WEIGHTS.value in self.features or self.schema.weight is None
            ),
            f"a query about a time to an event names the feature {Feature.EVENT_TIMES.value}": (
                Feature.EVENT_TIMES.value in self.features or not self.schema.label.coding.intervals
            ),
        } | {
            f"{name} is from 1 to {MAX_PHASE_S}": 1 <= value <= MAX_PHASE_S
            for name, value in (
                ("answer_within_s", self.answer_within_s),
                ("prepare_within_s", self.prepare_within_s),
                ("upload_within_s", self.upload_within_s),
            )
        }
        check_features(self.features)
        for rule, holds in checks.items():
            if not holds:
                raise WireError(Code.QUERY_INVALID, f"It must hold that {rule}.")
        try:
            self.kind.check_target(self.schema.label)
            largest = self.kind.largest_sum(self.limits, self.encoding.fraction_bits)
            # The check slot carries the cohort's row count and wraps like any other slot.
            check_fits(self.encoding, largest_sum=max(largest, self.max_rows), max_parties=self.max_parties)
        except SlotOverflowError as error:
            raise WireError(Code.ENCODING_OVERFLOW, str(error)) from error
        except (PlanError, SchemaError) as error:
            raise WireError(Code.QUERY_INVALID, str(error)) from error

    def _is_within(self, training: Training) -> bool:
        """Whether what a query says by itself agrees with the terms of its training."""
        return (
            training.schema_digest == self.schema.unweighted.digest
            and self.max_attempts <= training.max_attempts
            and training.begins_unix_s <= self.created_at_unix_s <= training.ends_unix_s
        )

    def _followed(self) -> Cohorts | None:
        """The cohorts that its noise follows, if it does; its sizes are checked by other rules."""
        if not self.noise_of_cohort or not 1 <= self.honest_parties <= self.cohort_min <= self.max_parties:
            return None
        return Cohorts(self.cohort_min, self.honest_parties, self.max_parties)

    def honest_of(self, parties: int) -> int:
        """How many of a cohort of so many parties are counted as honest."""
        cohorts = self.kind.cohorts
        return self.honest_parties if cohorts is None else cohorts.honest_of(cohorts.nearest(parties))

    def threshold(self, sharers: int) -> int:
        """How many of so many members that accepted have to upload and to unmask, if members may vanish."""
        return threshold(sharers, cohort_min=self.cohort_min, may_vanish=self.may_vanish)

    @property
    def is_question(self) -> bool:
        """Whether it only asks parties if they would accept it. It is signed, so no one makes a query of it."""
        return Feature.QUESTION in self.features

    @property
    def study_digest(self) -> bytes | None:
        """What identifies the study that it is part of; None without one."""
        return None if self.study is None else self.study.digest

    @property
    def limits(self) -> QueryLimits:
        """The rows, parties and coordinates that its slots are planned for."""
        return QueryLimits(rows=self.max_rows, parties=self.max_parties, d=self.d)

    @property
    def d(self) -> int:
        """The number of coordinates of a record as the kind sees it, including the bias."""
        return self.schema.d if self.feature_map is None else self.feature_map.d

    def seen(self, records: Records) -> Records:
        """The records, of the schema, as the kind sees them: mapped if there is a feature map."""
        return records if self.feature_map is None else records.mapped(self.feature_map)

    def asks(self, party: str) -> bool:
        """Whether this party of the roster may take part."""
        return party in self.binding.parties

    @property
    def length(self) -> int:
        """The number of values in the total."""
        return self.kind.length(self.d)

    @property
    def words(self) -> str:
        """What is asked, of which functions of the columns, about which rows if not all, and of whom, in words."""
        mapped = "" if self.feature_map is None else f", of records mapped to {self.feature_map.words(self.schema)}"
        part = "" if self.held_back is None else f", about {self.held_back.words()}"
        epoch = "" if self.epoch is None else f", about the rows of epoch {self.epoch} only"
        unit = "" if self.persons is None else f", protecting {person(self.persons.parties)}"
        return f"{self.kind.words()}{mapped}{part}{epoch}{unit}"

    def to_proto(self) -> query_pb2.Query:
        """The message whose bytes are signed. Their SHA-256 is the query's id."""
        message = super().to_proto()
        message.schema, message.schema_digest = self.schema.canonical_bytes(), self.schema.digest
        if self.feature_map is not None:
            message.feature_map.CopyFrom(feature_map_to_proto(self.feature_map))
        write_kind(self.kind, message)
        return message

    @classmethod
    def from_proto(cls, message: query_pb2.Query) -> "Query":
        """Raises WireError if the message is not a query that this version understands completely."""
        if not message.binding.commitment:
            sentence = "A version before 0.2.1 made it: read it with that version, and begin a new state directory."
            raise WireError(Code.QUERY_INVALID, sentence)
        feature_map = None
        try:
            schema = Schema.from_canonical(message.schema)
            if schema.digest != message.schema_digest:
                raise WireError(Code.QUERY_INVALID, "The schema's digest does not match the schema.")
            if message.HasField("feature_map"):
                feature_map = feature_map_from_proto(message.feature_map, schema)
            kind = read_kind(message, schema, feature_map)
        except WireError:
            raise
        except (RadofedError, ValueError) as error:
            raise WireError(Code.QUERY_INVALID, str(error)) from error
        return cast("Query", codec(cls).read(message, schema=schema, kind=kind, feature_map=feature_map))

    @classmethod
    def from_bytes(cls, payload: bytes) -> "Query":
        """The query that was signed. Raises WireError."""
        return _read_again(payload) if len(payload) <= _READ_AGAIN_BYTES else cls.from_proto(_parsed(payload))


_READ_AGAIN_BYTES = 1 << 16
"""A longer query is read again each time, so that what is kept is small whoever sends it."""


@lru_cache(maxsize=8)
def _read_again(payload: bytes) -> Query:
    """A query that was read lately: each node reads the query of a round several times."""
    return Query.from_proto(_parsed(payload))


def _parsed(payload: bytes) -> query_pb2.Query:
    if len(payload) > MAX_QUERY_BYTES:
        raise WireError(Code.MESSAGE_TOO_LARGE, f"A query may have at most {MAX_QUERY_BYTES} bytes.")
    return parse(query_pb2.Query, payload)


def setting_of(query: Query) -> Setting:
    """The parameters, besides the kind, that determine the privacy cost of the query's release."""
    return Setting(query.d, query.encoding.fraction_bits, query.honest_parties)


@dataclass(frozen=True)
class Cancel(Signable[query_pb2.Cancel]):
    """A learner's request to end a query."""

    KIND: ClassVar[MessageType] = MessageType.CANCEL
    query_id: bytes
    learner: str


@dataclass(frozen=True)
class Retry(Signable[query_pb2.Retry]):
    """A learner's decision to make another attempt. attempt: the one that it starts, from 2."""

    KIND: ClassVar[MessageType] = MessageType.RETRY
    query_id: bytes
    learner: str
    attempt: int


def open_retry(envelope: Envelope, opened: "OpenedQuery", roster: Roster) -> Retry:
    """The learner's verified decision on a query. Raises WireError if it is another query's or another learner's."""
    retry = Retry.from_bytes(envelope.payload)
    learner = roster.find(opened.query.learner, Role.LEARNER)
    if learner is None:
        raise WireError(Code.PEER_UNKNOWN, f"The roster has no learner {opened.query.learner!r}.")
    open_from(envelope, MessageType.RETRY, learner, roster.federation)
    if (retry.query_id, retry.learner) != (opened.query_id, opened.query.learner):
        raise WireError(Code.QUERY_INVALID, "The retry is of another query.")
    if not 2 <= retry.attempt <= opened.query.max_attempts:
        raise WireError(Code.ATTEMPT_MISMATCH, f"The query allows {opened.query.max_attempts} attempts.")
    return retry


@dataclass(frozen=True)
class OpenedQuery:
    """A query whose signatures were verified against a roster."""

    envelope: Envelope
    query: Query
    public_key: PublicKey

    @property
    def query_id(self) -> bytes:
        """SHA-256 of the payload."""
        return self.envelope.payload_hash

    @property
    def value_ciphertexts(self) -> int:
        """The number of ciphertexts that carry values."""
        return ciphertext_count(self.query.length, self.query.encoding, self.public_key.bits)

    @property
    def ciphertexts(self) -> int:
        """The number of ciphertexts in each upload and in the total; the last one is the tag."""
        return self.value_ciphertexts + 1

    @property
    def ciphertexts_per_chunk(self) -> int:
        """The number of ciphertexts in a chunk. The last chunk may have fewer."""
        return ciphertexts_per_chunk(self.public_key.ciphertext_bytes)

    @property
    def chunks(self) -> int:
        """The number of chunks in each upload and in the total."""
        return -(-self.ciphertexts // self.ciphertexts_per_chunk)

    def chunk_bytes(self, index: int) -> int:
        """The length of chunk `index` of every upload and of the total. Raises WireError(CHUNK_MALFORMED)."""
        if not 0 <= index < self.chunks:
            raise WireError(Code.CHUNK_MALFORMED, f"An upload has chunks 0 to {self.chunks - 1}, this is {index}.")
        per_chunk = self.ciphertexts_per_chunk
        return min(per_chunk, self.ciphertexts - index * per_chunk) * self.public_key.ciphertext_bytes


def open_query(envelope: Envelope, roster: Roster, *, now_unix_s: float) -> OpenedQuery:
    """Check a query's signature, federation, roster, time and Paillier key. Party and coordinator use it.

    The roster must not have expired at `now_unix_s`. Raises WireError.
    """
    opened, key = _verified(envelope, roster)
    query = opened.query
    roster.check_unexpired(now_unix_s)
    check_time(query, now_unix_s)
    if not key.not_before_unix_s - CLOCK_SKEW_S <= now_unix_s or key.not_after_unix_s < query.not_after_unix_s:
        raise WireError(Code.KEY_INVALID, "The key is not valid for the query's whole lifetime.")
    return opened


# A node opens a query at every step of it. Few are kept: a query may have MAX_QUERY_BYTES. An error is not kept.
@lru_cache(maxsize=4)
def _verified(envelope: Envelope, roster: Roster) -> "tuple[OpenedQuery, PaillierKey]":
    """The part of `open_query` that does not depend on the time: a function of the envelope and the roster."""
    # The signature comes first: the content of a query is expensive to read, so only members' queries are read.
    said = _parsed(envelope.payload)
    if said.federation != roster.federation:
        raise WireError(Code.FEDERATION_MISMATCH)
    learner = roster.find(said.learner, Role.LEARNER)
    if learner is None:
        raise WireError(Code.PEER_UNKNOWN, f"The roster has no learner {said.learner!r}.")
    open_from(envelope, MessageType.QUERY, learner, roster.federation)
    query = Query.from_bytes(envelope.payload)
    if query.roster_version > roster.version:
        raise WireError(
            Code.ROSTER_STALE,
            f"The query was planned with version {query.roster_version}, but this node has {roster.version}.",
        )
    certificate = open_from(query.paillier_key, MessageType.PAILLIER_KEY, learner, roster.federation)
    key = PaillierKey.from_bytes(certificate)
    if key.learner != query.learner:
        raise WireError(Code.KEY_INVALID, "The key is certified for another learner.")
    if (key.public_key.subgroup is not None) != (Feature.SHORT_OPENING in query.features):
        sentence = f"It must hold that a key has a subgroup where the query names {Feature.SHORT_OPENING.value}."
        raise WireError(Code.QUERY_INVALID, sentence)
    return OpenedQuery(envelope, query, key.public_key), key


def check_time(query: Query, now_unix_s: float) -> None:
    """Raise WireError(QUERY_EXPIRED) outside the query's lifetime, with CLOCK_SKEW_S of tolerance on both sides."""
    if now_unix_s > query.not_after_unix_s + CLOCK_SKEW_S or now_unix_s < query.created_at_unix_s - CLOCK_SKEW_S:
        raise WireError(Code.QUERY_EXPIRED)
