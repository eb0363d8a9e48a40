"""The kit's federation: all members' keys, but those of the member under test, which joins by its request.

Kept in a directory, so that a second run needs no second joining:

    operator/        the federation's key and authority, the roster
    coordinator/     the coordinator's certificate, and its state
    kit.json         which members the kit has: its version
    kit.seed         from which the signing keys of all other members derive
    for-the-member/  what the one under test needs
"""

import hmac
import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from coordinator.config import CoordinatorConfig
from dpcore.errors import ConfigurationError
from dpcore.records.encoding import StoredRows, sources
from dpcore.records.persons import PersonRows
from dpcore.records.records import Records
from dpcore.records.schema import Schema
from learner.accepted_parties import parties_toml
from radobase.reading import FileKind, read_bytes, read_json, read_text, with_remedy
from radobase.schema_files import load_schema
from radobase.tables.tables import identified_blocks, open_table
from radobase.writing import BY_UMASK, create_durably, write_durably
from radofed.certificates import make_request
from radofed.conformance import table
from radofed.joining.installing import Admission, install
from radofed.joining.operator import ADMISSION_SUFFIX, ADMISSIONS, admit, found
from radofed.joining.requests import JoinRequest, ReceivedRequest, make_join_request
from radofed.node_config import PolicyChoices, policy_toml
from radofed.provision import ROSTER_FILE
from wire.envelopes import Envelope, SigningKey, fingerprint, key_id, load_public_key, spoken
from wire.query import Query
from wire.roster import Member, Role, Roster, read_roster

COORDINATOR, LEARNER, STRANGER = "kit-coordinator", "kit-learner", "kit-stranger"
WATCHED = "kit-watched"
"""A learner whose queries wait for a person at the party under test."""
PEERS = tuple(f"kit-p{number:02}" for number in range(1, 24))
"""Enough for a mask graph of 20 neighbours."""
ASKED = PEERS[:4]
"""The parties that a learner under test accepts."""
EPSILON, DELTA = "150", "1e-5"
"""The limit that the party under test gets: over made-up rows, so that its noise is small enough to see its sums."""
SMALLEST_COHORT, COLLUDERS = 3, 1
KINDS = ("moments", "statistic", "gradient", "dp-feat", "fixed-support")
UNBOUNDED_QUERIES = 8
"""The queries without a bound for whole records that the party under test may answer: rados."""
VERSION = 2
"""Of a kit's directory: grows when the kit's members change, which a directory has from when it was made.

Directories without a version are earlier: some have no `WATCHED`.
"""

_MANIFEST_FILE = "kit.json"
_SEED = FileKind(with_remedy("give the directory of a former run"), limit_bytes=64, secret=True, private=True)
_ROSTER = FileKind(with_remedy("give the directory of a former run"), limit_bytes=4 << 20)
_MANIFEST = FileKind(with_remedy("give a new directory"), limit_bytes=1 << 10)


@dataclass(frozen=True)
class Kit:
    """A federation of the kit and one member under test."""

    directory: Path
    request: JoinRequest
    schema: Schema
    records: Records
    roster: Roster
    envelope: Envelope
    """The roster, signed."""
    config: CoordinatorConfig
    seed: bytes
    persons: PersonRows | None
    """Whose each row is; None if the table has no column of ids."""
    epochs: NDArray[np.str_] | None
    """Of each row, (m,); None if the table has no column of epochs."""

    def rows_of(self, query: Query) -> int:
        """What an acceptance of this query has to count: rows, or persons, of all or of its epoch."""
        about = self._about(query.epoch)
        if query.persons is not None and self.persons is not None:
            return len(np.unique(self.persons.numbers[about]))
        return len(about)

    def records_of(self, query: Query) -> tuple[Records, PersonRows | None]:
        """The rows that a query is about, as its kind sees them, and whose they are if it protects persons."""
        about = self._about(query.epoch)
        whose = None
        if query.persons is not None and self.persons is not None:
            whose = PersonRows(self.persons.numbers[about])
        return query.seen(self.records.at(about)), whose

    def _about(self, epoch: str | None) -> NDArray[np.intp]:
        if epoch is None or self.epochs is None:
            return np.arange(self.records.rows)
        return np.flatnonzero(self.epochs == epoch)

    @property
    def subject(self) -> Member:
        """The member under test."""
        return self.member(self.request.name)

    @property
    def federation_key(self) -> SigningKey:
        """The operator's."""
        return SigningKey.load(self.directory / "operator/federation.key", self.roster.federation)

    def member(self, name: str) -> Member:
        """The roster's entry of a member."""
        return next(member for member in self.roster.members if member.name == name)

    def signing_key(self, name: str) -> SigningKey:
        """The key of a member of the kit."""
        return _derived(self.seed, name, self.roster.federation)

    @cached_property
    def peers(self) -> tuple[str, ...]:
        """The kit's parties, in the roster's order."""
        return tuple(member.name for member in self.roster.parties if member.name != self.request.name)

    @property
    def handed_over(self) -> Path:
        """The directory for the member under test."""
        return self.directory / "for-the-member"

    def sentences(self) -> list[str]:
        """For the person who tests: what to do next."""
        name, place = self.request.name, self.handed_over
        if self.request.role is Role.PARTY:
            more = "give it rows.csv, schema.json, whom it accepts (members.json; policy.toml is radofed's form of it)"
            start = "then start it: it need not be started again before the end"
        else:
            more, start = "give it schema.json and whom it accepts (members.json; parties.toml is radofed's form)", ""
        digits = spoken(self.federation_key.public_bytes)
        lines = [
            f"{place / (name + ADMISSION_SUFFIX)}: install it; the federation's digits are {digits}",
            f"{place}: {more}",
            f"it dials {self.config.listen}",
        ]
        return [*lines, *([start] if start else [])]


def prepare(
    directory: Path,
    request: Path,
    *,
    role: Role,
    listen: str,
    schema: Path | None = None,
    rows: Path | None = None,
) -> Kit:
    """The federation in this directory, made for this request if it is not there yet.

    listen: "HOST:PORT", at which the member dials the kit. schema, rows: a table of the member's own choice, of which
    the kit has a copy. Raises ConfigurationError, also for a directory that another version of the kit made.
    """
    received = ReceivedRequest.load(request)
    asked = received.request
    if asked.role is not role:
        raise ConfigurationError(f"{request}: is a {asked.role.value}'s request; give a {role.value}'s")
    if asked.name.startswith("kit-"):
        raise ConfigurationError(f"{request}: is of {asked.name!r}; names that begin with kit- are the kit's own")
    if role is Role.PARTY and (schema is None) != (rows is None):
        raise ConfigurationError("--schema and --rows belong together; give both, or neither")
    if not (directory / "kit.seed").exists():
        _make(directory, received, listen)
    else:
        files = {"--schema": schema, "--rows": rows}
        options = [word for option, file in files.items() if file is not None for word in (option, str(file))]
        words = ["rado", "conformance", role.value, str(directory), str(request), "--listen", listen, *options]
        _check_version(directory, asked, shlex.join([*words, "--only-prepare"]))
    kit = _load(directory, asked, listen, schema, rows)
    _hand_over(kit, schema, rows)
    return kit


def _derived(seed: bytes, name: str, federation: str) -> SigningKey:
    private = hmac.digest(seed, f"radofed conformance {name}".encode(), "sha256")
    return SigningKey(Ed25519PrivateKey.from_private_bytes(private), federation)


def _make(directory: Path, received: ReceivedRequest, listen: str) -> None:
    federation, seed = received.request.federation, os.urandom(32)
    operator, coordinator = directory / "operator", directory / "coordinator"
    found(operator, federation)
    make_join_request(coordinator, federation=federation, role=Role.COORDINATOR, name=COORDINATOR, address=listen)
    own = ReceivedRequest.load(coordinator / f"{COORDINATOR}.request")
    learners = dict.fromkeys((LEARNER, STRANGER, WATCHED), Role.LEARNER)
    roles = {**learners, **dict.fromkeys(PEERS, Role.PARTY)}
    others = [_request(seed, federation, role, name) for name, role in roles.items()]
    admit(operator, [own, *others, received])
    install(coordinator, Admission.load(operator / ADMISSIONS / f"{COORDINATOR}{ADMISSION_SUFFIX}"))
    manifest = json.dumps({"format": "radofed conformance kit", "format_version": VERSION}) + "\n"
    write_durably(directory / _MANIFEST_FILE, manifest.encode(), mode=BY_UMASK)
    # The last file: what was made is complete if it is there.
    create_durably(directory / "kit.seed", seed)


def _check_version(directory: Path, asked: JoinRequest, command: str) -> None:
    """Raises ConfigurationError if another version of the kit made the directory. command: makes it anew."""
    file = directory / _MANIFEST_FILE
    found = read_json(file, _MANIFEST).get("format_version") if file.exists() else None
    if found == VERSION:
        return
    made = "an earlier version of the kit" if found is None else f"version {json.dumps(found)} of the kit"
    ledger = ", and starts with an empty ledger" if asked.role is Role.PARTY else ""
    raise ConfigurationError(
        f"{directory}: {made} made it, and this one is version {VERSION}; nothing was tried. Move it away, and run "
        f"`{command}`: it makes a new federation, which {asked.name} joins anew{ledger}"
    )


def _request(seed: bytes, federation: str, role: Role, name: str) -> ReceivedRequest:
    key, tls = _derived(seed, name, federation), make_request(federation, role, name)
    request = JoinRequest(federation, role, name, key.public_bytes, tls.request_pem, 1)
    return ReceivedRequest(request, request.sign(key).to_bytes())


def _load(directory: Path, asked: JoinRequest, listen: str, schema: Path | None, rows: Path | None) -> Kit:
    operator = directory / "operator"
    federation_key = load_public_key(operator / "federation.pub")
    envelope, roster = read_roster(operator / ROSTER_FILE, federation_key, _ROSTER)
    if asked.member not in roster.members:
        raise ConfigurationError(f"{directory}: was made for another request than that of {asked.name}; give a new one")
    config = CoordinatorConfig.load(directory / "coordinator/coordinator.toml")
    admission = Admission.load(operator / ADMISSIONS / f"{asked.name}{ADMISSION_SUFFIX}")
    if admission.coordinator_address != listen:
        raise ConfigurationError(
            f"{directory}: was made for {admission.coordinator_address}, not for {listen}; give this address, or a new "
            "directory"
        )
    read = table.schema() if schema is None else load_schema(schema)
    own = directory / "rows.csv"
    if rows is None:
        write_durably(own, table.rows_csv().encode(), mode=BY_UMASK)
    file = own if rows is None else rows
    seed = read_bytes(directory / "kit.seed", _SEED)
    records, persons, epochs = _read(read, file, (table.ID_COLUMN, table.EPOCH_COLUMN))
    return Kit(directory, asked, read, records, roster, envelope, config, seed, persons, epochs)


def _read(
    schema: Schema, rows: Path, columns: Sequence[str]
) -> tuple[Records, PersonRows | None, NDArray[np.str_] | None]:
    """The table; whose each row is, and its epoch. columns: of ids, of epochs.

    None if there is no such column beside the schema's, or a cell of it is empty.
    """
    opened = open_table(rows)
    taken = {source.column for source in sources(schema, label=True)}
    ids, epochs = (name if name in opened.columns and name not in taken else None for name in columns)
    blocks = list(identified_blocks(opened, schema, ids, epochs))
    stored: Sequence[StoredRows] = [each.stored for each in blocks]
    features, labels, usable = (
        np.concatenate([getattr(each, name) for each in stored]) for name in ("features", "labels", "usable")
    )
    weights = None
    if schema.weight is not None:
        weights = np.concatenate([each.weights for each in stored if each.weights is not None])
    records = Records(features, labels, usable, coding=schema.label.coding, weights=weights)
    owners, months = (np.array([text for each in blocks for text in getattr(each, name)]) for name in ("ids", "epochs"))
    whose = PersonRows(np.unique(owners, return_inverse=True)[1].astype(np.uint64)) if _complete(owners) else None
    return records, whose, months if _complete(months) else None


def _complete(texts: NDArray[np.str_]) -> bool:
    return len(texts) > 0 and bool((texts != "").all())


def _hand_over(kit: Kit, schema: Path | None, rows: Path | None) -> None:
    """Write what the member under test needs."""
    place = kit.handed_over
    place.mkdir(exist_ok=True)
    name = kit.request.name
    admission = read_bytes(kit.directory / "operator" / ADMISSIONS / f"{name}{ADMISSION_SUFFIX}", _ROSTER)
    peers = {peer: fingerprint(kit.member(peer).signing_key) for peer in kit.peers}
    choices = PolicyChoices(
        KINDS,
        allow_unprotected=True,
        smallest_cohort=SMALLEST_COHORT,
        epsilon=EPSILON,
        delta=DELTA,
        unbounded_queries=UNBOUNDED_QUERIES,
    )
    learners = {name: fingerprint(kit.member(name).signing_key) for name in (LEARNER, WATCHED)}
    written = {
        f"{name}{ADMISSION_SUFFIX}": admission,
        "schema.toml": kit.schema.to_toml().encode() if schema is None else read_text(schema, _ROSTER).encode(),
        "schema.json": kit.schema.canonical_bytes(),
        "members.json": json.dumps(_members(kit), indent=1).encode() + b"\n",
    }
    if kit.request.role is Role.PARTY:
        written |= {"rows.csv": read_bytes(kit.directory / "rows.csv" if rows is None else rows, _ROSTER)}
        waits = (
            f"\n# A person decides on the queries of this learner.\n[approval]\nlearners = [{json.dumps(WATCHED)}]\n"
        )
        written |= {"policy.toml": (policy_toml(learners, peers, choices) + waits).encode()}
    else:
        written |= {"parties.toml": parties_toml({peer: peers[peer] for peer in ASKED}).encode()}
    for file, content in written.items():
        write_durably(place / file, content, mode=BY_UMASK)


def _members(kit: Kit) -> dict[str, object]:
    """What a person would otherwise type in: whom to accept, and the limits."""

    def one(name: str) -> dict[str, str]:
        member = kit.member(name)
        return {"name": name, "key_id": key_id(member.signing_key).hex(), "digits": member.digits}

    limits = {
        "epsilon": EPSILON,
        "delta": DELTA,
        "smallest_cohort": SMALLEST_COHORT,
        "assumed_colluders": COLLUDERS,
        "unbounded_queries": UNBOUNDED_QUERIES,
    }
    has = {"id": kit.persons is not None, "epoch": kit.epochs is not None}
    columns = {"id": table.ID_COLUMN, "epoch": table.EPOCH_COLUMN}
    return {
        "federation": kit.roster.federation,
        "coordinator_address": Admission.load(
            kit.directory / "operator" / ADMISSIONS / f"{kit.request.name}{ADMISSION_SUFFIX}"
        ).coordinator_address,
        "accepted_learner": one(LEARNER),
        "learner_that_waits_for_a_person": one(WATCHED),
        "other_learner": one(STRANGER),
        "accepted_parties": [one(peer) for peer in (kit.peers if kit.request.role is Role.PARTY else ASKED)],
        "limits": limits,
        "columns": {what: columns[what] for what, there in has.items() if there},
    }
