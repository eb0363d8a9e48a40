"""A release: the total of one query with everything needed to use it again, as a directory of two files.

release.json   format, query, roster, cohort, receipts (signed, as received), schema, encoding, rows of each
               party, privacy statement, study if the query names one, time, digest
rados.npy      the rados, int64 (n, d), in units of 2^-fraction_bits; or moments.npy, statistic.npy or gradient.npy,
               int64 (length,), in the order and units of that kind in dpcore.queries

digest = SHA-256("rado.v1/release" || 0x00 || length || canonical || array), where canonical is the JSON object without
its digest (keys sorted, no white space, UTF-8), length is its length in 8 big-endian bytes, and array is the integers
as little-endian int64, row by row.
"""

import base64
import binascii
import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, RadofedError
from dpcore.numbers.fixed_point import frozen
from dpcore.queries.kind import MAX_VALUES
from dpcore.queries.moments import MomentsQuery
from dpcore.queries.rados import RadosQuery
from dpcore.queries.statement import PrivacyStatement
from dpcore.rados.distribution import Moments, RadoDistribution
from dpcore.records.schema import Schema
from learner.decryption import check_cohort
from radobase.printing import json_text
from radobase.reading import FileKind, read_array, read_json, with_remedy
from radobase.writing import new_file, publish_directory
from wire.envelopes import Envelope
from wire.query import OpenedQuery, Query, open_query
from wire.query_kinds import AnyKind
from wire.roster import open_roster
from wire.statements import Acceptance, Cohort, check_receipts, check_survivors_of

FORMAT = "radofed-release"
FORMAT_VERSION = 1
_DOMAIN = b"rado.v1/release\0"
_JSON = "release.json"


class OpenedTotal(Protocol):
    """What moments are decoded from: a release, or an answer of a simulation."""

    @property
    def query(self) -> Query:
        """The query that was sent."""
        ...

    @property
    def integers(self) -> NDArray[np.int64]:
        """The total, in the kind's shape and units."""
        ...

    @property
    def party_rows(self) -> Mapping[str, int]:
        """Rows of each party of the cohort."""
        ...


def moments_of(answer: OpenedTotal) -> Any:
    """The moments of an answer to a query for them, in the form of its kind."""
    kind = answer.query.kind
    assert isinstance(kind, MomentsQuery), "the query is for moments"
    return kind.moments(
        answer.integers,
        answer.query.encoding.fraction_bits,
        rows=sum(answer.party_rows.values()),
        parties=len(answer.party_rows),
        held_back=answer.query.held_back,
    )


class ReleaseError(ConfigurationError):
    """A directory is not a release, or was changed after the release was saved."""


_REMEDY = with_remedy("give the directory of a release, or fetch it again", ReleaseError)
# A thousand acceptances and receipts, the longest roster and the longest query have 12 MB.
_FIELDS = FileKind(_REMEDY, limit_bytes=32 << 20)
_ARRAY = FileKind(_REMEDY, limit_bytes=8 * MAX_VALUES + (1 << 16))


@dataclass(frozen=True, eq=False)
class Release:
    """The total of one query, with its query, cohort, receipts, roster and privacy statement.

    Valid from construction. Opening the total verifies signatures; `verify` verifies them again.

    Raises:
        ReleaseError: the parts are not of one query.
        WireError: a part is malformed.
    """

    query_envelope: Envelope
    roster_envelope: Envelope
    cohort: Cohort
    receipts: tuple[Envelope, ...]
    statement: PrivacyStatement
    created_at_unix_s: int
    integers: NDArray[np.int64] = field(repr=False)
    """int64, read-only: (n, d) rados in units of 2^-fraction_bits, or (length,) of another kind; copied unless they are
    already read-only."""
    attempts_signed: int = 1
    """The attempts of the query that the learner had signed when it opened the total."""
    survivors: tuple[str, ...] = ()
    """The members of the cohort that the total is of, in order, if members may vanish; otherwise empty."""

    def __post_init__(self) -> None:
        integers = frozen(self.integers, np.int64)
        expected = self.query.kind.shape(self.query.d)
        if integers.shape != expected or self.integers.dtype != np.int64:
            found = f"{self.integers.dtype} {self.integers.shape}"
            raise ReleaseError(f"the values are {found} and the query asked for int64 {expected}; fetch it again")
        if self.cohort.query_id != self.query_id:
            raise ReleaseError("the cohort is another query's; fetch the release again")
        if not (isinstance(self.attempts_signed, int) and self.attempts_signed >= 1):
            raise ReleaseError(f"attempts_signed is {self.attempts_signed!r}: a number from 1; fetch the release again")
        if bool(self.survivors) != bool(self.query.may_vanish) or len(self.acceptances) < len(self.survivors):
            raise ReleaseError("the members that the total is of are not those of its cohort; fetch the release again")
        if len(self.receipts) != len(self.acceptances):
            raise ReleaseError("there is not one receipt for each member of the cohort; fetch the release again")
        object.__setattr__(self, "integers", integers)

    @cached_property
    def query(self) -> Query:
        """The query that was sent."""
        return Query.from_bytes(self.query_envelope.payload)

    @property
    def query_id(self) -> bytes:
        """SHA-256 of the query's payload."""
        return self.query_envelope.payload_hash

    @cached_property
    def acceptances(self) -> tuple[Acceptance, ...]:
        """Of the members that the total is of: the cohort's, in order, without those that vanished."""
        members = tuple(Acceptance.from_bytes(envelope.payload) for envelope in self.cohort.acceptances)
        return tuple(each for each in members if each.party in self.survivors) if self.survivors else members

    @property
    def vanished(self) -> tuple[str, ...]:
        """The members of the cohort that the total is not of."""
        members = (Acceptance.from_bytes(envelope.payload).party for envelope in self.cohort.acceptances)
        return tuple(name for name in members if self.survivors and name not in self.survivors)

    @property
    def attempts(self) -> int:
        """How many attempts of the query may have a total that a coalition can complete; see `possible_attempts`."""
        return possible_attempts(self.query, max(self.cohort.attempt, self.attempts_signed))

    @property
    def party_rows(self) -> dict[str, int]:
        """Rows of each party of the cohort."""
        return {acceptance.party: acceptance.rows for acceptance in self.acceptances}

    @property
    def cohort_rows(self) -> int:
        """The cohort's row count."""
        return sum(self.party_rows.values())

    @property
    def rows(self) -> int:
        """m, the number of rows for estimators: the cohort's; of a part of the rows, how many it has on average."""
        part = self.query.held_back
        return self.cohort_rows if part is None else part.rows(self.cohort_rows)

    @property
    def schema(self) -> Schema:
        """How rows become the coordinates of the rados."""
        return self.query.schema

    @property
    def bias(self) -> bool:
        """Whether the last coordinate is the constant feature."""
        return self.schema.bias

    @property
    def distribution(self) -> RadoDistribution:
        """The rados' distribution, including their noise. Raises ReleaseError if this is not a release of rados."""
        rows = [acceptance.rows for acceptance in self.acceptances]
        return self._rados_query.distribution(self.query.d, rows, self.query.encoding.fraction_bits)

    @cached_property
    def rados(self) -> NDArray[np.float64]:
        """(n, d) float64, one rado a row, in units of the encoded features; read-only.

        Raises ReleaseError if this is not a release of rados.
        """
        rados = self._rados_query.decode(self.integers.reshape(-1), self.query.encoding.fraction_bits)
        rados.setflags(write=False)
        return rados

    @cached_property
    def moments(self) -> Moments:
        """The sums of edges and of products, with the size of their noise.

        Raises ReleaseError if this is not a release of moments.
        """
        kind = self.query.kind
        if not isinstance(kind, MomentsQuery):
            raise ReleaseError(
                f"this is a release of {self.contents}; give one of moments, or choose another estimator"
            )
        found: Moments = moments_of(self)
        return found

    @property
    def _rados_query(self) -> RadosQuery:
        kind = self.query.kind
        if not isinstance(kind, RadosQuery):
            raise ReleaseError(f"this is a release of {self.contents}; give one of rados, or choose another estimator")
        return kind

    @property
    def contents_data(self) -> dict[str, Any]:
        """Sizes and unit of the array for release.json, under the array's name."""
        kind, query = self.query.kind, self.query
        return {kind.array: kind.facts(query.d, query.encoding.fraction_bits)}

    @property
    def part_data(self) -> dict[str, Any]:
        """The epoch, the part of the rows and the study for release.json, of those that the query names."""
        part, epoch, study = self.query.held_back, self.query.epoch, self.query.study
        about = ({} if part is None else {"part": part.to_dict()}) | ({} if epoch is None else {"epoch": epoch})
        return about | ({} if study is None else {"study": study.to_dict()})

    @property
    def _survivors_data(self) -> dict[str, Any]:
        """The members that the total is of for release.json; empty if no member may vanish."""
        if not self.survivors:
            return {}
        return {"survivors": list(self.survivors), "sharing_digest": self.cohort.sharing_digest.hex()}

    @property
    def contents(self) -> str:
        """The contents in words, such as "500 rados"."""
        return self.query.kind.contents

    @cached_property
    def digest(self) -> bytes:
        """32 bytes over everything that is saved, as defined in the module's docstring."""
        return _digest(self.to_json(), self.integers)

    def verify(self, federation_key: bytes) -> None:
        """Verify every signature again: roster, query, cohort, receipts.

        federation_key: raw Ed25519 public key, pinned. Raises WireError, or CohortError if the query does not allow
        the cohort.
        """
        roster = open_roster(self.roster_envelope, federation_key)
        opened = self.open_query(federation_key)
        check_cohort(self.cohort, opened, roster)
        if self.survivors:
            members = [each.party for each in self.cohort.open(roster)]
            check_survivors_of(self.survivors, members, opened.query.cohort_min)
        check_receipts(
            self.receipts,
            self.cohort,
            roster,
            chunks=opened.chunks,
            ciphertexts=opened.ciphertexts,
            survivors=self.survivors,
        )

    def open_query(self, federation_key: bytes) -> OpenedQuery:
        """The query with its verified key, as of its creation time. Raises WireError."""
        roster = open_roster(self.roster_envelope, federation_key)
        return open_query(self.query_envelope, roster, now_unix_s=self.query.created_at_unix_s)

    def save(self, directory: Path) -> None:
        """Write the release atomically to a new directory.

        Raises ReleaseError if the directory exists or cannot be written.
        """
        if directory.exists():
            raise ReleaseError(f"{directory}: already exists, and a release is never overwritten; choose another place")
        content = {**self.to_json(), "digest": self.digest.hex()}
        text = json_text(content, indent=2, allow_nan=False)
        temporary: Path | None = None
        try:
            directory.parent.mkdir(parents=True, exist_ok=True)
            temporary = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
            with new_file(temporary / _JSON) as file:
                file.write(f"{text}\n".encode())
            with new_file(temporary / _array_file(self.query.kind.array)) as file:
                np.save(file, self.integers.astype("<i8", copy=False), allow_pickle=False)
            publish_directory(temporary, directory)
        except OSError as error:
            raise ReleaseError(
                f"{directory}: cannot be written ({error.strerror}); free space or choose another place"
            ) from error
        finally:
            if temporary is not None:
                shutil.rmtree(temporary, ignore_errors=True)

    @classmethod
    def load(cls, directory: Path) -> "Release":
        """Read a release that `save` wrote. Raises ReleaseError if a file is missing, malformed or was changed."""
        content = read_json(directory / _JSON, _FIELDS)
        if content.get("format") != FORMAT:
            raise ReleaseError(f"{directory}: not a release of radofed; give the directory that `fetch` named")
        if content.get("format_version") != FORMAT_VERSION:
            found = content.get("format_version")
            raise ReleaseError(f"{directory}: format version {found!r} is not {FORMAT_VERSION}; update radofed")
        claimed = content.pop("digest", None)
        integers = read_array(_array_in(directory), _ARRAY, "<i8").astype(np.int64, copy=False)
        try:
            found_digest = _digest(content, integers).hex()
            if claimed != found_digest:
                raise ReleaseError(
                    f"{directory}: the digest is {found_digest} and the file says {claimed}: the release was changed "
                    "after it was saved; fetch it again"
                )
            integers.setflags(write=False)
            release = cls._from_json(content, integers)
            # Fields must also match the signed query and cohort: a changed file may have a recomputed digest.
            same = release.to_json() == content
        except ReleaseError:
            raise
        except (RadofedError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            raise ReleaseError(f"{directory}: malformed ({error}); fetch the release again") from error
        if not same:
            raise ReleaseError(f"{directory}: its fields contradict its signed query and cohort; fetch it again")
        return release

    def to_json(self) -> dict[str, Any]:
        """The content of release.json without its digest."""
        query = self.query
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "query_id": self.query_id.hex(),
            "created_at": datetime.fromtimestamp(self.created_at_unix_s, UTC).isoformat(),
            "created_at_unix_s": self.created_at_unix_s,
            **self.contents_data,
            "rows": self.cohort_rows,
            "rows_by_party": self.party_rows,
            "encoding": {
                "fraction_bits": query.encoding.fraction_bits,
                "value_bits": query.encoding.value_bits,
                "slot_bits": query.encoding.slot_bits,
            },
            "schema": query.schema.canonical_bytes().decode(),
            "statement": self.statement.to_dict(),
            "attempt": self.cohort.attempt,
            **self.part_data,
            **({"attempts_signed": self.attempts_signed} if self.attempts_signed > self.cohort.attempt else {}),
            **self._survivors_data,
            "query": _envelope_to_json(self.query_envelope),
            "roster": _envelope_to_json(self.roster_envelope),
            "acceptances": [_envelope_to_json(envelope) for envelope in self.cohort.acceptances],
            "receipts": [_envelope_to_json(envelope) for envelope in self.receipts],
        }

    @classmethod
    def _from_json(cls, content: dict[str, Any], integers: NDArray[np.int64]) -> "Release":
        query = _envelope_from_json(content["query"])
        acceptances = tuple(_envelope_from_json(part) for part in content["acceptances"])
        return cls(
            query_envelope=query,
            roster_envelope=_envelope_from_json(content["roster"]),
            cohort=Cohort(
                query.payload_hash, content["attempt"], acceptances, bytes.fromhex(content.get("sharing_digest", ""))
            ),
            receipts=tuple(_envelope_from_json(part) for part in content["receipts"]),
            statement=PrivacyStatement.from_dict(content["statement"]),
            created_at_unix_s=content["created_at_unix_s"],
            integers=integers,
            attempts_signed=content.get("attempts_signed", 1),
            survivors=tuple(content.get("survivors", ())),
        )


def stated_digest(directory: Path) -> str:
    """The digest that a release's file states, to find it among others; `Release.load` computes and compares it.

    Raises ReleaseError if there is no such file.
    """
    return str(read_json(directory / _JSON, _FIELDS).get("digest"))


def possible_attempts(query: Query, signed: int) -> int:
    """How many attempts of a query may have a total.

    signed: the last attempt that the learner signed; its query is the signature of the first. There are no others: a
    party refuses an attempt without the learner's signed decision, and any beyond `max_attempts`.
    """
    return min(signed, query.max_attempts)


def _array_file(array: str) -> str:
    return f"{array}.npy"


def _array_in(directory: Path) -> Path:
    """The array file that exists: the JSON, which names it, is not trusted before its digest is verified."""
    *others, last = (directory / _array_file(kind.array) for kind in get_args(AnyKind))
    return next((path for path in others if path.exists()), last)


def _digest(content: dict[str, Any], integers: NDArray[np.int64]) -> bytes:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    digest = hashlib.sha256(_DOMAIN + len(text).to_bytes(8, "big") + text)
    digest.update(np.ascontiguousarray(integers, dtype="<i8").reshape(-1).data)
    return digest.digest()


def _envelope_to_json(envelope: Envelope) -> dict[str, str]:
    return {
        "payload": base64.b64encode(envelope.payload).decode(),
        "key_id": envelope.key_id.hex(),
        "signature": base64.b64encode(envelope.signature).decode(),
    }


def _envelope_from_json(content: dict[str, str]) -> Envelope:
    try:
        return Envelope(
            base64.b64decode(content["payload"], validate=True),
            bytes.fromhex(content["key_id"]),
            base64.b64decode(content["signature"], validate=True),
        )
    except binascii.Error as error:
        raise ReleaseError(f"an envelope of the release is not base64 ({error}); fetch the release again") from error
