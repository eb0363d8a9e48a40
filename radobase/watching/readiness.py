"""Why a node is not ready: codes, which programs read and which never change, and a sentence for people."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Self


class Reason(StrEnum):
    """Why a node that runs does not do its work now. The value is the code."""

    sentence: str

    def __new__(cls, code: str, sentence: str) -> Self:
        """A code with its sentence."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.sentence = sentence
        return member

    STARTING = "STARTING", "the node starts and does not serve yet"
    DATA_NOT_LOADED = "DATA_NOT_LOADED", "the party has not loaded its rows yet"
    COORDINATOR_UNREACHABLE = "COORDINATOR_UNREACHABLE", "the coordinator has not answered for a while; see the log"
    LEDGER_SET_BACK = "LEDGER_SET_BACK", "other members saw charges that the privacy ledger lacks: it was set back"
    WAITING_FOR_WITNESSES = "WAITING_FOR_WITNESSES", "too few accepted members have confirmed the privacy ledger yet"
    CERTIFICATE_EXPIRED = "CERTIFICATE_EXPIRED", "the certificate has expired; ask the operator to renew it"
    NO_ROSTER = "NO_ROSTER", "the party has not seen a roster yet"
    ROSTER_EXPIRED = "ROSTER_EXPIRED", "the newest roster that this node knows has expired"
    NOT_IN_ROSTER = "NOT_IN_ROSTER", "the newest roster does not list this party with its signing key"
    ROWS_UNUSABLE = "ROWS_UNUSABLE", "more rows than the policy allows are not usable; see `rado party status`"
    ROWS_DROPPED = "ROWS_DROPPED", "more rows than the policy allows are gone; see `rado party status`"
    CELLS_CHANGED = (
        "CELLS_CHANGED",
        "more cells than the policy allows were replaced or clipped by the schema's policies; see `rado party status`",
    )
    SPOOL_FULL = "SPOOL_FULL", "the spool's quota or its disk has no room for one more chunk"
    PAUSED = "PAUSED", "a person has paused the party; `rado party resume` ends it"
    NO_NEW_QUERIES = (
        "NO_NEW_QUERIES",
        "an administrator drains the coordinator: it takes no new query; `rado coordinator undrain` ends that",
    )
    DRAINING = "DRAINING", "the node stops and takes no new work"
    STATE_UNREADABLE = "STATE_UNREADABLE", "the node could not read its own state; see its log"


def reason_lines(codes: Sequence[str]) -> list[str]:
    """Reasons as `rado health` prints them, each with its code and sentence. Codes of newer nodes stand alone."""
    known = {reason.value: reason.sentence for reason in Reason}
    return [f"{code}: {known[code]}" if code in known else code for code in codes]


def readiness_to_dict(reasons: Sequence[Reason]) -> dict[str, Any]:
    """As /readyz answers: `{"ready": false, "reasons": [{"code": ..., "sentence": ...}]}`."""
    return {
        "ready": not reasons,
        "reasons": [{"code": reason.value, "sentence": reason.sentence} for reason in reasons],
    }
