"""Data of `rado coordinator status`: health as a client sees it, and the stored queries, also while it is down."""

import datetime as dt
import shutil
import sqlite3
import time
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from coordinator.config import CoordinatorConfig
from coordinator.limits import unknown_learners, usage
from coordinator.round_state import Round
from coordinator.store import CountedQuery, read_asked, read_queries, read_roster, read_seen
from coordinator.uploads import TOTAL, scan
from dpcore.errors import ConfigurationError, RadofedError
from radobase.local_status import NotRunningError, UnreadableStateError, read_status
from radobase.metrics import Reason
from radobase.printing import duration, listed, local_time, printable
from radobase.reading import FileKind, read_text, with_remedy
from wire.envelopes import Envelope
from wire.errors import Code
from wire.identity import Certificate
from wire.query import Query
from wire.roster import Role, Roster
from wire.status import Phase
from wire.transport import CHANNEL_OPTIONS

ANSWER_WITHIN_S = 5.0
_ADDRESS = FileKind(with_remedy("start the coordinator again"), limit_bytes=4096)
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - recognised, not bound


def read(config: CoordinatorConfig) -> dict[str, Any]:
    """The coordinator's state, safe for JSON. Run it on the coordinator's machine. Changes nothing.

    - running: whether it answers. health: "SERVING", "NOT_SERVING" or "UNREACHABLE", the last with a cause.
    - roster: the newest that it has served, with its expiry; None before the first. certificate: until when it is
      valid.
    - queries: all that are open or not forgotten, with kind, phase, attempt, remaining seconds (as last stored) and
      every party's state, in the order of their submission.
    - members: parties and learners of that roster, each with the time of its last call; None if there is none.
    - free_disk_bytes: where uploads are stored, None before the first start.
    - drained_since_unix_s: None unless it runs and is drained. not_ready: codes of the reasons why it would not take a
      query now.
    - quotas: what each learner has open and asked within 24 hours, with its limits; None stands for no limit.
      unknown_learners: whom `[limits.learners]` names and the roster does not list.

    Raises ConfigurationError if the certificate's files cannot be read.
    """
    address = _address(config)
    health, cause = _health(config, address)
    chunks = scan(config.spool_directory)
    served, queries = _served(config), _queries(config.store_file, chunks)
    return {
        "federation": config.federation,
        "running": health != "UNREACHABLE",
        "health": health,
        "cause": cause,
        **node_state(config),
        "address": address,
        "spool_bytes": sum(c.size_bytes for key, held in chunks.items() if key[1] != TOTAL for c in held.values()),
        "spool_limit_bytes": config.limits.spool_bytes,
        "free_disk_bytes": _free_bytes(config.spool_directory),
        "roster": _roster(config),
        "certificate": Certificate.load(config.tls.files.certificate).status(dt.datetime.now(dt.UTC)),
        "members": _members(config),
        "quotas": usage(config, served, queries, _asked(config.store_file)),
        "unknown_learners": unknown_learners(config, served),
        "queries": queries,
    }


def _address(config: CoordinatorConfig) -> str:
    try:
        address = read_text(config.address_file, _ADDRESS).strip()
    except ConfigurationError:
        address = config.listen
    host, _, port = address.rpartition(":")
    return f"{_ANY_ADDRESS.get(host, host)}:{port}"


def _health(config: CoordinatorConfig, address: str) -> tuple[str, str]:
    """Health over mutual TLS. Client and server use the coordinator's own certificate."""
    files = config.tls.files
    options = list(CHANNEL_OPTIONS)
    names = Certificate.load(files.certificate).dns_and_addresses
    if names:
        # The certificate may not name this address, such as loopback behind a public name.
        options.append(("grpc.ssl_target_name_override", names[0]))
    with grpc.secure_channel(address, files.channel_credentials(), options=options) as channel:
        try:
            response = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(), timeout=ANSWER_WITHIN_S
            )
        except grpc.RpcError as error:
            return "UNREACHABLE", printable(error.details() or "") or error.code().name
    return health_pb2.HealthCheckResponse.ServingStatus.Name(response.status), ""


def node_state(config: CoordinatorConfig) -> dict[str, Any]:
    """What the running node says of itself, for `read`. not_ready: codes of radobase.metrics."""
    found: dict[str, Any]
    try:
        found = read_status(config.state_directory)
    except UnreadableStateError:
        found = {"not_ready": [Reason.STATE_UNREADABLE.value]}
    except NotRunningError:
        found = {}
    return {"drained_since_unix_s": found.get("drained_since_unix_s"), "not_ready": found.get("not_ready", [])}


def _free_bytes(directory: Path) -> int | None:
    try:
        return shutil.disk_usage(directory).free
    except OSError:
        return None


def _served(config: CoordinatorConfig) -> Roster | None:
    if not config.store_file.exists():
        return None
    try:
        envelope = read_roster(config.store_file)
    except sqlite3.Error:
        return None
    return None if envelope is None else Roster.from_bytes(envelope.payload)


def _members(config: CoordinatorConfig) -> list[dict[str, Any]]:
    roster = _served(config)
    if roster is None:
        return []
    try:
        seen = read_seen(config.store_file)
    except sqlite3.Error:
        seen = {}
    return [
        {"name": member.name, "role": member.role.value, "last_seen_unix_s": seen.get(member.name)}
        for member in roster.members
        if member.role is not Role.COORDINATOR
    ]


def _asked(store_file: Path) -> list[CountedQuery]:
    try:
        return read_asked(store_file) if store_file.exists() else []
    except sqlite3.Error:
        return []


def _roster(config: CoordinatorConfig) -> dict[str, Any] | None:
    """Version and expiry of the newest roster in the store. warning: empty if there is nothing to do."""
    roster = _served(config)
    if roster is None:
        return None
    return {
        "version": roster.version,
        "members": len(roster.members),
        "not_after_unix_s": roster.not_after_unix_s,
        "expires": roster.expiry_date,
        "warning": roster.expiry_warning(time.time()),
    }


def _queries(store_file: Path, chunks: dict[Any, dict[int, Any]]) -> list[dict[str, Any]]:
    if not store_file.exists():
        return []
    try:
        rows = read_queries(store_file)
    except sqlite3.Error:
        return []
    try:
        return [_query(row, chunks) for row in rows]
    except (RadofedError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ConfigurationError(
            f"{store_file}: contains a query that cannot be read ({error!r}); move the file away or restore it"
        ) from error


def _query(row: dict[str, Any], chunks: dict[Any, dict[int, Any]]) -> dict[str, Any]:
    query_id: bytes = row["query_id"]
    now = time.monotonic()
    round_ = Round.from_dict(row["round"], now=now, expires_at=now + row["not_after_unix_s"] - time.time())
    part = str(round_.attempt)
    return {
        "query_id": query_id.hex(),
        "learner": row["learner"],
        "kind": Query.from_bytes(Envelope.from_bytes(row["envelope"]).payload).kind.name,
        "phase": round_.phase.word,
        "attempt": round_.attempt,
        "max_attempts": round_.rules.max_attempts,
        "remaining_s": round(round_.remaining_s(now), 1),
        "submitted_at_unix_s": row["submitted_at_unix_s"],
        "answering_ended_early": round_.answering_ended_early,
        "code": round_.code,
        "detail": round_.detail,
        "spool_bytes": sum(c.size_bytes for key, held in chunks.items() if key[0] == query_id for c in held.values()),
        "parties": [
            {
                "party": party,
                "state": round_.party_state(party).word,
                "rows": round_.answers[party].rows if party in round_.answers else 0,
                "code": round_.answers[party].code if party in round_.answers else "",
                "chunks": len(chunks.get((query_id, part, party), ())) if round_.phase is Phase.UPLOADING else 0,
            }
            for party in round_.rules.parties
        ],
    }


# What is said of a coordinator's members and queries, of the data that `coordinator.status` reads.


_UNHEARD = ("silent", "pending")
_AWAITED = {
    "answering": (("silent", "waiting for"), ("pending", "waiting for a decision at")),
    "preparing": (("accepted", "waiting for"),),
    "uploading": (("uploading", "waiting for"),),
}


def seen_words(unix_s: int | None) -> str:
    """When a member was last seen."""
    if unix_s is None:
        return "never"
    return f"{local_time(unix_s)}, {duration(max(0.0, time.time() - unix_s))} ago"


def quota_words(quota: dict[str, Any]) -> list[str]:
    """A learner's open queries, queries within a day and bytes of uploads within a day, each with its limit."""

    def words(used: str, most: str) -> str:
        limit = quota[most]
        return f"{quota[used]:,}" if limit is None else f"{quota[used]:,} of {limit:,}"

    return [
        words("open_queries", "open_queries_limit"),
        words("queries_last_day", "queries_per_day"),
        words("upload_bytes_last_day", "upload_bytes_per_day"),
    ]


def newest_first(queries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Queries by the time at which they were submitted."""
    return sorted(queries, key=lambda query: query["submitted_at_unix_s"], reverse=True)


def answer_words(query: dict[str, Any]) -> str:
    """How many parties answered, who is waited for, and why the query failed."""
    states = {each["party"]: each["state"] for each in query["parties"]}
    answered = sum(state not in _UNHEARD for state in states.values())
    parts = [f"{answered} of {len(states)} answered"]
    if refused := [f"{each['party']} ({each['code']})" for each in query["parties"] if each["code"]]:
        parts.append(f"refused: {listed(refused)}")
    for state, words in _AWAITED.get(query["phase"], ()):
        if names := [party for party, at in states.items() if at == state]:
            parts.append(f"{words} {listed(names)}")
    if query["phase"] != "answering" and (unheard := [party for party, at in states.items() if at in _UNHEARD]):
        words = "not waited for" if query["answering_ended_early"] else "without an answer"
        parts.append(f"{words}: {listed(unheard)}")
    ended = "asked only" if query["code"] == Code.ONLY_ASKED else query["code"]
    return "; ".join([*parts, *([ended] if ended else [])])
