"""The error catalogue: every code that crosses the wire, with its gRPC status, public sentence and hint.

What a party says to the outside about its own data is one code, `UNAVAILABLE`. File, line, value and class balance
stay in its own log. A code travels in the trailing metadata of a failed call under `rado-code`, the sentence as the
status message.
"""

from dataclasses import dataclass
from enum import StrEnum

import grpc

from dpcore.errors import RadofedError

CODE_METADATA_KEY = "rado-code"
PAGES = "docs/reference/errors"
"""Directory of the documentation that has a page for every code."""
LONGEST_DETAIL = 1000


class Code(StrEnum):
    """What can be wrong between two nodes."""

    # Who is calling.
    PEER_UNKNOWN = "PEER_UNKNOWN"
    ROLE_FORBIDDEN = "ROLE_FORBIDDEN"
    SENDER_MISMATCH = "SENDER_MISMATCH"
    SIGNATURE_INVALID = "SIGNATURE_INVALID"
    # What is being said.
    MESSAGE_MALFORMED = "MESSAGE_MALFORMED"
    FIELD_UNKNOWN = "FIELD_UNKNOWN"
    MESSAGE_TOO_LARGE = "MESSAGE_TOO_LARGE"
    CALLS_TOO_MANY = "CALLS_TOO_MANY"
    FEDERATION_MISMATCH = "FEDERATION_MISMATCH"
    ROSTER_STALE = "ROSTER_STALE"
    # Queries and attempts.
    QUERY_UNKNOWN = "QUERY_UNKNOWN"
    QUERY_EXPIRED = "QUERY_EXPIRED"
    QUERY_INVALID = "QUERY_INVALID"
    QUERY_CLOSED = "QUERY_CLOSED"
    QUERIES_TOO_MANY = "QUERIES_TOO_MANY"
    QUERY_TOO_LARGE = "QUERY_TOO_LARGE"
    KEY_INVALID = "KEY_INVALID"
    ENCODING_OVERFLOW = "ENCODING_OVERFLOW"
    ATTEMPT_MISMATCH = "ATTEMPT_MISMATCH"
    PHASE_MISMATCH = "PHASE_MISMATCH"
    ANSWER_CONFLICT = "ANSWER_CONFLICT"
    COHORT_EXCLUDED = "COHORT_EXCLUDED"
    TOTAL_UNAVAILABLE = "TOTAL_UNAVAILABLE"
    # Uploads.
    CHUNK_MALFORMED = "CHUNK_MALFORMED"
    CHUNK_CONFLICT = "CHUNK_CONFLICT"
    CHUNK_MISSING = "CHUNK_MISSING"
    CIPHERTEXT_INVALID = "CIPHERTEXT_INVALID"
    RECEIPT_INVALID = "RECEIPT_INVALID"
    SPOOL_FULL = "SPOOL_FULL"
    # A party's refusals.
    POLICY_LEARNER = "POLICY_LEARNER"
    POLICY_DESIGN = "POLICY_DESIGN"
    POLICY_UNPROTECTED = "POLICY_UNPROTECTED"
    POLICY_COHORT = "POLICY_COHORT"
    POLICY_LIMITS = "POLICY_LIMITS"
    BUDGET_EXCEEDED = "BUDGET_EXCEEDED"
    SCHEMA_MISMATCH = "SCHEMA_MISMATCH"
    PLAN_INFEASIBLE = "PLAN_INFEASIBLE"
    UNAVAILABLE = "UNAVAILABLE"
    # How a query ends without a total.
    COHORT_TOO_SMALL = "COHORT_TOO_SMALL"
    ATTEMPTS_EXHAUSTED = "ATTEMPTS_EXHAUSTED"
    CANCELLED = "CANCELLED"
    # The node itself.
    DRAINING = "DRAINING"
    INTERNAL = "INTERNAL"


@dataclass(frozen=True)
class Entry:
    """One line of the catalogue."""

    status: grpc.StatusCode
    sentence: str
    hint: str
    exit_code: int
    retry: bool = False


_S = grpc.StatusCode

CATALOGUE: dict[Code, Entry] = {
    Code.PEER_UNKNOWN: Entry(
        _S.UNAUTHENTICATED,
        "The certificate does not belong to a member of the roster.",
        "Ask the operator whether the roster lists this certificate's name, and the coordinator has the newest one.",
        2,
    ),
    Code.ROLE_FORBIDDEN: Entry(
        _S.PERMISSION_DENIED,
        "This role may not make this call.",
        "Use the certificate of the role that the call is for.",
        2,
    ),
    Code.SENDER_MISMATCH: Entry(
        _S.PERMISSION_DENIED,
        "The sender named in the message is not the certificate's member.",
        "Use the signing key and the certificate of one and the same member.",
        2,
    ),
    Code.SIGNATURE_INVALID: Entry(
        _S.PERMISSION_DENIED,
        "The signature does not hold for these bytes, this message type and this signer.",
        "Check that the signing key is the one in the roster, and that nothing rewrites messages on the way.",
        2,
    ),
    Code.MESSAGE_MALFORMED: Entry(
        _S.INVALID_ARGUMENT, "The message is not well formed.", "Compare it with the protocol document.", 4
    ),
    Code.FIELD_UNKNOWN: Entry(
        _S.INVALID_ARGUMENT,
        "The message has a field that this node does not know.",
        "Update the older of the two nodes.",
        4,
    ),
    Code.MESSAGE_TOO_LARGE: Entry(
        _S.INVALID_ARGUMENT, "The message is larger than the limit.", "Send chunks of at most 512 KiB.", 4
    ),
    # A version that does not know the code tries again after this status, as it does after every UNAVAILABLE.
    Code.CALLS_TOO_MANY: Entry(
        _S.UNAVAILABLE,
        "Too many messages of this member are on the way at once.",
        "Send fewer at once; every node of radofed tries again by itself.",
        2,
        retry=True,
    ),
    Code.FEDERATION_MISMATCH: Entry(
        _S.INVALID_ARGUMENT,
        "The message is for another federation.",
        "Check the federation's name in the configuration.",
        4,
    ),
    Code.ROSTER_STALE: Entry(
        _S.FAILED_PRECONDITION,
        "The roster is older than one already seen.",
        "Fetch the newest roster and ask again; a roster that goes back needs the operator's explanation.",
        6,
    ),
    Code.QUERY_UNKNOWN: Entry(
        _S.NOT_FOUND, "No such query.", "Check the id; a query is forgotten some time after it ends.", 4
    ),
    Code.QUERY_EXPIRED: Entry(
        _S.FAILED_PRECONDITION,
        "The query's time is over, or not yet begun.",
        "Ask again with a later end; check both clocks.",
        3,
    ),
    Code.QUERY_INVALID: Entry(
        _S.INVALID_ARGUMENT, "The query contradicts itself.", "Compare its fields with the protocol document.", 4
    ),
    Code.QUERY_CLOSED: Entry(
        _S.FAILED_PRECONDITION, "The query or the attempt has ended.", "Ask again with a new query.", 6
    ),
    Code.QUERIES_TOO_MANY: Entry(
        _S.RESOURCE_EXHAUSTED, "Too many queries are open.", "Wait until one ends, or cancel one.", 1
    ),
    Code.QUERY_TOO_LARGE: Entry(
        _S.RESOURCE_EXHAUSTED,
        "The query's uploads would never fit the coordinator's store.",
        "Ask for fewer rados or parties, or ask the operator to raise spool_bytes.",
        4,
    ),
    Code.KEY_INVALID: Entry(
        _S.INVALID_ARGUMENT,
        "The Paillier key is too short or too long, malformed, out of date or not certified by the learner.",
        "Make a key with `rado learner keygen` (2048 to 4096 bits).",
        4,
    ),
    Code.ENCODING_OVERFLOW: Entry(
        _S.INVALID_ARGUMENT,
        "Sums of the declared size do not fit the slots.",
        "Raise slot_bits or lower fraction_bits.",
        4,
    ),
    Code.ATTEMPT_MISMATCH: Entry(
        _S.FAILED_PRECONDITION, "The message is for another attempt.", "Fetch the work again.", 6
    ),
    Code.PHASE_MISMATCH: Entry(
        _S.FAILED_PRECONDITION, "The attempt is not in a phase that takes this message.", "Fetch the work again.", 6
    ),
    Code.ANSWER_CONFLICT: Entry(
        _S.ALREADY_EXISTS,
        "Another answer of this party to this attempt is already there.",
        "Repeat the first answer's bytes, or wait for the next attempt.",
        6,
    ),
    Code.COHORT_EXCLUDED: Entry(
        _S.PERMISSION_DENIED,
        "This party is not in the attempt's cohort.",
        "It was late or there was no room; wait for the next query.",
        6,
    ),
    Code.TOTAL_UNAVAILABLE: Entry(
        _S.FAILED_PRECONDITION, "The total is not there yet.", "Follow the query until it is complete.", 6
    ),
    Code.CHUNK_MALFORMED: Entry(
        _S.INVALID_ARGUMENT,
        "The chunk's index, length or hash is wrong.",
        "Compare it with the protocol document.",
        4,
    ),
    Code.CHUNK_CONFLICT: Entry(
        _S.ALREADY_EXISTS,
        "Another chunk is already there under this index.",
        "Send the same bytes again, or give the attempt up.",
        6,
    ),
    Code.CHUNK_MISSING: Entry(
        _S.FAILED_PRECONDITION, "Chunks are missing.", "Upload every chunk before the receipt.", 6
    ),
    Code.CIPHERTEXT_INVALID: Entry(
        _S.INVALID_ARGUMENT,
        "A ciphertext is not a unit modulo n^2.",
        "Encrypt under the query's key; the party's spool may be damaged.",
        4,
    ),
    Code.RECEIPT_INVALID: Entry(
        _S.INVALID_ARGUMENT,
        "The receipt does not fit the cohort or the upload.",
        "Compute its digests over the bytes that were sent.",
        4,
    ),
    Code.SPOOL_FULL: Entry(
        _S.RESOURCE_EXHAUSTED,
        "There is no room to store the upload.",
        "The operator must free space or raise the quota; the party tries again by itself.",
        1,
        retry=True,
    ),
    Code.POLICY_LEARNER: Entry(
        _S.PERMISSION_DENIED,
        "The party's policy does not admit this learner.",
        "Ask the party's data officer to add the learner's key.",
        6,
    ),
    Code.POLICY_DESIGN: Entry(
        _S.PERMISSION_DENIED,
        "The party's policy does not admit this kind of query or design.",
        "Choose a design that the party admits.",
        6,
    ),
    Code.POLICY_UNPROTECTED: Entry(
        _S.PERMISSION_DENIED,
        "The design leaves records unprotected, and the party's policy does not allow that.",
        "Choose a design that protects records, or ask the data officer about allow_unprotected.",
        6,
    ),
    Code.POLICY_COHORT: Entry(
        _S.PERMISSION_DENIED,
        "The cohort is smaller than the party's policy allows.",
        "Raise cohort_min; more members of the roster must take part and be accepted by the party.",
        6,
    ),
    Code.POLICY_LIMITS: Entry(
        _S.PERMISSION_DENIED,
        "The query is beyond a limit of the party's policy for one query.",
        "Lower the number of rados, the delta or the attempts.",
        6,
    ),
    Code.BUDGET_EXCEEDED: Entry(
        _S.PERMISSION_DENIED,
        "The party's privacy budget does not cover this query.",
        "Ask for less; what was spent never comes back.",
        6,
    ),
    Code.SCHEMA_MISMATCH: Entry(
        _S.FAILED_PRECONDITION,
        "The party's schema is not the query's.",
        "Agree on one schema file; `rado party check` says which field differs.",
        6,
    ),
    Code.PLAN_INFEASIBLE: Entry(
        _S.FAILED_PRECONDITION,
        "The design is empty or unbounded at this party's size.",
        "Use a milder truncation or fewer rados.",
        6,
    ),
    Code.UNAVAILABLE: Entry(_S.FAILED_PRECONDITION, "The party cannot contribute now.", "Ask the party's operator.", 6),
    Code.COHORT_TOO_SMALL: Entry(
        _S.FAILED_PRECONDITION,
        "Too few parties are ready.",
        "See what they refused for, bring missing parties up, or ask with a smaller cohort_min, or epsilon.",
        6,
    ),
    Code.ATTEMPTS_EXHAUSTED: Entry(
        _S.FAILED_PRECONDITION,
        "A party of the cohort was lost in every attempt.",
        "Bring the missing parties up and ask again.",
        6,
    ),
    Code.CANCELLED: Entry(_S.CANCELLED, "The learner cancelled the query.", "Ask again with a new query.", 6),
    Code.DRAINING: Entry(_S.UNAVAILABLE, "The node is shutting down.", "Try again in a moment.", 2, retry=True),
    Code.INTERNAL: Entry(
        _S.INTERNAL, "The node failed.", "Its own log says why; report it if that looks like a bug.", 5
    ),
}


class WireError(RadofedError):
    """An error of the catalogue, raised here or received from a peer.

    `detail` is sent only by the coordinator and never holds anything of a party's data.
    """

    def __init__(self, code: Code, detail: str = "") -> None:
        self.code = code
        self.detail = detail
        entry = CATALOGUE[code]
        self.hint = entry.hint
        self.status = entry.status
        super().__init__(f"{entry.sentence} {detail} {entry.hint}" if detail else f"{entry.sentence} {entry.hint}")

    @property
    def public_sentence(self) -> str:
        """What crosses the wire: the catalogue's sentence, and the detail where there is one."""
        sentence = CATALOGUE[self.code].sentence
        # A detail may quote what a peer sent, and a status message travels in a header.
        return f"{sentence} {self.detail[:LONGEST_DETAIL]}" if self.detail else sentence


def page_of(code: Code) -> str:
    """Page of the documentation that explains the code: `PAGES/CODE.md`."""
    return f"{PAGES}/{code.value}.md"


def exit_code_of(error: RadofedError) -> int:
    """The exit code that the `rado` command ends with on this error."""
    return CATALOGUE[error.code].exit_code if isinstance(error, WireError) else error.exit_code


class ConnectionLostError(RadofedError):
    """The peer could not be reached, or not authenticated, within the time given."""

    exit_code = 2

    def __init__(self, target: str, cause: str) -> None:
        self.target, self.cause = target, cause
        super().__init__(f"no connection to {target}: {cause}; is it running there, and is this its address?")


class TimedOutError(RadofedError):
    """Something did not happen within the time given."""

    exit_code = 3
