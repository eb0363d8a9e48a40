"""Why a node is not ready: codes, which programs read and which never change, and a sentence for people."""

import ipaddress
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, model_validator

from radobase.configuration import ConfigPath, Configuration, split_target


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


# The section `[watch]` of a node's configuration file.


def _loopback(listen: str) -> str:
    host, _ = split_target(listen)
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise ValueError(
            'metrics and health have no password, so only this machine may read them: use "127.0.0.1:9464" or '
            '"[::1]:9464", or `socket`; another machine reads them through an agent on this one'
        )
    return listen


class WatchSettings(Configuration):
    """Metrics and health, over plain HTTP for this machine only. Needs the extra `metrics`."""

    listen: Annotated[str, AfterValidator(_loopback)] | None = None
    """Loopback address, such as `"127.0.0.1:9464"`. Every user of this machine can read it."""
    socket: ConfigPath | None = None
    """Unix socket, in place of `listen`. Only the node's own user can read it."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.listen is None) == (self.socket is None):
            raise ValueError("give either `listen` or `socket`")
        return self

    @property
    def place(self) -> Path | tuple[str, int]:
        """Path of the socket, or host and port."""
        if self.socket is not None:
            return self.socket
        assert self.listen is not None, "checked at construction"
        return split_target(self.listen)

    @property
    def words(self) -> str:
        """The place as the configuration file has it."""
        return str(self.socket or self.listen)
