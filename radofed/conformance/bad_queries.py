"""Queries that a party must not accept, each a change of a good one that the kit's learner signs."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import gmpy2

from learner.decryption import LearnerKey
from rado.v1 import query_pb2
from radofed.conformance.kit import LEARNER, STRANGER, Kit
from radofed.conformance.play import Edit
from wire.envelopes import MessageType
from wire.errors import Code
from wire.query import PaillierKey

Seeds = list[query_pb2.SealedSeed]
_HOUR_S = 3600
_OVERFLOW = (Code.ENCODING_OVERFLOW, Code.QUERY_INVALID)
_TIME = (Code.QUERY_EXPIRED, Code.QUERY_INVALID)
_KEY = (Code.KEY_INVALID, Code.SIGNATURE_INVALID, Code.QUERY_INVALID)


class BadQuery(NamedTuple):
    """A query whose cost alone would be small."""

    section: str
    what: str
    edit: Edit
    codes: tuple[Code, ...] = (Code.QUERY_INVALID,)
    """Those that say why, the best first. Another is remarked on."""


def bad_queries(kit: Kit, key: LearnerKey) -> list[BadQuery]:
    """All of them."""
    of_keys = [*_of_keys(kit, key), *_of_subgroups(kit, key)]
    return [*_of_versions(), *_of_schemas(kit), *_of_terms(), *_of_bindings(kit.request.name), *of_keys]


def _setting(name: str, value: object) -> Edit:
    return lambda message: setattr(message, name, value)


def _cleared(name: str) -> Edit:
    return lambda message: message.ClearField(name)  # type: ignore[arg-type]  # the name of a field


def _of_versions() -> list[BadQuery]:
    def unknown_field(message: query_pb2.Query) -> None:
        message.MergeFromString(b"\xfa\x3e\x01x")  # field 1007, which no version has

    def unknown_feature(message: query_pb2.Query) -> None:
        message.features.append("zz-from-the-future")

    missing = (Code.FEATURE_MISSING,)
    elsewhere, stale = (Code.FEDERATION_MISMATCH,), (Code.ROSTER_STALE,)
    return [
        BadQuery("2", "a query with a field that it does not know", unknown_field, (Code.FIELD_UNKNOWN,)),
        BadQuery("2", "a query that names another federation", _setting("federation", "elsewhere"), elsewhere),
        BadQuery("3", "a query with a feature that it does not know", unknown_feature, missing),
        BadQuery("3", "a query without base-0-3", _cleared("features"), missing),
        BadQuery("3", "a query of a newer roster than there is", _setting("roster_version", 1000), stale),
    ]


def _of_schemas(kit: Kit) -> list[BadQuery]:
    def changed(message: query_pb2.Query) -> None:
        bias = b'"bias":true' if kit.schema.bias else b'"bias":false'
        message.schema = message.schema.replace(bias, b'"bias":false' if kit.schema.bias else b'"bias":true')

    def another(message: query_pb2.Query) -> None:
        other = replace(kit.schema, name="another")
        message.schema, message.schema_digest = other.canonical_bytes(), other.digest

    codes = (Code.QUERY_INVALID, Code.SCHEMA_MISMATCH)
    return [
        BadQuery("4", "a query about another schema", another, (Code.SCHEMA_MISMATCH,)),
        BadQuery("4", "a query whose schema is not of its digest", changed, codes),
    ]


def _of_terms() -> list[BadQuery]:
    now = int(time.time())

    def late(message: query_pb2.Query) -> None:
        message.created_at_unix_s, message.not_after_unix_s = now - 2 * _HOUR_S, now - _HOUR_S

    def unreduced(message: query_pb2.Query) -> None:
        message.delta.numerator, message.delta.denominator = 2, 2_000_000

    def carrying(message: query_pb2.Query) -> None:
        message.encoding.value_bits = message.encoding.slot_bits

    def no_kind(message: query_pb2.Query) -> None:
        message.ClearField(message.WhichOneof("kind") or "moments")

    def of_an_ended_study(message: query_pb2.Query) -> None:
        for name in ("purpose", "protocol_number", "organisation", "person_in_charge"):
            setattr(message.study, name, "made up")
        message.study.begins, message.study.ends = "2020-01-01", "2020-12-31"
        features = sorted({*message.features, "study"})
        del message.features[:]
        message.features.extend(features)

    ended = (Code.STUDY_DATES, Code.POLICY_STUDY, Code.FEATURE_MISSING)
    early = _setting("created_at_unix_s", now + _HOUR_S // 2)
    return [
        BadQuery("5", "a query that has expired", late, _TIME),
        BadQuery("5", "a query that is not valid yet", early, _TIME),
        BadQuery("5", "a nonce of 15 bytes", _setting("nonce", bytes(15))),
        BadQuery("5", "a delta that is not in lowest terms", unreduced),
        BadQuery("5", "a cohort_min above max_parties", _setting("cohort_min", 1000)),
        BadQuery("5", "honest_parties of 0", _setting("honest_parties", 0)),
        BadQuery("5", "max_attempts of 0", _setting("max_attempts", 0)),
        BadQuery("5", "a time to answer of 0", _setting("answer_within_s", 0)),
        BadQuery("5", "a purpose with a control character", _setting("purpose", "a\u202eb")),
        BadQuery("5", "slots that carry", carrying, _OVERFLOW),
        BadQuery("5", "more rows than slots have room for", _setting("max_rows", 1 << 62), _OVERFLOW),
        BadQuery("5", "a query for fewer rows than the table has", _setting("max_rows", 1), (Code.PLAN_INFEASIBLE,)),
        BadQuery("5", "a query of no kind", no_kind),
        BadQuery("5", "a query of a study that has ended", of_an_ended_study, ended),
    ]


def _of_bindings(own: str) -> list[BadQuery]:
    def seeds(message: query_pb2.Query, change: Callable[[Seeds], Seeds]) -> None:
        changed = change([*message.binding.seeds])
        del message.binding.seeds[:]
        message.binding.seeds.extend(changed)

    def flipped(found: Seeds) -> Seeds:
        for seed in found:
            if seed.party == own:
                seed.seed = bytes([seed.seed[0] ^ 1]) + seed.seed[1:]
        return found

    def low_order(message: query_pb2.Query) -> None:
        message.binding.opening_key = bytes(32)

    without = partial(seeds, change=lambda found: [seed for seed in found if seed.party != own])
    return [
        BadQuery("5", "a query without a binding", _cleared("binding")),
        BadQuery("5", "an opening key of low order", low_order),
        BadQuery("5", "seeds that are not in the order of names", partial(seeds, change=lambda found: found[::-1])),
        BadQuery("6", "a query that has no seed for it", without, (Code.PARTY_NOT_ASKED,)),
        BadQuery("6", "another seed than the query commits to", partial(seeds, change=flipped), (Code.SEED_MISMATCH,)),
    ]


class _Certified:
    """Makes edits that put another certified key into a query."""

    def __init__(self, kit: Kit, key: LearnerKey) -> None:
        self._kit = kit
        self._made = PaillierKey(LEARNER, key.public_key.without_subgroup, key.not_before_unix_s, key.not_after_unix_s)

    def __call__(self, edit: Callable[[query_pb2.PaillierKey], None], by: str = LEARNER) -> Edit:
        def put(message: query_pb2.Query) -> None:
            changed = self._made.to_proto()
            edit(changed)
            payload = changed.SerializeToString(deterministic=True)
            signed = self._kit.signing_key(by).sign(MessageType.PAILLIER_KEY, payload)
            message.paillier_key.CopyFrom(signed.to_proto())

        return put


def _of_keys(kit: Kit, key: LearnerKey) -> list[BadQuery]:
    certified = _Certified(kit, key)

    def even(changed: query_pb2.PaillierKey) -> None:
        changed.modulus = changed.modulus[:-1] + bytes([changed.modulus[-1] ^ 1])

    def short(changed: query_pb2.PaillierKey) -> None:
        changed.modulus = ((1 << 1024) - 105).to_bytes(128, "big")

    def ending(changed: query_pb2.PaillierKey) -> None:
        changed.not_after_unix_s = int(time.time()) + 1

    def of_another(changed: query_pb2.PaillierKey) -> None:
        changed.learner = STRANGER

    return [
        BadQuery("5", "an even Paillier modulus", certified(even), _KEY),
        BadQuery("5", "a Paillier modulus of 1024 bits", certified(short), _KEY),
        BadQuery("5", "a Paillier key that ends before the query", certified(ending), _KEY),
        BadQuery("5", "a Paillier key of another learner", certified(of_another), _KEY),
        BadQuery("5", "a Paillier key that another member signed", certified(lambda _: None, STRANGER), _KEY),
    ]


def _of_subgroups(kit: Kit, key: LearnerKey) -> list[BadQuery]:
    certified, n = _Certified(kit, key), key.public_key.n

    def generated_by(generator: int, *, is_named: bool = True) -> Edit:
        def change(changed: query_pb2.PaillierKey) -> None:
            octets = generator.to_bytes(-(-generator.bit_length() // 8), "big")
            changed.subgroup.generator, changed.subgroup.order_bits = octets, 576

        def put(message: query_pb2.Query) -> None:
            certified(change)(message)
            if is_named:
                features = sorted({*message.features, "short-opening"})
                del message.features[:]
                message.features.extend(features)

        return put

    of_symbol_less_one = next(number for number in range(2, 1000) if gmpy2.jacobi(number, n) == -1)
    codes = (*_KEY, Code.FEATURE_MISSING)
    return [
        BadQuery("5", "a subgroup without the feature short-opening", generated_by(4, is_named=False), codes),
        BadQuery("5", "a subgroup with the generator 1", generated_by(1), codes),
        BadQuery("5", "a subgroup with a generator above the modulus", generated_by(n + 4), codes),
        BadQuery("5", "a subgroup with a generator of Jacobi symbol -1", generated_by(of_symbol_less_one), codes),
    ]
