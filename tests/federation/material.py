"""What federations of tests are made of: schemas, keys, rosters, and credentials of servers."""

import json
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import grpc

from dpcore.paillier.secret import SecretKey, ShortOpening
from dpcore.records.features import BooleanFeature, Label, RealFeature
from dpcore.records.schema import Schema
from wire.envelopes import SigningKey
from wire.identity import TlsFiles
from wire.query import Query
from wire.roster import Member, Role, Roster, certificate_san

STAYS = Schema(
    name="stays",
    label=Label(column="stayed", positive=("yes",), negative=("no",)),
    features=(
        RealFeature(name="age", lower=0.0, upper=100.0, missing="zero-vector"),
        BooleanFeature(name="smoker", true=("yes",), false=("no",)),
    ),
)
SMALL = Schema(
    name="small",
    label=Label(column="y", positive=("1",)),
    features=(
        RealFeature(name="x0", lower=0.0, upper=1.0),
        BooleanFeature(name="s", true=("1",), false=("0",)),
    ),
)


@cache
def secret_key(bits: int = 2048) -> SecretKey:
    """A key that anyone may know, of 2048, 3072 or 4096 bits: for all tests but those of a key's generation."""
    path = Path(__file__).parents[1] / "vectors/paillier_test_primes.json"
    kept = json.loads(path.read_text(encoding="utf-8"))["keys"]
    return next(SecretKey(int(each["p"], 16), int(each["q"], 16)) for each in kept if each["bits"] == bits)


@cache
def short_opening_key(bits: int = 2048) -> SecretKey:
    """A key with short opening that anyone may know, of 2048 or 3072 bits."""
    path = Path(__file__).parents[1] / "vectors/paillier_test_primes.json"
    kept = json.loads(path.read_text(encoding="utf-8"))["short_opening_keys"]
    found = next(each for each in kept if each["bits"] == bits)
    p, q, generator, p_order, q_order = (int(found[name], 16) for name in ("p", "q", "generator", "p_order", "q_order"))
    return SecretKey(p, q, ShortOpening(generator, p_order, q_order))


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """As a coordinator's: clients without a certificate of the same authority are refused."""
    ca, certificate, key = files.read()
    return grpc.ssl_server_credentials([(key, certificate)], root_certificates=ca, require_client_auth=True)


def member(federation: str, role: Role, name: str, key: bytes = b"", rows: int | None = None) -> Member:
    return Member(role, name, key, certificate_san(federation, role, name), rows)


def roster_of(
    federation: str,
    parties: Mapping[str, SigningKey],
    learner: SigningKey,
    *,
    names: tuple[str, str] = ("hub", "lea"),
    rows: Mapping[str, int | None] | None = None,
    version: int = 1,
    issued_at_unix_s: int = 1_700_000_000,
    not_after_unix_s: int = 0,
) -> Roster:
    """A coordinator, these parties and a learner. names: of coordinator and learner. rows: that parties state."""
    members = (
        member(federation, Role.COORDINATOR, names[0]),
        *(
            member(federation, Role.PARTY, each, key.public_bytes, (rows or {}).get(each))
            for each, key in parties.items()
        ),
        member(federation, Role.LEARNER, names[1], learner.public_bytes),
    )
    return Roster(federation, version, issued_at_unix_s, members, not_after_unix_s)


def query_of(created_at_unix_s: int, /, **fields: Any) -> Query:
    """A query of three parties that trust one another but for one. fields: the others, and those that differ."""
    usual = {
        "roster_version": 1,
        "delta": Fraction(1, 10**6),
        "max_rows": 1000,
        "max_parties": 3,
        "cohort_min": 3,
        "honest_parties": 2,
        "created_at_unix_s": created_at_unix_s,
        "not_after_unix_s": created_at_unix_s + 3600,
        "answer_within_s": 60,
        "prepare_within_s": 60,
        "upload_within_s": 60,
        "max_attempts": 2,
    }
    return Query(**usual | fields)
