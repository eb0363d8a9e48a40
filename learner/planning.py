"""Planning: from what a learner wants to a query that can be answered, before anybody is asked.

A query is refused here, with what would work, where its sums do not fit a slot, its design is empty or unbounded at
the parties' stated sizes, or the roster is too small for the cohort that it wants.
"""

import math
import time
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

from dpcore.errors import ConfigurationError, PlanError
from dpcore.fixed_point import plan_encoding
from dpcore.paillier.packing import ciphertext_count
from dpcore.paillier.public import PublicKey
from dpcore.privacy.dp_feat import DpFeatAccount, account
from dpcore.queries.rados import RadosQuery
from dpcore.rados.designs import Design, DpFeatDesign, PlainDesign
from dpcore.randomness import RandomSource, SystemRandom
from dpcore.schema import Schema
from wire.envelopes import Envelope, sha256
from wire.query import MAX_QUERY_BYTES, MAX_VALUES, PaillierKey, Query
from wire.roster import Roster

NONCE_BYTES = 32
# A party states at least how many rows it has; its table may grow before it answers.
GROWTH = 4
ROWS_OF_UNSTATED_PARTY = 1_000_000
EDGE_FRACTION_BITS = 16

_LEAST = {
    "rados": 1,
    "attempts": 1,
    "answer_within_s": 1,
    "prepare_within_s": 1,
    "upload_within_s": 1,
    "expires_after_s": 1,
    "max_rows": 1,
    "max_parties": 1,
    "cohort_min": 1,
    "colluders": 0,
}


@dataclass(frozen=True)
class RadosRequest:
    """What a learner wants: n rados over a schema. None lets the plan choose.

    design: "dp-feat" protects the marginal of `sensitive`, a boolean or threshold feature; "plain" protects nothing.
    epsilon_per_rado: Algorithm 2's epsilon, None for no truncation. delta: what epsilon is counted and charged at.
    max_rows: the most rows of a cohort; by default four times what the roster states, a million where it states
    nothing. cohort_min: the fewest parties of a cohort; by default max(c + 2, parties - 1). colluders: c, the parties
    assumed to collude with coordinator and learner; by default min(1, parties - 2).

    Raises ConfigurationError where an option makes no sense for any roster.
    """

    schema: Schema
    rados: int
    design: Literal["plain", "dp-feat"] = "plain"
    sensitive: str | None = None
    epsilon_per_rado: Fraction | None = None
    delta: Fraction = Fraction(1, 1_000_000)
    fraction_bits: int = EDGE_FRACTION_BITS
    max_rows: int | None = None
    max_parties: int | None = None
    cohort_min: int | None = None
    colluders: int | None = None
    attempts: int = 3
    answer_within_s: int = 600
    prepare_within_s: int = 3600
    upload_within_s: int = 3600
    expires_after_s: int = 24 * 3600

    def __post_init__(self) -> None:
        self._check_design()
        for name in ("delta", "epsilon_per_rado"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, Fraction):
                raise ConfigurationError(f"{name} must be an exact fraction: write Fraction('1e-6'), not 1e-6")
        if not 0 < self.delta < 1:
            raise ConfigurationError(f"delta is {self.delta}; choose one between 0 and 1, such as 1e-6")
        # The query refuses these too; here they bear the option's name.
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigurationError(f"{name} is {value}; it must be at least {least}")

    def _check_design(self) -> None:
        if self.design not in ("plain", "dp-feat"):
            raise ConfigurationError(f"design {self.design!r} is not known; choose plain or dp-feat")
        if self.design == "plain" and (self.sensitive is not None or self.epsilon_per_rado is not None):
            raise ConfigurationError("plain rados have no sensitive feature and no epsilon; choose the design dp-feat")
        if self.design == "dp-feat" and self.sensitive is None:
            raise ConfigurationError(f"dp-feat needs a sensitive feature; those of the schema: {_choices(self.schema)}")


@dataclass(frozen=True)
class Plan:
    """A query that can be asked, and what it will cost; the same plan is never two queries.

    account: the exact privacy figures at the parties' stated sizes, None where the design has none or a party states
    none.
    """

    query: Query
    public_key: PublicKey
    colluders: int
    party_rows: tuple[int, ...] | None
    account: DpFeatAccount | None

    @cached_property
    def query_id(self) -> bytes:
        """The id that the query will have."""
        return sha256(self.query.to_bytes())

    @property
    def ciphertexts(self) -> int:
        """How many ciphertexts each party uploads."""
        return ciphertext_count(self.query.length, self.query.encoding, self.public_key.bits)

    @property
    def upload_bytes_per_party(self) -> int:
        """Their bytes, without envelopes."""
        return self.ciphertexts * self.public_key.ciphertext_bytes

    def sentences(self) -> list[str]:
        """The plan for people, a sentence a line."""
        query, encoding = self.query, self.query.encoding
        what = (
            f"{query.kind.rados} rados of {query.schema.d} coordinates over schema {query.schema.name!r}, "
            f"design {_design_words(query.kind.design)}."
        )
        size = (
            f"Each party uploads {self.ciphertexts} ciphertexts under a {self.public_key.bits}-bit key, "
            f"{_megabytes(self.upload_bytes_per_party)} MB: slots of {encoding.slot_bits} bits, values with "
            f"{encoding.fraction_bits} fraction bits."
        )
        cohort = (
            f"A cohort has {query.cohort_min} to {query.max_parties} parties and at most {query.max_rows} rows; "
            f"{self.colluders} of the parties may collude."
        )
        times = (
            f"Parties have {query.answer_within_s} s to answer, {query.prepare_within_s} s to get ready and "
            f"{query.upload_within_s} s to upload; at most {query.max_attempts} attempts, each charged anew."
        )
        return [what, size, cohort, *self._privacy_words(), times]

    def _privacy_words(self) -> list[str]:
        design = self.query.kind.design
        if isinstance(design, PlainDesign):
            return ["Plain rados protect no record: parties refuse them unless their policy allows unprotected rados."]
        if self.account is None:
            return ["The roster does not state every party's rows, so epsilon is known once they have answered."]
        counted = self.account
        words = (
            f"If every party takes part, the marginal of {design.sensitive_name!r} is protected with epsilon "
            f"{_up(counted.epsilon)} at delta {float(self.query.delta):.3g} against the learner, and with epsilon "
            f"{_up(counted.epsilon_if_others_collude)} if the other parties collude"
        )
        theorem = counted.theorem_epsilon
        return [f"{words}." if theorem is None else f"{words}; Theorem 6 alone would say {theorem:.6g}."]


def plan_rados(
    request: RadosRequest,
    *,
    roster: Roster,
    learner: str,
    certificate: Envelope,
    random: RandomSource | None = None,
    now_unix_s: float | None = None,
) -> Plan:
    """The plan of a request for this roster.

    learner: the member's name. certificate: its signed Paillier key (learner.keys). random: for the nonce, None for
    the operating system's. Raises PlanError (SlotOverflowError where sums do not fit), ConfigurationError, SchemaError
    or WireError(QUERY_INVALID), each with what would work; nobody has been asked then.
    """
    created = int(time.time() if now_unix_s is None else now_unix_s)
    kind = _kind(request)
    colluders, cohort_min, max_parties = _cohort(request, len(roster.parties))
    rows = [member.rows_at_least for member in roster.parties]
    max_rows = request.max_rows or sum(GROWTH * m if m else ROWS_OF_UNSTATED_PARTY for m in rows)
    # The check slot carries the cohort's row count and wraps like any other slot.
    largest_sum = max(kind.largest_sum(max_rows, request.fraction_bits), max_rows)
    encoding = plan_encoding(largest_sum=largest_sum, max_parties=max_parties, fraction_bits=request.fraction_bits)
    expires = created + request.expires_after_s
    key = PaillierKey.from_bytes(certificate.payload)
    if expires > key.not_after_unix_s:
        raise ConfigurationError(
            "the Paillier key's year ends before the query would; make a new key with `rado learner keygen`, and keep "
            "the old one for its totals"
        )
    query = Query(
        federation=roster.federation,
        learner=learner,
        nonce=(SystemRandom() if random is None else random).bytes(NONCE_BYTES),
        roster_version=roster.version,
        schema=request.schema,
        kind=kind,
        encoding=encoding,
        paillier_key=certificate,
        delta=request.delta,
        max_rows=max_rows,
        max_parties=max_parties,
        cohort_min=cohort_min,
        honest_parties=cohort_min - colluders,
        created_at_unix_s=created,
        not_after_unix_s=expires,
        answer_within_s=request.answer_within_s,
        prepare_within_s=request.prepare_within_s,
        upload_within_s=request.upload_within_s,
        max_attempts=request.attempts,
    )
    size_bytes = len(query.to_bytes())
    if size_bytes > MAX_QUERY_BYTES:
        raise PlanError(f"the query has {size_bytes} bytes and at most {MAX_QUERY_BYTES} travel; shorten the schema")
    stated = tuple(m for m in rows if m is not None)
    complete = stated if len(stated) == len(rows) else None
    return Plan(query, key.public_key, colluders, complete, _account(query, stated, complete))


def _kind(request: RadosRequest) -> RadosQuery:
    most = MAX_VALUES // request.schema.d
    if request.rados > most:
        raise PlanError(
            f"{request.rados} rados of {request.schema.d} coordinates are more than the {MAX_VALUES} values that one "
            f"query may ask for; ask for at most {most} rados"
        )
    return RadosQuery(request.rados, _design(request))


def _design(request: RadosRequest) -> Design:
    if request.sensitive is None:
        return PlainDesign()
    schema, name = request.schema, request.sensitive
    coordinate = schema.coordinate(name)
    if name not in schema.boolean_coordinates:
        raise PlanError(
            f"{name!r} is not coded -1/+1 and dp-feat cannot protect it; those that are: {_choices(schema)}"
        )
    source = schema.sources(name)
    others = [other for other in schema.derived_from(str(source)) if other != name]
    if others:
        # Its marginal would be protected and then given away by the other coordinate (docs/threat-model.md, 4.4).
        raise PlanError(f"{', '.join(others)} derives from {source!r} too and would give {name!r} away; drop it")
    return DpFeatDesign(coordinate, name, request.epsilon_per_rado)


def _choices(schema: Schema) -> str:
    return ", ".join(schema.boolean_coordinates) or "none; declare a boolean or threshold feature"


def _cohort(request: RadosRequest, parties: int) -> tuple[int, int, int]:
    """Assumed colluders c, cohort_min and max_parties."""
    colluders = max(0, min(1, parties - 2)) if request.colluders is None else request.colluders
    max_parties = parties if request.max_parties is None else request.max_parties
    usable = min(parties, max_parties)
    cohort_min = max(colluders + 2, usable - 1) if request.cohort_min is None else request.cohort_min
    if cohort_min > usable:
        raise PlanError(
            f"a cohort of at least {cohort_min} parties cannot form: the roster has {parties} and the query takes "
            f"{max_parties}; add parties, or lower cohort_min or colluders"
        )
    if cohort_min <= colluders:
        raise PlanError(
            f"{colluders} colluders in a cohort of {cohort_min} leave no honest party; raise cohort_min to "
            f"{colluders + 2} or lower colluders"
        )
    return colluders, cohort_min, max_parties


def _account(query: Query, stated: tuple[int, ...], complete: tuple[int, ...] | None) -> DpFeatAccount | None:
    """The privacy figures where all sizes are known; where only some are, the smallest must be feasible by itself."""
    design = query.kind.design
    if isinstance(design, PlainDesign) or not stated:
        return None
    counted = account(complete or (min(stated),), query.kind.rados, design.epsilon_per_rado, query.delta)
    return counted if complete else None


def _up(epsilon: float) -> str:
    """Rounded up to a hundredth: a bound that is printed must not be below the one that was counted."""
    return f"{math.ceil(Fraction(epsilon) * 100) / 100:.2f}"


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f}" if count >= 100_000 else f"{count / 1e6:.4f}"


def _design_words(design: Design) -> str:
    match design:
        case PlainDesign():
            return "plain"
        case DpFeatDesign(epsilon_per_rado=None):
            return f"dp-feat for {design.sensitive_name!r} without truncation"
        case DpFeatDesign():
            return (
                f"dp-feat for {design.sensitive_name!r} at epsilon {float(design.epsilon_per_rado or 0):.3g} per rado"
            )
