"""The error catalogue: every code that crosses the wire, with its gRPC status, public sentence and hint.

For an error of its own, a party reports only the code `UNAVAILABLE`. File, line, value and class balance stay in its
log. A code travels in the trailing metadata of a failed call under `rado-code`, the sentence and the detail as the
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
    """Codes of errors between two nodes."""

    # The caller.
    PEER_UNKNOWN = "PEER_UNKNOWN"
    ROLE_FORBIDDEN = "ROLE_FORBIDDEN"
    SENDER_MISMATCH = "SENDER_MISMATCH"
    SIGNATURE_INVALID = "SIGNATURE_INVALID"
    # The message.
    MESSAGE_MALFORMED = "MESSAGE_MALFORMED"
    FIELD_UNKNOWN = "FIELD_UNKNOWN"
    FEATURE_MISSING = "FEATURE_MISSING"
    MESSAGE_TOO_LARGE = "MESSAGE_TOO_LARGE"
    CALLS_TOO_MANY = "CALLS_TOO_MANY"
    FEDERATION_MISMATCH = "FEDERATION_MISMATCH"
    ROSTER_STALE = "ROSTER_STALE"
    ROSTER_EXPIRED = "ROSTER_EXPIRED"
    # Queries and attempts.
    QUERY_UNKNOWN = "QUERY_UNKNOWN"
    QUERY_EXPIRED = "QUERY_EXPIRED"
    QUERY_INVALID = "QUERY_INVALID"
    QUERY_CLOSED = "QUERY_CLOSED"
    QUERIES_TOO_MANY = "QUERIES_TOO_MANY"
    QUERY_TOO_LARGE = "QUERY_TOO_LARGE"
    KEY_INVALID = "KEY_INVALID"
    SEED_MISMATCH = "SEED_MISMATCH"
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
    PARTY_NOT_ASKED = "PARTY_NOT_ASKED"
    POLICY_LEARNER = "POLICY_LEARNER"
    POLICY_DESIGN = "POLICY_DESIGN"
    POLICY_UNPROTECTED = "POLICY_UNPROTECTED"
    POLICY_COHORT = "POLICY_COHORT"
    MASKS_TOO_FEW = "MASKS_TOO_FEW"
    POLICY_LIMITS = "POLICY_LIMITS"
    POLICY_PURPOSE = "POLICY_PURPOSE"
    POLICY_STUDY = "POLICY_STUDY"
    STUDY_DATES = "STUDY_DATES"
    PERSON_REFUSED = "PERSON_REFUSED"
    BUDGET_EXCEEDED = "BUDGET_EXCEEDED"
    SCHEMA_MISMATCH = "SCHEMA_MISMATCH"
    PLAN_INFEASIBLE = "PLAN_INFEASIBLE"
    EPOCH_EMPTY = "EPOCH_EMPTY"
    EPOCH_CHANGED = "EPOCH_CHANGED"
    PERSONS_UNKNOWN = "PERSONS_UNKNOWN"
    UNIT_REFUSED = "UNIT_REFUSED"
    ROWS_NOT_ACCEPTED = "ROWS_NOT_ACCEPTED"
    UNAVAILABLE = "UNAVAILABLE"
    # The end of a query without a total.
    COHORT_TOO_SMALL = "COHORT_TOO_SMALL"
    ATTEMPTS_EXHAUSTED = "ATTEMPTS_EXHAUSTED"
    CANCELLED = "CANCELLED"
    ONLY_ASKED = "ONLY_ASKED"
    # The node itself.
    DRAINING = "DRAINING"
    INTERNAL = "INTERNAL"


@dataclass(frozen=True)
class Entry:
    """One entry of the catalogue. retry: whether the caller may repeat the call."""

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
        "Ask the operator whether the newest roster lists this certificate's name and key and the coordinator has it.",
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
        "Use the signing key and the certificate of the same member.",
        2,
    ),
    Code.SIGNATURE_INVALID: Entry(
        _S.PERMISSION_DENIED,
        "The signature is not valid for these bytes, this message type, this federation and this signer.",
        "Check that both nodes have version 0.3.0 or newer, that the signing key is the one in the roster and is used "
        "in no other federation, and that no proxy changes messages on the way.",
        2,
    ),
    Code.MESSAGE_MALFORMED: Entry(
        _S.INVALID_ARGUMENT, "The message is malformed.", "Compare it with the protocol document.", 4
    ),
    Code.FIELD_UNKNOWN: Entry(
        _S.INVALID_ARGUMENT,
        "The message has a field that this node does not know.",
        "Update the older of the two nodes.",
        4,
    ),
    Code.FEATURE_MISSING: Entry(
        _S.FAILED_PRECONDITION,
        "One of the two nodes is too old for the other.",
        "Upgrade the older of the two nodes; before version 0.3.0, to 0.3.0.",
        4,
    ),
    Code.MESSAGE_TOO_LARGE: Entry(
        _S.INVALID_ARGUMENT, "The message is larger than the limit.", "Send chunks of at most 512 KiB.", 4
    ),
    # A version that does not know the code retries after this status, as after every UNAVAILABLE.
    Code.CALLS_TOO_MANY: Entry(
        _S.UNAVAILABLE,
        "This member is sending too many messages at once.",
        "Send fewer at once; radofed's nodes retry automatically.",
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
        "Fetch the newest roster and try again; if the newest version went back, ask the operator why.",
        6,
    ),
    # Only sent under a roster with an expiry. A version that does not know the code refuses such a roster.
    Code.ROSTER_EXPIRED: Entry(
        _S.FAILED_PRECONDITION,
        "The newest known roster has expired.",
        "Ask the operator to renew the roster with `rado provision renew-roster`.",
        6,
    ),
    Code.QUERY_UNKNOWN: Entry(
        _S.NOT_FOUND, "The query is not known.", "Check the id; a query is deleted some time after it ends.", 4
    ),
    Code.QUERY_EXPIRED: Entry(
        _S.FAILED_PRECONDITION,
        "The query has expired or is not valid yet.",
        "Check both clocks, or send a new query with a later end.",
        3,
    ),
    Code.QUERY_INVALID: Entry(
        _S.INVALID_ARGUMENT, "The query is not valid.", "Compare its fields with the protocol document.", 4
    ),
    Code.QUERY_CLOSED: Entry(_S.FAILED_PRECONDITION, "The query or the attempt has ended.", "Send a new query.", 6),
    Code.QUERIES_TOO_MANY: Entry(
        _S.RESOURCE_EXHAUSTED,
        "Too many queries are open, or were asked lately.",
        "Wait until there is room, cancel an open query, or ask the coordinator's operator for a larger limit.",
        1,
    ),
    Code.QUERY_TOO_LARGE: Entry(
        _S.RESOURCE_EXHAUSTED,
        "The query's uploads exceed the coordinator's storage, or its learner's limit.",
        "Use fewer rados or parties, or ask the coordinator's operator for a larger limit.",
        4,
    ),
    Code.KEY_INVALID: Entry(
        _S.INVALID_ARGUMENT,
        "The Paillier key is too short, too long, malformed, out of date or not certified by the learner.",
        "Make a key with `rado learner keygen --config learner.toml` (2048 to 4096 bits).",
        4,
    ),
    Code.SEED_MISMATCH: Entry(
        _S.INVALID_ARGUMENT,
        "The learner gave this party another seed than the query commits to.",
        "If this party's key changed after the query was planned, the learner accepts the new key and asks again. "
        "Otherwise do not answer its queries until its operator has explained it: with unequal seeds a learner opens "
        "one party's sum.",
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
        _S.FAILED_PRECONDITION, "The attempt's phase does not accept this message.", "Fetch the work again.", 6
    ),
    Code.ANSWER_CONFLICT: Entry(
        _S.ALREADY_EXISTS,
        "This party has already given another answer to this attempt.",
        "Send the first answer again unchanged, or wait for the next attempt.",
        6,
    ),
    Code.COHORT_EXCLUDED: Entry(
        _S.PERMISSION_DENIED,
        "This party is not in the attempt's cohort.",
        "The party answered late or the cohort was full; wait for the next query.",
        6,
    ),
    Code.TOTAL_UNAVAILABLE: Entry(
        _S.FAILED_PRECONDITION, "The total is not available yet.", "Wait until the query is complete.", 6
    ),
    Code.CHUNK_MALFORMED: Entry(
        _S.INVALID_ARGUMENT,
        "The chunk's index, length or hash is wrong.",
        "Compare it with the protocol document.",
        4,
    ),
    Code.CHUNK_CONFLICT: Entry(
        _S.ALREADY_EXISTS,
        "A different chunk with this index was already uploaded.",
        "Send the same bytes again, or give up the attempt.",
        6,
    ),
    Code.CHUNK_MISSING: Entry(
        _S.FAILED_PRECONDITION, "Chunks are missing.", "Upload every chunk before the receipt.", 6
    ),
    Code.CIPHERTEXT_INVALID: Entry(
        _S.INVALID_ARGUMENT,
        "A ciphertext is not a unit modulo n^2.",
        "Encrypt under the query's key, and check the party's program and machine.",
        4,
    ),
    Code.RECEIPT_INVALID: Entry(
        _S.INVALID_ARGUMENT,
        "The receipt does not match the cohort or the upload.",
        "Compute its digests over the bytes that were sent.",
        4,
    ),
    Code.SPOOL_FULL: Entry(
        _S.RESOURCE_EXHAUSTED,
        "There is no space to store the upload.",
        "The operator must free space or raise the quota; the party retries automatically.",
        1,
        retry=True,
    ),
    Code.PARTY_NOT_ASKED: Entry(
        _S.FAILED_PRECONDITION,
        "The query does not ask this party.",
        "If the party should take part, accept its present key with `rado learner accept`, and send a new query.",
        6,
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
        "Raise cohort_min if the party accepts so many members of the roster; otherwise its data officer accepts more "
        "of them, or lowers smallest_cohort and assumed_colluders. If some parties have not accepted all others, raise "
        "colluders, or ask with --cohort-noise smallest.",
        6,
    ),
    Code.MASKS_TOO_FEW: Entry(
        _S.PERMISSION_DENIED,
        "Too few members of the cohort share masks with one another.",
        "Ask with more --mask-neighbours, or with --mask-neighbours complete, or raise cohort_min.",
        6,
    ),
    Code.POLICY_LIMITS: Entry(
        _S.PERMISSION_DENIED,
        "The query exceeds a limit of the party's policy for one query.",
        "Lower the number of rados, the delta or the attempts.",
        6,
    ),
    Code.POLICY_PURPOSE: Entry(
        _S.PERMISSION_DENIED,
        "The query states no purpose, and the party's policy requires one.",
        "Say what the answer is for, with --purpose.",
        6,
    ),
    Code.POLICY_STUDY: Entry(
        _S.PERMISSION_DENIED,
        "The party's policy allows no such query for the study that it names, or for none.",
        "Name a study that the party allows, with --study; its data officer adds one under [[studies]] in policy.toml.",
        6,
    ),
    Code.STUDY_DATES: Entry(
        _S.PERMISSION_DENIED,
        "The study that the query names has not begun, or has ended.",
        "Ask on a day of the study. If its days changed, state the new ones in learner.toml or the file of the study.",
        6,
    ),
    Code.PERSON_REFUSED: Entry(
        _S.PERMISSION_DENIED,
        "A person at the party refused the query, or no one approved it.",
        "Ask the party's data officer before asking it again.",
        6,
    ),
    Code.BUDGET_EXCEEDED: Entry(
        _S.PERMISSION_DENIED,
        "The party's privacy budget does not cover this query.",
        "Send a query that costs less; spent budget does not come back. --would-accept asks, at no cost, whether all "
        "fits.",
        6,
    ),
    Code.SCHEMA_MISMATCH: Entry(
        _S.FAILED_PRECONDITION,
        "The party's schema differs from the query's.",
        "Agree on one schema file, and of several labels ask about one that it has; `rado party check` shows which "
        "field differs.",
        6,
    ),
    Code.PLAN_INFEASIBLE: Entry(
        _S.FAILED_PRECONDITION,
        "The party has more rows than the query allows, or the design is empty or unbounded at its size.",
        "Raise max_rows above the parties' rows; if that does not help, use a milder truncation or fewer rados.",
        6,
    ),
    Code.EPOCH_EMPTY: Entry(
        _S.FAILED_PRECONDITION,
        "The party has no rows of the query's epoch.",
        "Check the epoch's name, or ask again once its rows are there; a party without epoch_column has no epochs.",
        6,
    ),
    Code.EPOCH_CHANGED: Entry(
        _S.FAILED_PRECONDITION,
        "The party answered about some of the epoch's rows in another epoch.",
        "Ask the party's data officer: each row has to stay in its first epoch. A query without an epoch is answered.",
        6,
    ),
    Code.PERSONS_UNKNOWN: Entry(
        _S.FAILED_PRECONDITION,
        "The party cannot tell which rows are of one person.",
        "Its data officer names an id_column without empty cells in `party.toml`, or leave out --unit person.",
        6,
    ),
    Code.UNIT_REFUSED: Entry(
        _S.PERMISSION_DENIED,
        "The party limits the privacy loss of persons, and the query protects records only.",
        "Ask with --unit person. A query about rados has no bound for persons.",
        6,
    ),
    Code.ROWS_NOT_ACCEPTED: Entry(
        _S.FAILED_PRECONDITION,
        "The party refuses every query until a person has checked its rows.",
        "Tell the party's data officer: `rado party status` says what changed, and once the table is corrected "
        "(`rado party reload`) or accepted as it is (`rado party accept-rows`) a new query is answered.",
        6,
    ),
    Code.UNAVAILABLE: Entry(_S.FAILED_PRECONDITION, "The party cannot contribute now.", "Ask the party's operator.", 6),
    Code.COHORT_TOO_SMALL: Entry(
        _S.FAILED_PRECONDITION,
        "Too few parties are ready.",
        "Check why parties refused, start missing parties, or send a query with a smaller cohort_min or epsilon.",
        6,
    ),
    Code.ATTEMPTS_EXHAUSTED: Entry(
        _S.FAILED_PRECONDITION,
        "A party of the cohort was lost in every attempt.",
        "Start the missing parties, unless they were removed from the roster, and send a new query.",
        6,
    ),
    Code.ONLY_ASKED: Entry(
        _S.FAILED_PRECONDITION,
        "It was a question, which has no total and costs nothing.",
        "Send the query itself.",
        6,
    ),
    Code.CANCELLED: Entry(_S.CANCELLED, "The learner cancelled the query.", "Send a new query.", 6),
    Code.DRAINING: Entry(
        _S.UNAVAILABLE,
        "The node takes no new work now.",
        "Try again later; `rado learner send` sends a query that was not taken.",
        2,
        retry=True,
    ),
    Code.INTERNAL: Entry(
        _S.INTERNAL, "The node failed.", "See the node's own log, and report the failure if it looks like a bug.", 5
    ),
}


class WireError(RadofedError):
    """An error of the catalogue, raised here or received from a peer.

    Only the coordinator sends `detail`, which never contains any of a party's data.
    """

    def __init__(self, code: Code, detail: str = "", hint: str = "") -> None:
        """hint: advice for this case, by default the catalogue's. It stays on this machine."""
        self.code = code
        self.detail = detail
        entry = CATALOGUE[code]
        self.hint = hint or entry.hint
        self.status = entry.status
        super().__init__(" ".join(part for part in (entry.sentence, detail, self.hint) if part))

    @property
    def public_sentence(self) -> str:
        """The text that crosses the wire: the catalogue's sentence and the detail, if any."""
        sentence = CATALOGUE[self.code].sentence
        # A detail may quote a peer's message, and a status message travels in a header, whose length is limited.
        return f"{sentence} {self.detail[:LONGEST_DETAIL]}" if self.detail else sentence


def page_of(code: Code) -> str:
    """Page of the documentation that explains the code: `PAGES/CODE.md`."""
    return f"{PAGES}/{code.value}.md"


def exit_code_of(error: RadofedError) -> int:
    """The exit code of the `rado` command for this error."""
    return CATALOGUE[error.code].exit_code if isinstance(error, WireError) else error.exit_code


PROXY_OPENS_TLS = "a proxy on the way opens TLS; have it pass this address through"


class ConnectionLostError(RadofedError):
    """The peer could not be reached or authenticated within the given time."""

    exit_code = 2

    def __init__(self, target: str, cause: str) -> None:
        self.target, self.cause = target, cause
        super().__init__(f"no connection to {target}: {cause}; check that it is running and that the address is right")


class TimedOutError(RadofedError):
    """An operation did not finish within the given time."""

    exit_code = 3
